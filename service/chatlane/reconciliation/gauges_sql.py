"""Read the figures of the whole service that operators watch, without locks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


class LiveTurns(NamedTuple):
    """The live turns of an agent in one state.

    Attributes:
        state: ready, claimed, overdue (claimed under a lease that ended) or resting (not announced
            to workers yet).
        oldest_seconds: Age of the oldest of them.
    """

    agent: str
    state: str
    number: int
    oldest_seconds: float


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
       extract(epoch FROM clock_timestamp() - min(created_at))::float8
FROM (
    SELECT agent, created_at,
           CASE WHEN state = 'claimed' AND due_at < clock_timestamp() THEN 'overdue'
                -- It is not announced yet, so its age is no fault of the workers.
                WHEN rest = 'resting' THEN 'resting'
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
