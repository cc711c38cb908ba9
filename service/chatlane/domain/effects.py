"""What a decision wants written: rows by table, in the order they were decided.

The store writes each list with one statement; the order of `publications` is the order on
the wire.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta
    from uuid import UUID

    from chatlane.domain.counts import Count
    from chatlane.domain.log import Trace
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.source import Source
    from chatlane_schemas.transcripts import Unanswered


def without_nulls(values: Mapping[str, object]) -> str:
    """Return an object as JSON text, without the names whose value is None."""
    kept = {name: value for name, value in values.items() if value is not None}
    return to_json(kept).decode()


class Publication(NamedTuple):
    """One row of the outbox; `stream` names the stream that stores it.

    `trace` is that of the message it follows from. It is not in the table: who adopts the row of
    a dead router publishes it without.
    """

    session_id: UUID | None
    stream: str
    subject: str
    message_id: str
    payload: bytes
    trace: Trace | None = None


class WaitingRow(NamedTuple):
    """A message that waits for its turn; `details` and `source` are JSON text.

    `busy` is how it met the turn that ran when it came: `queue` or `steer`, None for all others.
    `ready_in` is how long it is not to be answered yet; None for at once.
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
    """One row of a transcript; `details` and `source` are JSON text."""

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


class SeenRow(NamedTuple):
    """One mark of the dedupe table; `session_id` is None where nothing was routed.

    `arrival` is `EARLY` where the message has not come, and only edits of it have.
    """

    digest: bytes
    session_id: UUID | None
    arrival: int | None


EARLY: Final = -1


class WaitingChange(NamedTuple):
    """What a waiting message says after an edit."""

    session_id: UUID
    arrival: int
    size_bytes: int
    content: str | None
    details: str


class RowChange(NamedTuple):
    """What a row of a transcript says after an edit or a delete."""

    session_id: UUID
    seq: int
    content: str | None
    details: str
    state: str | None


class UnansweredTurn(NamedTuple):
    """A turn that ended without an answer; its messages are marked with the reason."""

    turn_id: UUID
    reason: Unanswered


class RoutedChange(NamedTuple):
    """A message of a stream agent that was edited or deleted after it was routed."""

    message_id: UUID
    session_id: UUID


class RevisionRow(NamedTuple):
    """What a row of a transcript said until it was changed."""

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
    """A message set aside, with its body for the operator."""

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
    """A result that came after its turn had gone on without it."""

    id: str
    session_id: UUID
    turn_id: UUID | None
    attempt: int | None
    reply_to: str | None
    body: bytes


class ErasedRow(NamedTuple):
    """A message of a stream that is to be deleted there, for its person was erased."""

    stream: str
    sequence: int
    stored_at: datetime


class Meeting(NamedTuple):
    """A message that came while its session had a turn, and was to do more than wait.

    Attributes:
        busy: What it was to do.
        note: What its chat is to be told, if a worker has the turn.
        digest: Of the message: what follows from it is named by it.
    """

    turn_id: UUID
    session: Session
    session_key: str
    agent: str
    busy: str
    note: str
    source: Source
    stored_at: datetime
    digest: bytes


class Rest(NamedTuple):
    """A message that came while its session had a turn, which is to rest for it, too.

    `cap` is how long that turn may rest in all.
    """

    turn_id: UUID
    span: timedelta
    cap: timedelta


class Control(NamedTuple):
    """What the worker of a running turn is told once it is committed; may get lost."""

    subject: str
    payload: bytes


class TitleRow(NamedTuple):
    """The title a session has from now on; None for none.

    `scope` names among whose sessions it is the only one: an owner's, or those of a key.
    """

    session_id: UUID
    title: str | None
    scope: str


@dataclass(slots=True)
class Effects:
    """Everything one transaction writes besides the sessions and lanes it loaded.

    Attributes:
        waiting_changes: Edits of what waits; of one message the last counts, as in `row_changes`
            and `early`.
        deleted_waiting: Session and arrival of messages that were deleted before their turn.
        routed_changes: Messages that their stream is to say otherwise, or not at all.
        unanswered: Turns that ended without an answer.
        answered_after_all: Messages of stream agents that were given up and have an answer now.
        early: Edits of messages that have not come, by digest.
        early_over: Digests whose early edits are of no more use.
        silenced: Session keys of bots that have said too much just now.
        repaired_lanes: Session keys of lanes that led to another person's session.
        former_seen: Marks that routers of an earlier release look for; one may be there.
        resumed: Marks of early edits, whose message has come or never will.
        erased: Messages of logs that had no effect, because their person was erased.
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
    meetings: list[Meeting] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    next_due: timedelta | None = None
    controls: list[Control] = field(default_factory=list)
    used: dict[UUID, Counter[str]] = field(default_factory=dict)
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
    erased: list[ErasedRow] = field(default_factory=list)
    counts: dict[tuple[str, ...], int] = field(default_factory=dict)

    def due_within(self, span: timedelta) -> None:
        """Note that something is to be looked at so long after the commit."""
        if self.next_due is None or span < self.next_due:
            self.next_due = span

    def trace(self, begin: int, trace: Trace | None) -> None:
        """Let publications from the one at `begin` on belong to a trace, if there is one."""
        if trace is not None:
            for place in range(begin, len(self.publications)):
                self.publications[place] = self.publications[place]._replace(trace=trace)

    def use(self, session_id: UUID, usage: Mapping[str, int]) -> None:
        """Add what a result reported to the sums of its session."""
        if usage:
            self.used.setdefault(session_id, Counter()).update(usage)

    def count(self, what: Count, number: int = 1) -> None:
        """Add to a count; the metrics learn of it once the transaction is committed."""
        self.counts[what] = self.counts.get(what, 0) + number
