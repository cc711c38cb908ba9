"""Turns: the notification, the claim and its renewal."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Envelope, Record, ServiceEnvelope
from chatlane_schemas.events import ResetReason
from chatlane_schemas.fields import (
    BigNumber,
    EnvelopeId,
    Flag,
    Instant,
    Name,
    Number,
    PlatformId,
    Text,
)
from chatlane_schemas.inbound import Attachments, Kind
from chatlane_schemas.people import Person
from chatlane_schemas.session_state import ModelOverride, Note, ResumeMark
from chatlane_schemas.sessions import ApiReply
from chatlane_schemas.source import Source


class ClaimStatus(StrEnum):
    """Answer to a claim."""

    CLAIMED = "claimed"
    TAKEN = "taken"
    FINISHED = "finished"
    UNKNOWN = "unknown"
    VOID = "void"


class RenewStatus(StrEnum):
    """Answer to a renewal; only `renewed` lets the worker go on."""

    RENEWED = "renewed"
    STALE = "stale"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class CancelReason(StrEnum):
    """Why a running turn is to end; each is stronger than those before it.

    `interrupted`: a newer message takes its place. `stopped`: somebody asked for it.
    `session_ended`: its conversation is over, and nothing of it is said to the chat any more.
    """

    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    SESSION_ENDED = "session_ended"


class TurnNotice(ServiceEnvelope):
    """There is a turn to claim; carries no content, which is read when claimed."""

    turn_id: UUID = Field(description="Turn to claim.")
    session_id: UUID = Field(description="Conversation of the turn.")
    agent: Name = Field(description="Agent that serves the session.")
    dispatch: Number = Field(description="How often the turn was dispatched before.")


class TurnMessage(Record):
    """One message a turn answers."""

    id: UUID | None = Field(default=None, description="Id of the message in the transcript.")
    seq: BigNumber = Field(description="Place in the transcript of the session.")
    kind: Kind = Field(default=Kind.MESSAGE, description="What happened.")
    text: Text | None = Field(default=None, description="What was written, as it is now.")
    attachments: Attachments = Field(default=(), description="References to files.")
    album_id: PlatformId | None = Field(
        default=None, description="The same for messages that the platform shows as one."
    )
    source: Source = Field(description="Full address of the message, as it came.")
    sent_at: Instant | None = Field(default=None, description="The platform's time; data only.")
    stored_at: Instant = Field(description="When the message reached the log.")
    traceparent: Text | None = Field(
        default=None, description="W3C trace context the message came with, if it was traced."
    )
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]`, for a prompt to put before the text where several people talk.",
    )


class HistoryPointer(Record):
    """Where the transcript before the turn is read: `transcript.load` takes both fields."""

    session_id: UUID = Field(description="Conversation to read.")
    before_seq: BigNumber = Field(description="Rows below this one are the history.")


class Interruption(Record):
    """Earlier attempts at a turn were lost with their workers; tools may have been called."""

    count: Number = Field(description="How many were.")
    last_at: Instant = Field(description="When the last one was given up.")


class ClaimRequest(Envelope):
    """Asks for a turn. The envelope id is the claim id: the same id gets the same answer."""

    turn_id: UUID = Field(description="Turn to claim.")
    worker: EnvelopeId = Field(description="Name of the worker, for people who look for it.")
    tells_begin: Flag = Field(
        default=False,
        description="The worker says when it begins an attempt after the first, by a renewal with "
        "`begun`; one that it never began is no interruption. Who cannot use the answer asks again "
        "under the same id without it, and the attempt counts.",
    )


class ClaimReply(ServiceEnvelope):
    """Answer to a claim; all but `status` and `turn_id` only when claimed."""

    status: ClaimStatus = Field(description="Whether the turn is ours.")
    turn_id: UUID = Field(description="The turn that was asked for.")
    session_id: UUID | None = Field(default=None, description="Conversation of the turn.")
    session_key: str | None = Field(default=None, description="Key of its lane.")
    attempt: Number | None = Field(default=None, description="The fencing number, from 1.")
    token: EnvelopeId | None = Field(
        default=None, repr=False, description="Secret of this attempt."
    )
    lease_ms: Number | None = Field(
        default=None,
        description="Length of the lease in milliseconds, counted from before the request.",
    )
    source: Source | None = Field(default=None, description="Address the answer goes to.")
    messages: tuple[TurnMessage, ...] = Field(default=(), description="What the turn answers.")
    history: HistoryPointer | None = Field(default=None, description="What was said before.")
    prompt_context: Text | None = Field(
        default=None,
        description="Where the session takes place, for a system prompt; changes only with that.",
    )
    session_is_new: Flag = Field(default=False, description="Whether it opens the session.")
    reset_reason: ResetReason | None = Field(
        default=None,
        description="Rule that ended the session before, on the first turn of a new one.",
    )
    reset_had_activity: Flag = Field(
        default=False,
        description="With `reset_reason`: whether anything was answered in the session before.",
    )
    opening_note: Note | None = Field(
        default=None,
        description="Note the session before left, on the first turn of a new one.",
    )
    interruption: Interruption | None = Field(
        default=None,
        description="That earlier attempts at this turn were interrupted.",
    )
    model_override: ModelOverride | None = Field(
        default=None,
        description="Model that is to answer instead of the agent's own choice.",
    )
    resume_pending: ResumeMark | None = Field(
        default=None,
        description="The session was interrupted before; the work may be half done.",
    )


class RenewRequest(Envelope):
    """Asks for more time on a claimed turn."""

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt the claim gave.")
    token: EnvelopeId = Field(repr=False, description="Token the claim gave.")
    begun: Flag | None = Field(
        default=None,
        description="Whether work on this attempt has begun; false promises to tell when it does.",
    )


class RenewReply(ServiceEnvelope):
    """Answer to a renewal."""

    status: RenewStatus = Field(description="Whether the turn is still ours.")
    lease_ms: Number = Field(
        default=0,
        description="Length of the new lease in milliseconds; 0 when there is none.",
    )
    cancel: CancelReason | None = Field(
        default=None,
        description="The turn is to end: answer with what there is. It is renewed no more.",
    )
    steer: Flag = Field(default=False, description="There is something to take in.")


class TurnControl(ServiceEnvelope):
    """What the worker of a running turn is told; not stored, so a renewal says it again."""

    turn_id: UUID = Field(description="The turn it is about.")
    cancel: CancelReason | None = Field(default=None, description="The turn is to end, and why.")
    steer: Flag = Field(default=False, description="There is something to take in.")


class TurnTake(Envelope):
    """Asks for messages that came while a turn runs and that it may take in.

    Each gets its place in the transcript with the answer, so asking again with the same
    `after_seq` brings it again. What is not taken in is in the next turn.
    """

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt the claim gave.")
    token: EnvelopeId = Field(repr=False, description="Token the claim gave.")
    after_seq: BigNumber = Field(description="Place of the last message the worker has.")


class TakeReply(ServiceEnvelope):
    """Answer to `TurnTake`."""

    status: RenewStatus = Field(description="Whether the turn is still ours; not renewed by this.")
    messages: tuple[TurnMessage, ...] = Field(default=(), description="What was taken in.")


class TurnCancel(Envelope):
    """Ends one turn; what waits behind it is next.

    One that nobody has claimed is dropped with all that waits. One that is over stays as it
    ended.
    """

    turn_id: UUID = Field(description="Turn to end.")
    acting_for: Person | None = Field(
        default=None,
        description="Who wants it; the turns of others are not found.",
    )


class StopReply(ApiReply):
    """Answer to `TurnCancel` and `SessionStop`: what there was to stop."""

    session_id: UUID | None = Field(default=None, description="Conversation of the turn.")
    turn_id: UUID | None = Field(default=None, description="The turn that was stopped.")
    was_running: Flag = Field(
        default=False,
        description="Whether a worker had it, who ends it now; the next turn waits for that.",
    )
    dropped: BigNumber = Field(
        default=0,
        description="Waiting messages that will not be answered; the transcript has them.",
    )


class TurnDelta(Envelope):
    """A piece of the answer while it is written; not stored, and not the answer.

    Pieces may get lost. A reader drops what is not of the newest attempt.
    """

    turn_id: UUID = Field(description="Turn that is being answered.")
    attempt: Number = Field(description="Attempt the claim gave.")
    index: Number = Field(description="Place among the pieces of this attempt, from 0.")
    text: Text = Field(description="What was added.")
