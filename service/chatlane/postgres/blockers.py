"""Find the connection that a transaction waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

if TYPE_CHECKING:
    from datetime import timedelta
    from uuid import UUID

    from chatlane.postgres.pool import Connection


class Blocker(NamedTuple):
    """A connection that holds a lock for which another connection waits.

    Attributes:
        pid: Process id of its backend.
        application: Its application name.
        session_id: The session whose row the waiting connection needs; None if it waits for
            another row.
    """

    pid: int
    application: str
    session_id: UUID | None


SHORTEN_WAIT_SQL: Final[LiteralString] = """
-- blockers: shorten the lock timeout of this transaction and return its backend
SELECT pg_backend_pid(), set_config('lock_timeout', $1, true)
"""


async def shorten_wait(connection: Connection, patience: timedelta) -> int:
    """Set the lock timeout of this transaction; returns the process id of its backend."""
    milliseconds = max(1, round(patience.total_seconds() * 1000))
    pid: int = await connection.fetchval(SHORTEN_WAIT_SQL, str(milliseconds))
    return pid


FIND_BLOCKER_SQL: Final[LiteralString] = """
-- blockers: the backend that holds the lock another one waits for, and the session of the row
SELECT blocking.pid, coalesce(activity.application_name, ''),
    (SELECT id FROM sessions WHERE ctid = (
        SELECT format('(%s,%s)', page, tuple)::tid FROM pg_locks
        WHERE pid = $1 AND locktype = 'tuple' AND relation = 'sessions'::regclass LIMIT 1))
FROM unnest(pg_blocking_pids($1)) AS blocking (pid)
LEFT JOIN pg_stat_activity AS activity USING (pid)
LIMIT 1
"""


async def find(connection: Connection, pid: int) -> Blocker | None:
    """Return the connection that a backend waits for; None if it does not wait.

    Args:
        connection: A connection other than the waiting one.
        pid: Process id of the waiting backend.
    """
    row = await connection.fetchrow(FIND_BLOCKER_SQL, pid)
    return Blocker(*row) if row else None
