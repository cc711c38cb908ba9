"""Members of rooms, and the shared sessions that they may read.

A member is an id together with the identity that held it when the adapter reported the room. The
member may read only while the identity still holds the id: neither the next holder of the id nor an
identity that the id was split from sees anything before the next report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.addressing.alias_rows import chat_alias
from chatlane.domain.addressing.rooms import account_of_room
from chatlane.postgres.pool import columns, count_of
from chatlane.store.addressing import identities

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime, timedelta
    from uuid import UUID

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.people import Person

MOST_SESSIONS: Final = 1000
"""The shared sessions that a person sees at most: the newest ones."""

FIND_ROOMS_SQL: Final[LiteralString] = """
-- room_members → room_reports: the rooms that identities were reported in, and until now
SELECT room, chat, form, owner, clock_timestamp() AS now
FROM room_members JOIN room_reports USING (room)
WHERE owner = ANY($1::text[]) AND until > clock_timestamp()
"""

FIND_SESSIONS_SQL: Final[LiteralString] = """
-- aliases → sessions: the newest shared sessions of rooms. A chat that has, or had, another id is
-- left out: its sessions may have words of a chat with other members
SELECT its.id
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS want (room, platform, account, chat)
CROSS JOIN LATERAL (
    SELECT id FROM sessions WHERE sessions.room = want.room AND owner IS NULL
    ORDER BY id DESC LIMIT $5
) AS its
WHERE NOT EXISTS (
    SELECT FROM aliases WHERE aliases.platform = want.platform AND aliases.account = want.account
      AND kind = 'chat' AND alias = want.chat)
  AND NOT EXISTS (
    SELECT FROM aliases WHERE aliases.platform = want.platform AND aliases.account = want.account
      AND kind = 'chat' AND canonical = want.chat)
ORDER BY its.id DESC LIMIT $5
"""


class RoomReads:
    """Finds the sessions that people may read as members of rooms.

    Args:
        accounts: The (platform, account) whose settings show rooms to their members.
    """

    def __init__(self, accounts: Collection[tuple[str, str]] = ()) -> None:
        self._accounts = frozenset(accounts)

    async def find(self, connection: Connection, person: Person | None) -> list[UUID]:
        """Return the ids of the sessions, newest first; at most `MOST_SESSIONS`.

        Only for requests that read the list or the words of a session. Everything else asks for the
        owner.
        """
        if person is None or not self._accounts:
            return []
        found = [
            identity
            for person_id in person.ids
            if (person_id.platform, person_id.account) in self._accounts
            and (identity := await identities.find(connection, person_id))
        ]
        owners = sorted({owner for identity in found for owner in identity.owners})
        if not owners:
            return []
        rows = await connection.fetch(FIND_ROOMS_SQL, owners)
        rooms = {
            (row["room"], *account_of_room(row["room"]), row["chat"])
            for row in rows
            if account_of_room(row["room"]) in self._accounts
            and any(
                row["owner"] in identity.owners and identity.has(row["form"], row["now"])
                for identity in found
            )
        }
        if not rooms:
            return []
        shown = await connection.fetch(FIND_SESSIONS_SQL, *columns(sorted(rooms), 4), MOST_SESSIONS)
        return [row["id"] for row in shown]


REPORT_SQL: Final[LiteralString] = """
-- room_reports: keep a report of a room, if it is newer than the one that is kept
INSERT INTO room_reports (room, chat, reported_at, until)
VALUES ($1, $2, $3, least($4, clock_timestamp() + $5::interval))
ON CONFLICT (room) DO UPDATE SET reported_at = excluded.reported_at, until = excluded.until
WHERE room_reports.reported_at < excluded.reported_at
RETURNING room
"""

REMOVE_MEMBERS_SQL: Final[LiteralString] = """
-- room_members: remove the people who are not members of a room any more
DELETE FROM room_members WHERE room = $1 AND form <> ALL ($2::text[])
"""

ADD_MEMBERS_SQL: Final[LiteralString] = """
-- room_members: add the members of a room, and write who holds an id that has changed hands
INSERT INTO room_members (room, form, owner)
SELECT $1, form, owner FROM unnest($2::text[], $3::text[]) AS new (form, owner) ORDER BY form
ON CONFLICT (room, form) DO UPDATE SET owner = excluded.owner
WHERE room_members.owner <> excluded.owner
"""


async def report(
    connection: Connection,
    room: str,
    chat: tuple[str, str | None],
    members: dict[str, str],
    *,
    reported_at: datetime,
    until: datetime,
    longest: timedelta,
) -> bool:
    """Replace the members of a room; return False if a newer report is kept.

    Args:
        chat: Id and scope of the chat.
        members: The owner name of the identity that holds an id, by the form of the id.
        until: When the report ends, at most `longest` from now.
    """
    kept = await connection.fetchval(
        REPORT_SQL, room, chat_alias(*chat), reported_at, until, longest
    )
    if kept is None:
        return False
    forms = sorted(members)
    await connection.execute(REMOVE_MEMBERS_SQL, room, forms)
    if forms:
        await connection.execute(ADD_MEMBERS_SQL, room, forms, [members[form] for form in forms])
    return True


FORGET_REPORTS_SQL: Final[LiteralString] = """
-- room_reports → room_members: delete reports that ended long ago, with their members
WITH over AS MATERIALIZED (
    SELECT room FROM room_reports WHERE until < (SELECT clock_timestamp() - $1::interval)
    ORDER BY until LIMIT $2 FOR UPDATE SKIP LOCKED
), members AS (
    DELETE FROM room_members WHERE room = ANY(ARRAY(SELECT room FROM over))
)
DELETE FROM room_reports WHERE room = ANY(ARRAY(SELECT room FROM over))
"""


async def expire(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete reports some time after they ended; return how many."""
    return count_of(await connection.execute(FORGET_REPORTS_SQL, kept, limit))
