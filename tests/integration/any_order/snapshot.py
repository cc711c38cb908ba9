"""What there is at one moment: the tables that matter, and what stands in the streams."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pydantic_core import from_json

from chatlane.domain.log import PartitionId
from tests.integration.any_order.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable

LIVE: Final = frozenset({"ready", "claimed"})
STREAMS: Final = ("OUTBOUND", "ROUTED", "TURNS", "EVENTS")

_SESSIONS: Final = """
SELECT id, session_key, agent, ended_at, active_turn, next_seq, seq_gaps, next_out_seq,
       parent_id, link_kind, revision FROM sessions ORDER BY started_at, id
"""
_LANES: Final = "SELECT session_key, session_id FROM lanes"
_TURNS: Final = """
SELECT id, session_id, agent, state, attempt, token, cancel, result_id, outcome, dispatch, rest,
       interruptions, unbegun,
       question ->> 'state' IS NOT DISTINCT FROM 'open' AND (question ->> 'attempt')::int = attempt
FROM turns ORDER BY created_at, id
"""
_WAITING: Final = """
SELECT session_id, arrival, message_id, session_key, content, platform_message_id,
       details #>> '{attachments,0,url}' FROM waiting
"""
_ROWS: Final = """
SELECT session_id, seq, CASE WHEN role = 'user' THEN id END, role, content, turn_id, reply_to,
       state, source::text,
       platform_message_id, details #>> '{attachments,0,url}',
       turn_id IS NULL AND (unanswered IS NOT NULL OR state = 'deleted') IS TRUE FROM messages
ORDER BY session_id, seq
"""
_ARCHIVE: Final = """
SELECT session_id, seq, CASE WHEN role = 'user' THEN id END, role, content, turn_id, reply_to,
       NULL, source::text,
       platform_message_id, details #>> '{attachments,0,url}', false FROM removed_messages
ORDER BY session_id, removal, seq
"""
# Whatever is of a session that is not there. A turn that nobody claimed says nothing of anybody.
_STRAYS: Final = """
SELECT name, session_id FROM (
    SELECT 'messages', session_id FROM messages
    UNION ALL SELECT 'removed_messages', session_id FROM removed_messages
    UNION ALL SELECT 'message_revisions', session_id FROM message_revisions
    UNION ALL SELECT 'waiting', session_id FROM waiting
    UNION ALL SELECT 'turns', session_id FROM turns WHERE source IS NOT NULL
    UNION ALL SELECT 'lanes', session_id FROM lanes
    UNION ALL SELECT 'late_results', session_id FROM late_results
) AS every (name, session_id)
WHERE NOT EXISTS (SELECT FROM sessions WHERE sessions.id = every.session_id)
"""
_OUTBOX: Final = "SELECT stream, subject, message_id, payload FROM outbox ORDER BY id"
_CURSORS: Final = "SELECT log, id, cursor, epoch FROM partitions"
_STEPS: Final = "SELECT DISTINCT turn_id FROM turn_steps"
_DEAD: Final = "SELECT reason FROM dead_letters"
_LATE: Final = "SELECT id FROM late_results"


class Session(NamedTuple):
    """A session as it stands."""

    id: UUID
    key: str
    agent: str
    ended_at: datetime | None
    active_turn: UUID | None
    next_seq: int
    gaps: int
    next_out_seq: int
    parent_id: UUID | None
    link_kind: str | None
    revision: int

    @property
    def is_branch(self) -> bool:
        """Whether it began as a copy of another one."""
        return self.parent_id is not None and self.link_kind == "branch"


class Turn(NamedTuple):
    """A turn as it stands."""

    id: UUID
    session_id: UUID
    agent: str
    state: str
    attempt: int
    token: str | None
    cancel: str | None
    result_id: str | None
    outcome: str | None
    dispatch: int
    rest: str | None
    interruptions: int
    unbegun: int
    asks: bool

    @property
    def is_parked(self) -> bool:
        """Whether it waits for an answer, and no worker has it."""
        return self.state == "ready" and self.rest == "parked"

    @property
    def is_live(self) -> bool:
        """Whether it holds its session."""
        return self.state in LIVE


class Waiting(NamedTuple):
    """A message that waits for a turn."""

    session_id: UUID
    arrival: int
    id: UUID
    key: str
    content: str | None
    mid: str | None
    file: str | None


class Row(NamedTuple):
    """A row of a transcript; copies in branches and rows of the agent have no id here.

    `is_closed`: A message that left its line without a turn.
    """

    session_id: UUID
    seq: int
    id: UUID | None
    role: str
    content: str | None
    turn_id: UUID | None
    reply_to: UUID | None
    state: str | None
    source: str | None
    mid: str | None
    file: str | None
    is_closed: bool


class Sent(NamedTuple):
    """A message that stands in a stream or still in the outbox."""

    subject: str
    id: str
    body: dict[str, Any]

    @property
    def session_id(self) -> UUID:
        """The session it is of."""
        return UUID(self.body["session_id"])


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything at one moment.

    Attributes:
        archive: Rows that were undone, or that a summary stands for.
        strays: What is of a session that is not there: the table, and the session.
        stored: What stands in each stream, in order.
        unsent: What of each stream is still in the outbox, in order.
        steps: The turns that have results of steps, or answers.
    """

    sessions: dict[UUID, Session]
    lanes: dict[str, UUID]
    turns: dict[UUID, Turn]
    waiting: list[Waiting]
    rows: list[Row]
    archive: list[Row]
    strays: list[tuple[str, UUID]]
    cursors: dict[PartitionId, tuple[int, int]]
    dead: list[str]
    late: set[str]
    stored: dict[str, list[Sent]]
    unsent: dict[str, list[Sent]]
    steps: set[UUID]

    @property
    def removed(self) -> set[UUID]:
        """The ids of all messages in the archive."""
        return {row.id for row in self.archive if row.id is not None}

    def of_stream(self, stream: str) -> dict[str, Sent]:
        """Return what was or will be published on a stream, each id once."""
        return {one.id: one for one in (*self.stored[stream], *self.unsent[stream])}


async def look(world: World) -> Snapshot:
    """Return everything as it is now; nobody else may be at work."""
    async with world.store.transaction() as connection:
        fetch = connection.fetch
        sessions = [Session(*row.values()) for row in await fetch(_SESSIONS)]
        turns = [Turn(*row.values()) for row in await fetch(_TURNS)]
        unsent: defaultdict[str, list[Sent]] = defaultdict(list)
        for stream, subject, message_id, payload in await fetch(_OUTBOX):
            unsent[stream].append(Sent(subject, message_id, from_json(payload)))
        return Snapshot(
            sessions={one.id: one for one in sessions},
            lanes={row[0]: row[1] for row in await fetch(_LANES)},
            turns={one.id: one for one in turns},
            waiting=sorted(Waiting(*row.values()) for row in await fetch(_WAITING)),
            rows=[Row(*row.values()) for row in await fetch(_ROWS)],
            archive=[Row(*row.values()) for row in await fetch(_ARCHIVE)],
            strays=[tuple(row.values()) for row in await fetch(_STRAYS)],
            cursors={
                PartitionId(row[0], row[1]): (row[2], row[3]) for row in await fetch(_CURSORS)
            },
            dead=[row[0] for row in await fetch(_DEAD)],
            late={row[0] for row in await fetch(_LATE)},
            stored={one: _sent(await world.stored(one)) for one in STREAMS},
            unsent=unsent,
            steps={row[0] for row in await fetch(_STEPS)},
        )


def _sent(stored: "Iterable[tuple[str, bytes]]") -> list[Sent]:
    found = [(subject, from_json(payload)) for subject, payload in stored]
    return [Sent(subject, body["id"], body) for subject, body in found]
