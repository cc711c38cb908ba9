"""Turns: notification, claim, renewal and control."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.elements import StoredContent
from chatlane_schemas.content.front_end import FrontEnd
from chatlane_schemas.content.replied import RepliedMessage
from chatlane_schemas.deliveries import Undelivered
from chatlane_schemas.envelope import Envelope, Record, ServiceEnvelope
from chatlane_schemas.fields import (
    BigNumber,
    EnvelopeId,
    Flag,
    Instant,
    Name,
    Number,
    PlatformId,
    Text,
    is_left_out,
)
from chatlane_schemas.inbound import Attachments, Kind
from chatlane_schemas.results import TranscriptRow
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_state import SessionOpening
from chatlane_schemas.session_api.sessions import ApiReply
from chatlane_schemas.source import Source
from chatlane_schemas.topology.subjects import Audience


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
    session_id: UUID = Field(description="Session of the turn.")
    agent: Name = Field(description="Agent that serves the session.")
    dispatch: Number = Field(description="Number of earlier dispatches of the turn.")


class TurnMessage(StoredContent):
    """One message that a turn answers."""

    id: UUID | None = Field(default=None, description="Id of the message in the transcript.")
    seq: BigNumber = Field(description="Place in the transcript of the session.")
    kind: Kind = Field(default=Kind.MESSAGE, description="Kind of the event.")
    text: Text | None = Field(default=None, description="Text of the message, after edits.")
    attachments: Attachments = Field(default=(), description="References to files.")
    album_id: PlatformId | None = Field(
        default=None, description="Common id of messages that the platform shows as one."
    )
    replied: RepliedMessage | None = Field(
        default=None, description="The message it answers, if the service has it."
    )
    source: Source = Field(description="Full address of the message, as received.")
    sent_at: Instant | None = Field(
        default=None, description="Time that the platform reported; data only."
    )
    stored_at: Instant = Field(description="When the message was stored in the log.")
    traceparent: Text | None = Field(
        default=None, description="W3C trace context of the message, if it was traced."
    )
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]` to put before the text in a prompt, if several people talk.",
    )
    front_end: FrontEnd | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="Tools, context and state of the front end. The front end of a person wrote all of "
        "it.",
    )


class HistoryPointer(Record):
    """Position of the transcript before the turn: `transcript.load` takes both fields."""

    session_id: UUID = Field(description="Session to read.")
    before_seq: BigNumber = Field(description="Rows below this one are the history.")


class Interruption(Record):
    """Earlier attempts at a turn that were lost with their workers; they may have called tools."""

    count: Number = Field(description="Number of lost attempts.")
    last_at: Instant = Field(description="When the last attempt was given up.")


class ClaimRequest(Envelope):
    """Claims a turn.

    The envelope id is the claim id: a repeated request with the same id gets the same answer.
    """

    turn_id: UUID = Field(description="Turn to claim.")
    worker: EnvelopeId = Field(description="Name of the worker, for operators.")
    tells_begin: Flag = Field(
        default=False,
        description="Whether the worker reports the begin of an attempt after the first, by a renewal "
        "with `begun`. An attempt that never began is no interruption. A worker that cannot use "
        "the reply repeats the request with the same id and without this; the attempt then counts.",
    )


class ClaimReply(SessionOpening):
    """Reply to a claim; fields other than `status` and `turn_id` are set only when claimed."""

    status: ClaimStatus = Field(description="Whether the worker has the turn.")
    turn_id: UUID = Field(description="The requested turn.")
    session_id: UUID | None = Field(default=None, description="Session of the turn.")
    session_key: str | None = Field(default=None, description="Key of its lane.")
    attempt: Number | None = Field(default=None, description="Fencing number, from 1.")
    token: EnvelopeId | None = Field(
        default=None, repr=False, description="Secret of this attempt."
    )
    lease_ms: Number | None = Field(
        default=None,
        description="Length of the lease in milliseconds, counted from before the request.",
    )
    source: Source | None = Field(default=None, description="Address of the answer.")
    audience: Audience | None = Field(
        default=None,
        description="Token of the subjects on which a worker publishes pieces of the turn: who "
        "talks in the session.",
    )
    messages: tuple[TurnMessage, ...] = Field(
        default=(), description="Messages that the turn answers."
    )
    history: HistoryPointer | None = Field(
        default=None, description="Position of the earlier transcript."
    )
    interruption: Interruption | None = Field(
        default=None,
        description="Earlier attempts at this turn that were interrupted.",
    )
    undelivered: tuple[Undelivered, ...] = Field(
        default=(),
        description="Messages of this session that were given up since its last turn, the newest "
        "at the end.",
    )
    earlier_rows: tuple[TranscriptRow, ...] = Field(
        default=(),
        description="Rows that earlier attempts at this turn added to the transcript, such as tool "
        "calls and their results; the newest ones if they are many.",
    )


class RenewRequest(Envelope):
    """Renews the lease of a claimed turn."""

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt from the claim reply.")
    token: EnvelopeId = Field(repr=False, description="Token from the claim reply.")
    begun: Flag | None = Field(
        default=None,
        description="Whether work on this attempt has begun; false announces a later report. A worker "
        "that was told to stop sends false, too: if the attempt is lost, it does not count.",
    )


class RenewReply(ServiceEnvelope):
    """Reply to a renewal."""

    status: RenewStatus = Field(description="Whether the worker still has the turn.")
    lease_ms: Number = Field(
        default=0,
        description="Length of the new lease in milliseconds; 0 if there is none.",
    )
    cancel: CancelReason | None = Field(
        default=None,
        description="Why the turn has to end: publish the result now. It cannot be renewed again.",
    )
    steer: Flag = Field(
        default=False, description="Whether new messages can be taken into the turn."
    )


class TurnControl(ServiceEnvelope):
    """Control message to the worker of a running turn; not stored, so renewals repeat it."""

    turn_id: UUID = Field(description="Turn of the control message.")
    cancel: CancelReason | None = Field(
        default=None, description="Why the turn has to end, if it has to."
    )
    steer: Flag = Field(
        default=False, description="Whether new messages can be taken into the turn."
    )
    answered: Flag | None = Field(
        default=None, description="Whether a question of the turn has its answer."
    )


class TurnTake(Envelope):
    """Takes messages into a running turn that allows it.

    The messages get their place in the transcript with the answer, so a repeated request with the
    same `after_seq` returns them again. Messages that no request takes are in the next turn.
    """

    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt from the claim reply.")
    token: EnvelopeId = Field(repr=False, description="Token from the claim reply.")
    after_seq: BigNumber = Field(description="Place of the last message that the worker has.")


class TakeReply(ServiceEnvelope):
    """Reply to `TurnTake`."""

    status: RenewStatus = Field(
        description="Whether the worker still has the turn; does not renew it."
    )
    messages: tuple[TurnMessage, ...] = Field(
        default=(), description="Messages that the turn takes in."
    )


class TurnCancel(Envelope):
    """Ends one turn; the next turn answers the messages that are queued behind it.

    An unclaimed turn is dropped with all pending messages. A turn that has ended stays unchanged.
    """

    turn_id: UUID = Field(description="Turn to end.")
    acting_for: Person | None = Field(
        default=None,
        description="Person who makes the request; turns of other people are not found.",
    )


class StopReply(ApiReply):
    """Reply to `TurnCancel` and `SessionStop`: the turn and messages that were stopped."""

    session_id: UUID | None = Field(default=None, description="Session of the turn.")
    turn_id: UUID | None = Field(default=None, description="Turn that was stopped.")
    was_running: Flag = Field(
        default=False,
        description="Whether a worker runs the turn and ends it now; the next turn waits for it.",
    )
    dropped: BigNumber = Field(
        default=0,
        description="Pending messages that will not be answered; the transcript has them.",
    )


class TurnDelta(Envelope):
    """A part of the answer during its generation; not stored, and not the answer itself.

    Deltas may get lost. A reader drops deltas of attempts other than the newest.
    """

    turn_id: UUID = Field(description="Turn of the answer.")
    attempt: Number = Field(description="Attempt from the claim reply.")
    index: Number = Field(description="Position among the parts of this attempt, from 0.")
    text: Text = Field(description="Text that was added.")
