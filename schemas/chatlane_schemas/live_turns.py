"""Live turns: what the service reports about a turn, and the pieces that its worker streams.

The events are stored in EVENTS. Pieces and recaps are volatile: only the stored answer counts.
"""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.questions import QuestionEnd, QuestionKind
from chatlane_schemas.envelope import Envelope, Record, ServiceEnvelope
from chatlane_schemas.fields import (
    Amounts,
    Counters,
    EnvelopeId,
    Flag,
    Instant,
    Name,
    Number,
    PlatformId,
    Text,
)
from chatlane_schemas.source import Source

MAX_PLAN_ENTRIES: Final = 100
MAX_RECAP_PIECES: Final = 1000


class TurnOutcome(StrEnum):
    """How a turn ended.

    `ok`: with an answer. `no_reply`: the agent had nothing to say. `cancelled`: a person, a program
    or a newer message ended it. `failed`: no attempt succeeded.
    """

    OK = "ok"
    NO_REPLY = "no_reply"
    CANCELLED = "cancelled"
    FAILED = "failed"


class TurnFailure(StrEnum):
    """Why a turn failed for good.

    `error`: its worker reported a failure. `lost`: the lease of its last attempt ended. `suspended`:
    so many attempts of its session were lost in a row that the session is suspended. `unavailable`: its
    agent was unavailable for too long.
    """

    ERROR = "error"
    LOST = "lost"
    SUSPENDED = "suspended"
    UNAVAILABLE = "unavailable"


class WaitReason(StrEnum):
    """Why a turn waits for another attempt.

    `error`: the last attempt reported a failure. `lost`: its lease ended. `unavailable`: its agent is
    unavailable for now. `handed_back`: its worker is to stop.
    """

    ERROR = "error"
    LOST = "lost"
    UNAVAILABLE = "unavailable"
    HANDED_BACK = "handed_back"


class TurnEvent(ServiceEnvelope):
    """Fields of every event about a turn."""

    turn_id: UUID = Field(description="The turn.")
    session_id: UUID = Field(description="Session of the turn.")
    agent: Name = Field(description="Agent that answers.")
    attempt: Number = Field(description="Attempt of the turn, from 1.")


class TurnStarted(TurnEvent):
    """A worker began an attempt at a turn.

    Published with the answer to the claim, which a router gives after its commit. A router that
    dies in between publishes neither; the worker then repeats its claim.
    """

    source: Source = Field(description="Address that the answer goes to.")
    message_ids: tuple[UUID, ...] = Field(
        default=(), description="Ids of the messages that the turn answers."
    )
    draft: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message that shows what an earlier attempt had written.",
    )


class TurnWaiting(TurnEvent):
    """An attempt ended without a result that counts; the turn waits for another attempt."""

    reason: WaitReason = Field(description="Why it waits.")
    until: Instant | None = Field(
        default=None, description="No attempt begins before; none if one may begin at once."
    )


class TurnAsked(TurnEvent):
    """A turn asks the person something; `TurnQuestion` returns the question.

    A form in a chat has one such event, for the whole form.
    """

    question_id: UUID = Field(description="Id of the question.")
    kind: QuestionKind = Field(description="What is asked.")
    due_at: Instant = Field(description="When the default counts.")
    message_id: UUID = Field(description="Id of the `OutboundMessage` that asks.")
    parked: Flag = Field(
        default=False,
        description="Whether the attempt has ended; another one begins with the answer.",
    )


class TurnAnswered(TurnEvent):
    """A question of a turn is not open any more, so its buttons have no effect."""

    question_id: UUID = Field(description="Id of the question.")
    outcome: QuestionEnd = Field(description="How it ended.")
    message_id: UUID = Field(description="Id of the newest `OutboundMessage` that asked.")


class TurnEnded(TurnEvent):
    """A turn is over."""

    outcome: TurnOutcome = Field(description="How it ended.")
    failure: TurnFailure | None = Field(default=None, description="Why it failed, if it did.")
    notice: Text | None = Field(
        default=None, description="What the chat was told about the failure, for people."
    )
    usage: Counters = Field(default={}, description="Counts that its result reported.")
    costs: Amounts = Field(default={}, description="Amounts that its result reported.")
    gauges: Counters = Field(default={}, description="Gauges that its result reported.")
    outbound_ids: tuple[EnvelopeId, ...] = Field(
        default=(), description="Ids of the outbound messages with the answer or the notice."
    )


class PieceKind(StrEnum):
    """Kind of a piece of a live turn.

    `text` and `thought` continue what was said before. `tool_call` shows a call or changes what is
    shown of it, by its `tool_id`. `tool_result` shows what a call returned. `plan` replaces the plan
    shown before. `usage` replaces the counts shown before. `progress` replaces the note on what
    happens now.
    """

    TEXT = "text"
    THOUGHT = "thought"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    PLAN = "plan"
    USAGE = "usage"
    PROGRESS = "progress"


class StepState(StrEnum):
    """State of a tool call or of an entry of a plan."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class PlanEntry(Record):
    """One step of the plan of an agent."""

    text: Text = Field(description="What is to be done.")
    state: StepState = Field(default=StepState.PENDING, description="How far it is.")


PlanEntries = Annotated[tuple[PlanEntry, ...], Field(max_length=MAX_PLAN_ENTRIES, fail_fast=True)]


class LivePiece(Record):
    """One thing that a running turn shows; which fields are set depends on its kind."""

    kind: PieceKind = Field(description="What it shows.")
    text: Text | None = Field(
        default=None, description="The text to add, the result of a tool, or the progress note."
    )
    tool_id: Text | None = Field(default=None, description="Id of the tool call.")
    tool_name: Text | None = Field(default=None, description="Name of the tool.")
    title: Text | None = Field(default=None, description="What the call does, for people.")
    state: StepState | None = Field(default=None, description="State of the tool call.")
    plan: PlanEntries | None = Field(default=None, description="The whole plan.")
    usage: Counters | None = Field(default=None, description="Named counts, such as tokens.")


class TurnPiece(Envelope):
    """A piece of a turn while it runs; not stored, and never the answer itself.

    Pieces may get lost. A reader that misses an index asks for a recap, or waits for the answer. It
    drops pieces of attempts other than the newest.
    """

    turn_id: UUID = Field(description="The turn.")
    session_id: UUID = Field(description="Session of the turn.")
    attempt: Number = Field(description="Attempt that the claim gave.")
    index: Number = Field(description="Place among the pieces of this attempt, from 0.")
    piece: LivePiece = Field(description="What it shows.")


class TurnFollow(Envelope):
    """Asks the worker of a session's running turn for a recap; without a turn nothing answers.

    A worker answers at most once a second per turn, to all readers of the turn.
    """

    session_id: UUID = Field(description="Session of the turn.")


class TurnRecap(Envelope):
    """The output of a running turn so far; replaces all pieces below `next_index`."""

    turn_id: UUID = Field(description="The turn.")
    session_id: UUID = Field(description="Session of the turn.")
    attempt: Number = Field(description="Attempt that the claim gave.")
    next_index: Number = Field(description="Index of the next piece.")
    pieces: Annotated[tuple[LivePiece, ...], Field(max_length=MAX_RECAP_PIECES, fail_fast=True)] = (
        Field(default=(), description="The pieces in order; text that continues is joined.")
    )
    is_shortened: Flag = Field(
        default=False, description="Whether the oldest part is left out because there is too much."
    )
