"""Turns: notification, claim, renewal and control."""

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
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_state import ModelOverride, Note, ResumeMark
from chatlane_schemas.session_api.sessions import ApiReply
from chatlane_schemas.source import Source


class ClaimStatus(StrEnum):
    """Status of the reply to a claim."""

    CLAIMED = "claimed"
    TAKEN = "taken"
    FINISHED = "finished"
    UNKNOWN = "unknown"
    VOID = "void"


class RenewStatus(StrEnum):
    """Status of the reply to a renewal; the worker may continue only if it is `renewed`."""

    RENEWED = "renewed"
    STALE = "stale"
    FINISHED = "finished"
    UNKNOWN = "unknown"


class CancelReason(StrEnum):
    """Why a running turn is to end; each reason overrides those before it.

    `interrupted`: a newer message replaces the turn. `stopped`: a person or program requested it.
    `session_ended`: its session is over, and the turn publishes no further output to the chat.
    """

    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    SESSION_ENDED = "session_ended"


class TurnNotice(ServiceEnvelope):
    """Announces a turn to claim; carries no content, which the claim returns."""

    turn_id: UUID = Field(description="Turn to claim.")
    session_id: UUID = Field(description="Conversation of the turn.")
    agent: Name = Field(description="Agent that serves the session.")
    dispatch: Number = Field(description="How often the turn was dispatched before.")


class TurnMessage(Record):
    """One message that a turn answers."""

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
    """Position of the transcript before the turn: `transcript.load` takes both fields."""

    session_id: UUID = Field(description="Conversation to read.")
    before_seq: BigNumber = Field(description="Rows below this one are the history.")


class Interruption(Record):
    """Earlier attempts at a turn that were lost with their workers; they may have called tools."""

    count: Number = Field(description="How many were.")
    last_at: Instant = Field(description="When the last one was given up.")


class ClaimRequest(Envelope):
    """Claims a turn.

    The envelope id is the claim id: a repeated request with the same id gets the same answer.
    """

    turn_id: UUID = Field(description="Turn to claim.")
    worker: EnvelopeId = Field(description="Name of the worker, for people who look for it.")
    tells_begin: Flag = Field(
        default=False,
        description="The worker says when it begins an attempt after the first, by a renewal with "
        "`begun`; one that it never began is no interruption. Who cannot use the answer asks again "
        "under the same id without it, and the attempt counts.",
    )


class ClaimReply(ServiceEnvelope):
    """Reply to a claim; fields other than `status` and `turn_id` are set only when claimed."""

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
    """Renews the lease of a claimed turn."""

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt the claim gave.")
    token: EnvelopeId = Field(repr=False, description="Token the claim gave.")
    begun: Flag | None = Field(
        default=None,
        description="Whether work on this attempt has begun; false promises to tell when it does.",
    )


class RenewReply(ServiceEnvelope):
    """Reply to a renewal."""

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
    """Control message to the worker of a running turn; not stored, so renewals repeat it."""

    turn_id: UUID = Field(description="The turn it is about.")
    cancel: CancelReason | None = Field(default=None, description="The turn is to end, and why.")
    steer: Flag = Field(default=False, description="There is something to take in.")


class TurnTake(Envelope):
    """Takes messages into a running turn that allows it.

    The messages get their place in the transcript with the answer, so a repeated request with the
    same `after_seq` returns them again. Messages that no request takes are in the next turn.
    """

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt the claim gave.")
    token: EnvelopeId = Field(repr=False, description="Token the claim gave.")
    after_seq: BigNumber = Field(description="Place of the last message the worker has.")


class TakeReply(ServiceEnvelope):
    """Reply to `TurnTake`."""

    status: RenewStatus = Field(description="Whether the turn is still ours; not renewed by this.")
    messages: tuple[TurnMessage, ...] = Field(default=(), description="What was taken in.")


class TurnCancel(Envelope):
    """Ends one turn; the next turn answers the messages that are queued behind it.

    An unclaimed turn is dropped with all pending messages. A turn that has ended stays unchanged.
    """

    turn_id: UUID = Field(description="Turn to end.")
    acting_for: Person | None = Field(
        default=None,
        description="Who wants it; the turns of others are not found.",
    )


class StopReply(ApiReply):
    """Reply to `TurnCancel` and `SessionStop`: the turn and messages that were stopped."""

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
    """A part of the answer during its generation; not stored, and not the answer itself.

    Deltas may get lost. A reader drops deltas of attempts other than the newest.
    """

    turn_id: UUID = Field(description="Turn that is being answered.")
    attempt: Number = Field(description="Attempt the claim gave.")
    index: Number = Field(description="Place among the pieces of this attempt, from 0.")
    text: Text = Field(description="What was added.")
