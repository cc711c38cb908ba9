"""Lanes: the session that each session key leads to.

Lanes are read without a lock. The lock of the session protects a binding: a transaction that
rebinds a lane ends or moves its session first, under that lock. A reader that waited for the
session then finds it ended and starts again. The write itself is a compare-and-set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.states import Lane
from chatlane.postgres.pool import columns, expect_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from chatlane.postgres.pool import Connection


FIND_LANES_SQL: Final[LiteralString] = """
-- lanes: the existing lanes of a batch
SELECT session_key, session_id FROM lanes WHERE session_key = ANY($1::text[])
"""


async def find(connection: Connection, keys: Iterable[str]) -> dict[str, Lane]:
    """Return the existing lanes by session key."""
    wanted = list(keys)
    rows = await connection.fetch(FIND_LANES_SQL, wanted) if wanted else []
    return {row[0]: Lane(row[0], row[1], bound_to=row[1]) for row in rows}


FIND_KEYS_SQL: Final[LiteralString] = """
-- lanes: the keys of the lanes that point to a session
SELECT session_key FROM lanes WHERE session_id = $1
"""


async def find_keys_of(connection: Connection, session_id: UUID) -> set[str]:
    """Return the keys of the lanes that lead to a locked session."""
    return {row[0] for row in await connection.fetch(FIND_KEYS_SQL, session_id)}


RESOLVE_LANE_SQL: Final[LiteralString] = """
-- lanes: the lane of a current or old key
SELECT session_key, session_id FROM lanes WHERE session_key = coalesce(
    (SELECT session_key FROM lane_aliases WHERE alias = $1), $1)
"""


async def find_by_any_key(connection: Connection, key: str) -> Lane | None:
    """Return the lane of a current or old session key, or None if there is none."""
    row = await connection.fetchrow(RESOLVE_LANE_SQL, key)
    return None if row is None else Lane(row[0], row[1], bound_to=row[1])


FIND_OF_CHAT_SQL: Final[LiteralString] = """
-- lanes: the lane of a chat, also of one whose workspace is not named
SELECT session_key, session_id FROM lanes
WHERE session_key = coalesce((SELECT session_key FROM lane_aliases WHERE alias = $1), $1)
   OR (session_key >= $1 || ':scope=' AND session_key < $1 || ':scope>')
ORDER BY session_key LIMIT 1
"""


async def find_of_chat(connection: Connection, key: str) -> Lane | None:
    """Return the lane of a chat with one conversation for all its people.

    Args:
        connection: A connection.
        key: Key of the chat, which may lack its scope.
    """
    row = await connection.fetchrow(FIND_OF_CHAT_SQL, key)
    return None if row is None else Lane(row[0], row[1], bound_to=row[1])


NOTE_BUSY_SQL: Final[LiteralString] = """
-- lanes: mark the lanes that get a notice about a running turn, at most once in 30 s each
UPDATE lanes SET noted_at = clock_timestamp()
FROM unnest($1::text[], $2::uuid[]) AS want (session_key, turn_id)
WHERE lanes.session_key = want.session_key
  AND (lanes.noted_at IS NULL OR lanes.noted_at < clock_timestamp() - interval '30 s')
  AND (SELECT state FROM turns WHERE turns.id = want.turn_id) = 'claimed'
RETURNING lanes.session_key
"""


async def note_busy(connection: Connection, wanted: Sequence[tuple[str, UUID]]) -> set[str]:
    """Return the keys of lanes whose users get a notice that a worker runs their turn."""
    rows = await connection.fetch(NOTE_BUSY_SQL, *columns(wanted, 2))
    return {row[0] for row in rows}


INSERT_LANES_SQL: Final[LiteralString] = """
-- lanes: insert new lanes; a conflict means that another transaction was first
INSERT INTO lanes (session_key, session_id)
SELECT session_key, session_id FROM unnest($1::text[], $2::uuid[]) AS new (session_key, session_id)
ORDER BY session_key
ON CONFLICT (session_key) DO NOTHING
"""

REBIND_LANES_SQL: Final[LiteralString] = """
-- lanes: point lanes to other sessions, if they have not changed since they were read
UPDATE lanes SET session_id = new.session_id
FROM unnest($1::text[], $2::uuid[], $3::uuid[]) AS new (session_key, session_id, bound_to)
WHERE lanes.session_key = new.session_key AND lanes.session_id = new.bound_to
"""


async def write(connection: Connection, lanes: Iterable[Lane]) -> None:
    """Write the lanes whose session changed.

    Raises:
        SupersededError: Another transaction bound one of them meanwhile.
    """
    changed = sorted(
        (lane for lane in lanes if lane.session_id != lane.bound_to),
        key=lambda lane: lane.session_key,
    )
    new = [lane for lane in changed if lane.bound_to is None]
    moved = [lane for lane in changed if lane.bound_to is not None]
    if new:
        rows = columns(((lane.session_key, lane.session_id) for lane in new), 2)
        status = await connection.execute(INSERT_LANES_SQL, *rows)
        expect_rows(status, new, "lanes")
    if moved:
        rows = columns(((lane.session_key, lane.session_id, lane.bound_to) for lane in moved), 3)
        status = await connection.execute(REBIND_LANES_SQL, *rows)
        expect_rows(status, moved, "lanes")
