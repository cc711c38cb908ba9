"""Collect the writes of a decision: rows by table, in the order in which they were decided.

The store writes each list with one statement. The order of `publications` is the publish order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from pydantic_core import to_json

from chatlane_schemas.topology.subjects import event as event_subject

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from chatlane.domain.counts import Count
    from chatlane.domain.deliveries import DeliveredPiece, Delivery, DeliveryKey, NewDelivery
    from chatlane.domain.log import Trace
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Session, Turn
    from chatlane.domain.turns.questions import QuestionChange
    from chatlane_schemas.results import ResultMessage
    from chatlane_schemas.session_api.transcripts import Unanswered


def without_nulls(values: Mapping[str, object]) -> str:
    """Return an object as JSON text, without the names whose value is None."""
    kept = {name: value for name, value in values.items() if value is not None}
    return to_json(kept).decode()


class Publication(NamedTuple):
    """One row of the outbox; `stream` names the stream that stores it.

    `trace` is that of the message that caused it. It is not in the table: a router that adopts the
    row of a dead router publishes it without.
    """

    session_id: UUID | None
    stream: str
    subject: str
    message_id: str
    payload: bytes
    trace: Trace | None = None


class WaitingRow(NamedTuple):
    """A message that waits for its turn; `details` and `source` are JSON text.

    `busy` is how it affects the turn that ran when it came: `queue` or `steer`, None for all
    others. `ready_in` is how long it must not be answered yet; None for at once.
    """

    session_id: UUID
    arrival: int
    session_key: str
    message_id: UUID
    author: str | None
    platform_message_id: str | None
    size_bytes: int
    content: str | None
    details: str
    source: str
    stored_at: datetime
    busy: str | None = None
    ready_in: timedelta | None = None
    awaits_files: bool = False


class MessageRow(NamedTuple):
    """One row of a transcript; `details` and `source` are JSON text.

    `row_id` is the id of the row, if another row had its place before.
    """

    session_id: UUID
    seq: int
    role: str
    content: str | None
    created_at: datetime
    id: UUID | None = None
    details: str | None = None
    author: str | None = None
    platform_message_id: str | None = None
    source: str | None = None
    turn_id: UUID | None = None
    reply_to: UUID | None = None
    part: int | None = None
    row_id: UUID | None = None


class SeenRow(NamedTuple):
    """One mark of the dedupe table; `session_id` is None if nothing was routed.

    `arrival` is `EARLY` if only edits of the message have come. Without a `fingerprint` every copy
    is a repeat.
    """

    digest: bytes
    session_id: UUID | None
    arrival: int | None
    fingerprint: int | None = None


class FirstCopy(NamedTuple):
    """The first event with a digest."""

    fingerprint: int
    session_id: UUID | None = None


EARLY: Final = -1


class WaitingChange(NamedTuple):
    """The content of a waiting message after an edit."""

    session_id: UUID
    arrival: int
    size_bytes: int
    content: str | None
    details: str


class RowChange(NamedTuple):
    """The content of a transcript row after an edit or a delete.

    `removal` is the number of the change that archived the row; 0 while it is in the transcript.
    """

    session_id: UUID
    seq: int
    content: str | None
    details: str
    state: str | None
    removal: int = 0


class ExpiringRow(NamedTuple):
    """A message whose content or return address is cleared at a time."""

    message_id: UUID
    part: Literal["content", "return_address"]
    session_id: UUID
    expires_at: datetime


class UnansweredTurn(NamedTuple):
    """A turn that ended without an answer; its messages are marked with the reason."""

    turn_id: UUID
    reason: Unanswered


class RoutedChange(NamedTuple):
    """A message of a stream agent that was edited or deleted after it was routed."""

    message_id: UUID
    session_id: UUID


class RevisionRow(NamedTuple):
    """The content of a transcript row before a change."""

    session_id: UUID
    platform_message_id: str
    message_id: UUID | None
    content: str | None
    attachments: str | None
    reason: str
    at: datetime


class EarlyRow(NamedTuple):
    """The newest edit of a message that has not come."""

    digest: bytes
    content: str | None
    attachments: str
    version: str | None
    event_id: str | None
    size_bytes: int


class DeadRow(NamedTuple):
    """A dead letter, with its body for the operator."""

    id: UUID
    stage: str
    reason: str
    log: str | None
    partition: int | None
    sequence: int | None
    stored_at: datetime | None
    subject: str | None
    session_id: UUID | None
    digest: bytes
    size_bytes: int
    detail: str | None
    body: bytes | None


class LateRow(NamedTuple):
    """A result that came after its turn had ended or moved to another attempt."""

    id: str
    session_id: UUID
    turn_id: UUID | None
    attempt: int | None
    reply_to: str | None
    body: bytes


class ErasedRow(NamedTuple):
    """A stream message to delete from the stream; without a time at once."""

    stream: str
    sequence: int
    stored_at: datetime
    due_at: datetime | None = None


class BusyArrival(NamedTuple):
    """A message that came while its session had a turn, and that does more than wait."""

    turn_id: UUID
    session: Session
    message: ResolvedMessage


class DebounceRow(NamedTuple):
    """A message that came while its session had a turn, and that delays the turn.

    `cap` is the longest delay of that turn in all.
    """

    turn_id: UUID
    span: timedelta
    cap: timedelta


class Control(NamedTuple):
    """A control message to the worker of a running turn, sent after the commit; may get lost."""

    subject: str
    payload: bytes


class TitleRow(NamedTuple):
    """The new title of a session; None removes it.

    `scope` is the set of sessions in which it is unique: those of an owner, or those of a key.
    """

    session_id: UUID
    title: str | None
    scope: str


@dataclass(slots=True)
class Used:
    """Usage that results report: counts and amounts to add, gauges to replace."""

    counts: Counter[str] = field(default_factory=Counter)
    costs: dict[str, Decimal] = field(default_factory=dict)
    gauges: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Effects:
    """Everything one transaction writes besides the sessions and lanes it loaded.

    Attributes:
        waiting_changes: Edits of waiting messages; the last one per message counts, as in
            `row_changes` and `early`.
        deleted_waiting: Session and arrival of messages that were deleted before their turn.
        routed_changes: Messages to replace on their stream, or to delete from it.
        unanswered: Turns that ended without an answer.
        answered_after_all: Messages of stream agents that were given up and have an answer now.
        early: Edits of messages that have not come, by digest.
        early_over: Digests whose early edits are obsolete.
        silenced: Session keys of bots that have just exceeded their budget.
        repaired_lanes: Session keys of lanes that pointed to another person's session.
        former_seen: Marks that routers of an earlier release look for; one may exist already.
        resumed: Marks of early edits, whose message has come or never will.
        new_deliveries: Outbound messages that now wait for an adapter.
        deliveries: Deliveries that receipts have changed.
        delivered_pieces: What the platforms call our messages.
        question_changes: Changes to questions of running turns, by turn.
        erased: Log messages to delete: of an erased person, or at the time they disappear.
        unavailable: How long agents expect to be unavailable.
        available: Agents that answered although a pause of them is recorded.
    """

    waiting: list[WaitingRow] = field(default_factory=list)
    messages: list[MessageRow] = field(default_factory=list)
    seen: list[SeenRow] = field(default_factory=list)
    former_seen: list[SeenRow] = field(default_factory=list)
    titles: list[TitleRow] = field(default_factory=list)
    new_turns: list[Turn] = field(default_factory=list)
    changed_turns: list[Turn] = field(default_factory=list)
    publications: list[Publication] = field(default_factory=list)
    dead: list[DeadRow] = field(default_factory=list)
    late: list[LateRow] = field(default_factory=list)
    busy_arrivals: list[BusyArrival] = field(default_factory=list)
    rests: list[DebounceRow] = field(default_factory=list)
    next_due: timedelta | None = None
    controls: list[Control] = field(default_factory=list)
    used: dict[UUID, Used] = field(default_factory=dict)
    waiting_changes: list[WaitingChange] = field(default_factory=list)
    deleted_waiting: list[tuple[UUID, int]] = field(default_factory=list)
    routed_changes: list[RoutedChange] = field(default_factory=list)
    unanswered: list[UnansweredTurn] = field(default_factory=list)
    answered_after_all: list[UUID] = field(default_factory=list)
    row_changes: list[RowChange] = field(default_factory=list)
    revisions: list[RevisionRow] = field(default_factory=list)
    early: list[EarlyRow] = field(default_factory=list)
    early_over: list[bytes] = field(default_factory=list)
    resumed: list[SeenRow] = field(default_factory=list)
    silenced: list[str] = field(default_factory=list)
    repaired_lanes: list[str] = field(default_factory=list)
    new_deliveries: list[NewDelivery] = field(default_factory=list)
    deliveries: dict[DeliveryKey, Delivery] = field(default_factory=dict)
    delivered_pieces: list[DeliveredPiece] = field(default_factory=list)
    question_changes: dict[UUID, QuestionChange] = field(default_factory=dict)
    erased: list[ErasedRow] = field(default_factory=list)
    unavailable: dict[str, timedelta] = field(default_factory=dict)
    available: set[str] = field(default_factory=set)
    expiring: list[ExpiringRow] = field(default_factory=list)
    counts: dict[tuple[str, ...], int] = field(default_factory=dict)

    def due_within(self, span: timedelta) -> None:
        """Record that something is due at this time after the commit."""
        if self.next_due is None or span < self.next_due:
            self.next_due = span

    def publish_event(self, verb: str, message_id: str, payload: bytes) -> None:
        """Publish an event about a session to subscribers."""
        subject = event_subject("session", verb)
        self.publications.append(Publication(None, "EVENTS", subject, message_id, payload))

    def trace(self, begin: int, trace: Trace | None) -> None:
        """Assign a trace, if there is one, to the publications from the one at `begin` on."""
        if trace is not None:
            for place in range(begin, len(self.publications)):
                self.publications[place] = self.publications[place]._replace(trace=trace)

    def use(self, session_id: UUID, result: ResultMessage) -> None:
        """Add what a result reports as used to the sums of its session."""
        if not (result.usage or result.costs or result.gauges):
            return
        used = self.used.setdefault(session_id, Used())
        used.counts.update(result.usage)
        for name, amount in result.costs.items():
            used.costs[name] = used.costs.get(name, Decimal(0)) + amount
        used.gauges |= result.gauges

    def count(self, what: Count, number: int = 1) -> None:
        """Add to a count; the metrics get it after the commit."""
        self.counts[what] = self.counts.get(what, 0) + number
