"""Pauses of agents that are unavailable; agents that answer have no row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.states import AgentPause
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import timedelta

    from chatlane.postgres.pool import Connection

LOCK_PAUSES_SQL: Final[LiteralString] = """
-- agent_pauses: lock after the turns
SELECT agent, greatest(until - clock_timestamp(), interval '0'), trial,
       greatest(trial_until - clock_timestamp(), interval '0')
FROM agent_pauses WHERE agent = ANY($1::text[]) ORDER BY agent FOR UPDATE
"""


async def lock(connection: Connection, agents: Iterable[str]) -> dict[str, AgentPause]:
    """Lock and return the pauses of these agents by name."""
    rows = await connection.fetch(LOCK_PAUSES_SQL, sorted(agents))
    return {row[0]: AgentPause(*row.values()) for row in rows}


UPDATE_TRIALS_SQL: Final[LiteralString] = """
-- agent_pauses: the turns that try agents whose pauses are locked
UPDATE agent_pauses SET trial = new.trial, trial_until = clock_timestamp() + new.trial_left
FROM unnest($1::text[], $2::uuid[], $3::interval[]) AS new (agent, trial, trial_left)
WHERE agent_pauses.agent = new.agent
"""


async def update_trials(connection: Connection, pauses: Iterable[AgentPause]) -> None:
    """Write which turns try the agents; the pauses are locked."""
    rows = [(pause.agent, pause.trial, pause.trial_left) for pause in pauses]
    if rows:
        await connection.execute(UPDATE_TRIALS_SQL, *columns(rows, 3))


PAUSE_SQL: Final[LiteralString] = """
-- agent_pauses: agents are unavailable; a longer pause stays
INSERT INTO agent_pauses AS pauses (agent, until, trial_until)
SELECT agent, clock_timestamp() + span, clock_timestamp()
FROM unnest($1::text[], $2::interval[]) AS new (agent, span) ORDER BY agent
ON CONFLICT (agent) DO UPDATE
SET until = greatest(pauses.until, excluded.until), trial = NULL, trial_until = excluded.trial_until
"""


async def pause(connection: Connection, spans: Mapping[str, timedelta]) -> None:
    """Record that agents are unavailable, and for how long."""
    if spans:
        await connection.execute(PAUSE_SQL, *columns(spans.items(), 2))


END_PAUSES_SQL: Final[LiteralString] = """
-- agent_pauses: agents answer again; attempts that began before a pause do not end it
DELETE FROM agent_pauses WHERE agent IN (
    SELECT agent FROM agent_pauses
    WHERE agent = ANY($1::text[]) AND until <= clock_timestamp() ORDER BY agent FOR UPDATE)
RETURNING agent
"""

WAKE_SQL: Final[LiteralString] = """
-- turns: those that waited for an agent are due; the sweep finds those that are locked later
UPDATE turns SET due_at = clock_timestamp()
WHERE id IN (
    SELECT id FROM turns
    WHERE agent = ANY($1::text[]) AND state = 'ready' AND waits_since IS NOT NULL
    ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
"""


async def end(connection: Connection, agents: Iterable[str]) -> bool:
    """End the pauses of agents that answer, and return whether turns may have waited for them."""
    ended = await connection.fetch(END_PAUSES_SQL, sorted(agents))
    if ended:
        await connection.execute(WAKE_SQL, [row[0] for row in ended])
    return bool(ended)
