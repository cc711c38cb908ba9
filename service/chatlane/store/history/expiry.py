"""Messages that their platform removes at a time, and return addresses that end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from chatlane.domain.effects import ExpiringRow
    from chatlane.postgres.pool import Connection

INSERT_SQL: Final[LiteralString] = """
-- expiring_messages: what a router clears later
INSERT INTO expiring_messages (message_id, part, session_id, expires_at)
SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::timestamptz[])
    AS new (message_id, part, session_id, expires_at)
ORDER BY message_id, part
ON CONFLICT DO NOTHING
"""


async def insert(connection: Connection, rows: Sequence[ExpiringRow]) -> None:
    """Record when parts of new messages expire."""
    if rows:
        await connection.execute(INSERT_SQL, *columns(rows, 4))


FIND_DUE_SQL: Final[LiteralString] = """
-- expiring_messages: the next whose time has come, and the sessions that may hold them
WITH RECURSIVE due AS (
    SELECT message_id, part, session_id FROM expiring_messages
    WHERE expires_at <= (SELECT clock_timestamp()) ORDER BY expires_at LIMIT $1
), home (session_id, hops) AS (
    SELECT session_id, 0 FROM due
    UNION
    SELECT heir.id, home.hops + 1
    FROM home CROSS JOIN LATERAL (
        SELECT parent_id AS id FROM sessions
        WHERE id = home.session_id AND link_kind = 'merged'
        UNION ALL
        SELECT id FROM sessions WHERE parent_id = home.session_id AND link_kind = 'compression'
        UNION ALL
        SELECT id FROM sessions WHERE parent_id = home.session_id AND link_kind = 'branch'
    ) AS heir
    WHERE home.hops < 16
)
SELECT message_id, part, NULL::uuid AS session_id FROM due
UNION ALL
SELECT NULL, NULL, session_id FROM home
"""


class Due(NamedTuple):
    """Messages whose content or return address expires, and the sessions that may hold them."""

    contents: frozenset[UUID]
    addresses: frozenset[UUID]
    session_ids: frozenset[UUID]


async def find_due(connection: Connection, limit: int) -> Due:
    """Return up to `limit` expired parts of messages; locks nothing."""
    rows = await connection.fetch(FIND_DUE_SQL, limit)
    parts = [(row["part"], row["message_id"]) for row in rows if row["part"] is not None]
    return Due(
        frozenset(message_id for part, message_id in parts if part == "content"),
        frozenset(message_id for part, message_id in parts if part == "return_address"),
        frozenset(row["session_id"] for row in rows if row["session_id"] is not None),
    )


FIND_PLACES_SQL: Final[LiteralString] = """
-- messages: where expired messages are, waiting, written or copied into a branch
WITH original AS (
    SELECT id, session_id, seq, turn_id, details, platform_message_id, created_at
    FROM messages WHERE id = ANY($1::uuid[])
    UNION ALL
    SELECT id, NULL, NULL, NULL, NULL, platform_message_id, created_at
    FROM removed_messages WHERE id = ANY($1::uuid[])
)
SELECT session_id, arrival AS place, true AS is_waiting, message_id, NULL::uuid AS turn_id,
       details::text
FROM waiting WHERE session_id = ANY($2::uuid[]) AND message_id = ANY($1::uuid[])
UNION ALL
SELECT session_id, seq, false, id, turn_id, details::text FROM original
WHERE session_id IS NOT NULL
UNION ALL
SELECT copy.session_id, copy.seq, false, NULL, NULL, copy.details::text
FROM original
JOIN messages AS copy ON copy.session_id = ANY($2::uuid[])
    AND copy.platform_message_id = original.platform_message_id
    AND copy.created_at = original.created_at AND copy.id IS NULL
"""


class Place(NamedTuple):
    """A row of a message.

    Attributes:
        place: Its arrival while it waits, its seq once it is written.
        message_id: None for a copy in a branch.
    """

    session_id: UUID
    place: int
    is_waiting: bool
    message_id: UUID | None
    turn_id: UUID | None
    details: str | None


async def find_places(
    connection: Connection, message_ids: Iterable[UUID], session_ids: Iterable[UUID]
) -> list[Place]:
    """Return the rows of messages in locked sessions."""
    rows = await connection.fetch(FIND_PLACES_SQL, sorted(message_ids), sorted(session_ids))
    return [Place(*row.values()) for row in rows]


FORGET_WORDS_SQL: Final[LiteralString] = """
-- message_revisions: no earlier words of expired messages, nor archived ones
WITH archived AS (
    DELETE FROM removed_messages WHERE id = ANY($1::uuid[])
    RETURNING session_id, removal, seq
), found AS (
    DELETE FROM searchable USING archived
    WHERE searchable.session_id = archived.session_id AND searchable.removal = archived.removal
      AND searchable.seq = archived.seq
)
DELETE FROM message_revisions WHERE message_id = ANY($1::uuid[])
"""
CHANGED_SQL: Final[LiteralString] = """
-- sessions: their transcripts are other ones now
UPDATE sessions SET revision = revision + 1 WHERE id = ANY($1::uuid[])
"""


async def forget_words(
    connection: Connection, message_ids: Collection[UUID], session_ids: Collection[UUID]
) -> None:
    """Delete what is left of messages whose rows say nothing any more."""
    await connection.execute(FORGET_WORDS_SQL, sorted(message_ids))
    await connection.execute(CHANGED_SQL, sorted(session_ids))


FORGET_ADDRESSES_SQL: Final[LiteralString] = """
-- messages: no return addresses that have ended, nor in the turns that answer there
WITH lost AS (
    UPDATE waiting SET source = source - 'return_address'
    WHERE session_id = ANY($2::uuid[]) AND message_id = ANY($1::uuid[])
), written AS (
    UPDATE messages SET source = source - 'return_address' WHERE id = ANY($1::uuid[])
    RETURNING turn_id
), archived AS (
    UPDATE removed_messages SET source = source - 'return_address' WHERE id = ANY($1::uuid[])
    RETURNING turn_id
)
UPDATE turns SET source = source - 'return_address'
WHERE id IN (SELECT turn_id FROM written UNION SELECT turn_id FROM archived)
"""


async def forget_addresses(
    connection: Connection, message_ids: Collection[UUID], session_ids: Collection[UUID]
) -> None:
    """Remove the return addresses of messages of locked sessions."""
    if message_ids:
        await connection.execute(FORGET_ADDRESSES_SQL, sorted(message_ids), sorted(session_ids))


DONE_SQL: Final[LiteralString] = """
-- expiring_messages: what is cleared
DELETE FROM expiring_messages
USING unnest($1::uuid[], $2::text[]) AS over (message_id, part)
WHERE expiring_messages.message_id = over.message_id AND expiring_messages.part = over.part
"""


async def done(connection: Connection, due: Due) -> None:
    """Delete the entries of parts that were cleared."""
    over = [(message_id, "content") for message_id in due.contents]
    over += [(message_id, "return_address") for message_id in due.addresses]
    await connection.execute(DONE_SQL, *columns(over, 2))
