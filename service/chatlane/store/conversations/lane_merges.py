"""Merge conversations that turned out to be the same: change their lanes and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.errors import SupersededError
from chatlane.postgres.pool import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.postgres.pool import Connection


class LaneRow(NamedTuple):
    """A session key of a chat, taken from a lane or a session, and the session id."""

    session_key: str
    session_id: UUID


FIND_SESSIONS_OF_CHATS_SQL: Final[LiteralString] = """
-- lanes → sessions: the sessions of chats, by the prefixes of their keys: threads and people
-- included, and ended sessions only if they can still get an answer
SELECT lanes.session_key, lanes.session_id
FROM unnest($1::text[]) AS want (prefix)
JOIN lanes ON lanes.session_key = want.prefix
    -- ";" is the character after ":", so this is the range of all keys with the prefix and a colon
    OR (lanes.session_key > want.prefix || ':' AND lanes.session_key < want.prefix || ';')
UNION
SELECT its.session_key, its.id
FROM unnest($1::text[]) AS want (prefix)
JOIN sessions AS its ON its.session_key = want.prefix
    OR (its.session_key > want.prefix || ':' AND its.session_key < want.prefix || ';')
WHERE its.ended_at IS NULL OR its.active_turn IS NOT NULL OR its.ended_at > $2
"""


async def sessions_of_chats(
    connection: Connection, prefixes: Iterable[str], ended_since: datetime
) -> list[LaneRow]:
    """Return the sessions of chats, given the part of their keys up to the chat.

    Omits sessions without a turn that ended before `ended_since`.
    """
    rows = await connection.fetch(FIND_SESSIONS_OF_CHATS_SQL, list(prefixes), ended_since)
    return [LaneRow(*row.values()) for row in rows]


RENAME_LANE_SQL: Final[LiteralString] = """
-- lanes: move a lane, its session and its pending messages to the older key
WITH line AS (
    UPDATE waiting SET session_key = $2 WHERE session_id = $3 AND session_key = $1
), old_keys AS (
    UPDATE lane_aliases SET session_key = $2 WHERE session_key = $1
), session AS (
    UPDATE sessions SET session_key = $2 WHERE id = $3 AND session_key = $1
)
UPDATE lanes SET session_key = $2 WHERE session_key = $1 AND session_id = $3
"""


async def rename_lane(connection: Connection, lane: LaneRow, older_key: str) -> None:
    """Move a lane to another key, which no lane has yet.

    Raises:
        SupersededError: The lane leads to another session by now.
    """
    status = await connection.execute(RENAME_LANE_SQL, lane.session_key, older_key, lane.session_id)
    _expect_one(status)


def _expect_one(status: str) -> None:
    if not status.endswith(" 1"):
        raise SupersededError("lanes")


MOVE_WAITING_SQL: Final[LiteralString] = """
-- waiting: append the pending messages of one session to those of another
WITH moved AS (
    DELETE FROM waiting WHERE session_id = $1 RETURNING *
)
INSERT INTO waiting (
    session_id, arrival, session_key, message_id, author, platform_message_id, size_bytes,
    content, details, source, stored_at, busy, ready_at, awaits_files)
SELECT $2, $4 - 1 + row_number() OVER (ORDER BY arrival), $3, message_id, author,
       platform_message_id, size_bytes, content, details, source, stored_at, busy,
       ready_at, awaits_files
FROM moved
"""


async def move_waiting(
    connection: Connection,
    session_id: UUID,
    to_session: UUID,
    session_key: str,
    first_arrival: int,
) -> int:
    """Move waiting messages between two locked sessions; returns how many."""
    status = await connection.execute(
        MOVE_WAITING_SQL, session_id, to_session, session_key, first_arrival
    )
    return count_of(status)


DELETE_LANE_SQL: Final[LiteralString] = """
-- lanes: delete a lane that was created under the newer id
WITH old_keys AS (
    UPDATE lane_aliases SET session_key = $2 WHERE session_key = $1
)
DELETE FROM lanes WHERE session_key = $1 AND session_id = $3
  AND EXISTS (SELECT FROM lanes AS home WHERE home.session_key = $2 AND home.session_id = $4)
"""


async def delete_lane(connection: Connection, lane: LaneRow, home: LaneRow) -> None:
    """Delete a lane whose conversation continues in another lane.

    Raises:
        SupersededError: One of them leads to another session by now.
    """
    status = await connection.execute(
        DELETE_LANE_SQL, lane.session_key, home.session_key, lane.session_id, home.session_id
    )
    _expect_one(status)


READDRESS_SQL: Final[LiteralString] = """
-- messages: send answers that are still to come to the new id of the chat
WITH line AS (
    UPDATE waiting SET source = jsonb_set(source, '{chat,id}', to_jsonb($3::text))
    WHERE session_id = ANY($1::uuid[]) AND source #>> '{chat,id}' = ANY($2::text[])
), live AS (
    UPDATE turns SET source = jsonb_set(source, '{chat,id}', to_jsonb($3::text))
    WHERE session_id = ANY($1::uuid[]) AND state IN ('ready', 'claimed')
      AND source #>> '{chat,id}' = ANY($2::text[])
)
-- Of a routed message that a `stream` agent has not answered; claimed rows have no answer of
-- their own, so all of a turn's rows change with it.
UPDATE messages SET source = jsonb_set(source, '{chat,id}', to_jsonb($3::text))
WHERE session_id = ANY($1::uuid[]) AND role = 'user' AND source #>> '{chat,id}' = ANY($2::text[])
  AND seq > (SELECT max(next_seq) FROM sessions WHERE sessions.id = messages.session_id) - 1000
"""


async def update_addresses(
    connection: Connection, sessions: Sequence[UUID], before: Sequence[str], new: str
) -> None:
    """Set the chat's new id as the address of everything unanswered in these sessions.

    Args:
        before: Former ids of the chat.
    """
    await connection.execute(READDRESS_SQL, sessions, before, new)
