"""Run the queries of a reconciliation and of the gauges, each of them cheap and bounded.

A comparison scans one batch of each large table. The single row of `reconciliation` stores where
the scan continues, and when the next comparison may begin.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

# Count at most so many findings of one kind: more are just as bad and cost more to count.
MOST_COUNTED: Final = 1000
_SESSIONS_AT_ONCE: Final = 2000
_LANES_AT_ONCE: Final = 1000
_START: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Round:
    """One comparison.

    Attributes:
        looked_at: Start time of the comparison; also identifies it.
        found: Findings of the previous comparison.
        waiting_after: The scan of waiting messages continues after this session.
        lanes_after: The scan of lanes continues after this key.
        lanes_astray: Number of stray lanes that this scan has found so far.
    """

    looked_at: datetime
    found: Mapping[str, int]
    waiting_after: UUID
    lanes_after: str
    lanes_astray: int


BEGIN_ROUND_SQL: Final[LiteralString] = """
-- reconciliation: begin a comparison if the last one is old enough
UPDATE reconciliation SET looked_at = clock_timestamp()
WHERE looked_at <= clock_timestamp() - $1::interval
RETURNING looked_at, found, waiting_after, lanes_after, lanes_astray
"""


async def begin(connection: "PoolConnectionProxy", every: timedelta) -> Round | None:
    """Begin a comparison, or return None if the next one is not due yet."""
    row = await connection.fetchrow(BEGIN_ROUND_SQL, every)
    if row is None:
        return None
    looked_at, found, *walks = row.values()
    return Round(looked_at, from_json(found), *walks)


END_ROUND_SQL: Final[LiteralString] = """
-- reconciliation: store the findings, unless a newer comparison has begun
UPDATE reconciliation
SET found = $2::jsonb, waiting_after = $3, lanes_after = $4, lanes_astray = $5
WHERE looked_at = $1
"""


async def end(connection: "PoolConnectionProxy", comparison: Round) -> None:
    """Store the findings of a comparison and the positions where the next one continues."""
    await connection.execute(
        END_ROUND_SQL,
        comparison.looked_at,
        to_json(comparison.found).decode(),
        comparison.waiting_after,
        comparison.lanes_after,
        comparison.lanes_astray,
    )


READ_FOUND_SQL: Final[LiteralString] = """
-- reconciliation: the findings of the last comparison
SELECT found FROM reconciliation
"""


async def read_found(connection: "PoolConnectionProxy") -> dict[str, int]:
    """Return the number of findings of each kind; kinds without findings are absent."""
    found: dict[str, int] = from_json(await connection.fetchval(READ_FOUND_SQL))
    return found


OLD_OUTBOX_SQL: Final[LiteralString] = """
-- reconciliation: the number of old outbox rows; ids are nearly in the order of time
SELECT count(*) FROM (SELECT created_at FROM outbox ORDER BY id LIMIT $2) AS head
WHERE created_at < clock_timestamp() - $1::interval
"""


async def count_unpublished(connection: "PoolConnectionProxy", age: timedelta) -> int:
    """Return the number of outbox rows older than `age`, up to `MOST_COUNTED`."""
    count: int = await connection.fetchval(OLD_OUTBOX_SQL, age, MOST_COUNTED)
    return count


OVERDUE_TURNS_SQL: Final[LiteralString] = """
-- reconciliation: the number of live turns that are long overdue
SELECT count(*) FROM (
    SELECT FROM turns
    WHERE state IN ('ready', 'claimed') AND due_at < (SELECT clock_timestamp() - $1::interval)
    ORDER BY due_at LIMIT $2) AS late
"""


async def count_overdue(connection: "PoolConnectionProxy", age: timedelta) -> int:
    """Return the number of live turns overdue for longer than `age`, up to `MOST_COUNTED`."""
    count: int = await connection.fetchval(OVERDUE_TURNS_SQL, age, MOST_COUNTED)
    return count


UNANNOUNCED_SQL: Final[LiteralString] = """
-- reconciliation: ready turns of these agents that are announced again only later; not those that
-- pause between two attempts (no token) or that are delayed on purpose
SELECT id FROM turns
WHERE state IN ('ready', 'claimed') AND due_at > clock_timestamp() + $2::interval
    AND state = 'ready' AND agent = ANY($1::text[])
    AND (attempt = 0 OR token IS NOT NULL) AND rest IS DISTINCT FROM 'resting'
    AND created_at < clock_timestamp() - $2::interval
ORDER BY due_at DESC LIMIT $3
"""


async def find_unannounced(
    connection: "PoolConnectionProxy", agents: Iterable[str], age: timedelta
) -> list[UUID]:
    """Return ready turns of agents whose workers have no notification to read.

    Args:
        connection: In a transaction.
        agents: Agents without an unread notification.
        age: Younger turns are skipped, and turns that are announced again within this time.
    """
    rows = await connection.fetch(UNANNOUNCED_SQL, sorted(agents), age, MOST_COUNTED)
    return [row[0] for row in rows]


HURRY_TURNS_SQL: Final[LiteralString] = """
-- reconciliation: make ready turns due, so that they are announced again
WITH mine AS (
    SELECT id FROM turns
    WHERE id = ANY($1::uuid[]) AND state = 'ready' AND due_at > clock_timestamp()
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE turns SET due_at = clock_timestamp() FROM mine WHERE turns.id = mine.id
"""


async def hurry(connection: "PoolConnectionProxy", ids: Iterable[UUID]) -> int:
    """Make ready turns due now; return their number."""
    status = await connection.execute(HURRY_TURNS_SQL, sorted(ids))
    return int(status.rpartition(" ")[2])


STRANDED_SQL: Final[LiteralString] = """
-- reconciliation: sessions without a turn whose oldest waiting message is old; one index probe for
-- each session, for any number of waiting messages
WITH RECURSIVE line (session_id, place) AS (
    (SELECT session_id, 1 FROM waiting WHERE session_id > $1 ORDER BY session_id LIMIT 1)
    UNION ALL
    SELECT (SELECT waiting.session_id FROM waiting WHERE waiting.session_id > line.session_id
            ORDER BY waiting.session_id LIMIT 1), place + 1
    FROM line WHERE line.session_id IS NOT NULL AND place < $3
)
SELECT array_agg(session_id) FILTER (WHERE
           NOT EXISTS (SELECT FROM turns WHERE turns.session_id = line.session_id
                       AND state IN ('ready', 'claimed'))
           AND (SELECT stored_at FROM waiting WHERE waiting.session_id = line.session_id
                ORDER BY arrival LIMIT 1) < clock_timestamp() - $2::interval),
       (array_agg(session_id ORDER BY place DESC))[1]
FROM line
"""


async def find_stranded(
    connection: "PoolConnectionProxy", comparison: Round, age: timedelta
) -> tuple[list[UUID], Round]:
    """Scan the next sessions; return those with old waiting messages but no turn."""
    [(stranded, last)] = await connection.fetch(
        STRANDED_SQL, comparison.waiting_after, age, _SESSIONS_AT_ONCE
    )
    return stranded or [], replace(comparison, waiting_after=last or _START)


class Stranded(NamedTuple):
    """The oldest waiting message of a session without a turn."""

    session_id: UUID
    message_id: UUID
    stored_at: datetime


CONFIRM_STRANDED_SQL: Final[LiteralString] = """
-- reconciliation: the oldest waiting message of locked sessions without a turn
SELECT want.id, head.message_id, head.stored_at
FROM unnest($1::uuid[]) AS want (id)
CROSS JOIN LATERAL (
    SELECT message_id, stored_at FROM waiting
    WHERE waiting.session_id = want.id ORDER BY arrival LIMIT 1
) AS head
WHERE NOT EXISTS (SELECT FROM turns WHERE turns.session_id = want.id
                  AND state IN ('ready', 'claimed'))
ORDER BY want.id
"""


async def confirm_stranded(
    connection: "PoolConnectionProxy", locked: Iterable[UUID]
) -> list[Stranded]:
    """Return the locked sessions that still have waiting messages but no turn."""
    rows = await connection.fetch(CONFIRM_STRANDED_SQL, sorted(locked))
    return [Stranded(*row.values()) for row in rows]


LANES_ASTRAY_SQL: Final[LiteralString] = """
-- reconciliation: the next lanes, and the number that point to no session
WITH piece AS (
    SELECT session_key, session_id FROM lanes WHERE session_key > $1
    ORDER BY session_key LIMIT $2
)
SELECT count(*) FILTER (
           WHERE NOT EXISTS (SELECT FROM sessions WHERE sessions.id = piece.session_id)),
       count(*), max(session_key)
FROM piece
"""


async def count_lanes_astray(
    connection: "PoolConnectionProxy", comparison: Round, kind: str
) -> Round:
    """Scan the next lanes; keep the count of a complete scan until the next scan completes.

    Args:
        connection: In a transaction.
        comparison: The comparison, with the position of the scan.
        kind: Kind of finding for a lane whose session does not exist.
    """
    [(astray, walked, last)] = await connection.fetch(
        LANES_ASTRAY_SQL, comparison.lanes_after, _LANES_AT_ONCE
    )
    so_far = comparison.lanes_astray + astray
    if walked < _LANES_AT_ONCE:
        found = {**comparison.found, kind: so_far}
        return replace(comparison, found=found, lanes_after="", lanes_astray=0)
    found = {**comparison.found, kind: max(so_far, comparison.found.get(kind, 0))}
    return replace(comparison, found=found, lanes_after=last, lanes_astray=so_far)


# Figures of the whole service that operators watch; read without locks.


class LiveTurns(NamedTuple):
    """The live turns of an agent in one state.

    Attributes:
        state: ready, claimed, overdue (claimed under a lease that ended) or resting (not announced
            to workers yet).
        oldest_seconds: Age of the oldest of them.
        workers: Number of names of workers that hold them.
    """

    agent: str
    state: str
    number: int
    oldest_seconds: float
    workers: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one sample.

    Attributes:
        unowned: By log, the number of partitions without a valid lease.
        partitions: By log, the number of partitions; 0 while the log is read as a whole.
        outbox_oldest_seconds: Age of the oldest outbox row; 0 if there is none.
    """

    turns: tuple[LiveTurns, ...]
    unowned: dict[str, int]
    partitions: dict[str, int]
    outbox_oldest_seconds: float


LIVE_TURNS_SQL: Final[LiteralString] = """
-- survey: live turns by agent and state, from the partial index that holds no others
SELECT agent, state, count(*),
       extract(epoch FROM clock_timestamp() - min(created_at))::float8, count(DISTINCT worker)
FROM (
    SELECT agent, created_at, worker,
           CASE WHEN state = 'claimed' AND due_at < clock_timestamp() THEN 'overdue'
                -- It is not announced yet, so its age is no fault of the workers.
                WHEN state = 'ready' AND rest IN ('resting', 'parked') THEN rest
                ELSE state END AS state
    FROM turns WHERE state IN ('ready', 'claimed') AND due_at > '-infinity'
) AS live
GROUP BY agent, state ORDER BY agent, state
"""

UNOWNED_SQL: Final[LiteralString] = """
-- survey: partitions without a valid lease, and all partitions
SELECT log, count(*) FILTER (WHERE owner IS NULL OR lease_until < clock_timestamp()),
       count(*) FILTER (WHERE id >= 0)
FROM partitions GROUP BY log ORDER BY log
"""

OUTBOX_OLDEST_SQL: Final[LiteralString] = """
-- survey: the age of the oldest outbox row
SELECT extract(epoch FROM clock_timestamp() - created_at)::float8
FROM outbox ORDER BY id LIMIT 1
"""


async def sample(connection: "PoolConnectionProxy") -> Figures:
    """Read the current figures; this touches live turns and small tables only."""
    turns = await connection.fetch(LIVE_TURNS_SQL)
    unowned = await connection.fetch(UNOWNED_SQL)
    oldest: float | None = await connection.fetchval(OUTBOX_OLDEST_SQL)
    return Figures(
        turns=tuple(LiveTurns(*row.values()) for row in turns),
        unowned={row[0]: row[1] for row in unowned},
        partitions={row[0]: row[2] for row in unowned},
        outbox_oldest_seconds=oldest or 0.0,
    )
