"""Find the messages that replies answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString
from uuid import UUID

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.domain.replies import POINTER, RepliedRow, replied_message
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import read_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.store.deliveries import OwnMessage
    from chatlane_schemas.content.replied import RepliedMessage

FIND_SQL: Final[LiteralString] = """
-- messages: rows of sessions by the platform's message ids, waiting or written
SELECT want.platform_message_id, found.*
FROM unnest($1::uuid[], $2::text[]) AS want (session_id, platform_message_id)
CROSS JOIN LATERAL (
    SELECT session_id, NULL::bigint AS seq, message_id, 'user' AS role, content, details, source,
           NULL::text AS state
    FROM waiting
    WHERE session_id = want.session_id AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, seq, id, role, content, details, source, state
    FROM messages
    WHERE session_id = want.session_id AND platform_message_id = want.platform_message_id
) AS found
"""


async def find(
    connection: PoolConnectionProxy, wanted: Iterable[tuple[UUID, str]]
) -> dict[tuple[UUID, str], list[tuple[RepliedRow, bytes | None]]]:
    """Return rows with the digests of their addresses, by session and platform message id."""
    found: dict[tuple[UUID, str], list[tuple[RepliedRow, bytes | None]]] = {}
    for platform_message_id, *fields in await connection.fetch(FIND_SQL, *columns(wanted, 2)):
        row = RepliedRow(*fields)
        digest = None if row.source is None else digest_of(read_source(row.source, "messages"))
        found.setdefault((row.session_id, platform_message_id), []).append((row, digest))
    return found


FIND_OWN_SQL: Final[LiteralString] = """
-- messages: the rows of our own messages; without a row of its own, the last words of its turn
SELECT want.digest, row.session_id, row.seq, row.id, row.role, row.content, row.details, row.source,
       row.state
FROM unnest($1::bytea[], $2::uuid[], $3::uuid[]) AS want (digest, message_id, turn_id)
CROSS JOIN LATERAL (
    (SELECT 0 AS rank, messages.* FROM messages WHERE id = want.message_id)
    UNION ALL
    (SELECT 1, messages.* FROM messages
     WHERE turn_id = want.turn_id AND role = 'assistant' AND content IS NOT NULL
     ORDER BY seq DESC LIMIT 1)
    ORDER BY rank LIMIT 1
) AS row
"""


async def find_own(
    connection: PoolConnectionProxy, own: Mapping[bytes, OwnMessage]
) -> dict[bytes, RepliedRow]:
    """Return the rows of our own messages, by the digest of the platform's id and chat."""
    if not own:
        return {}
    wanted = [(digest, message.message_id, message.turn_id) for digest, message in own.items()]
    rows = await connection.fetch(FIND_OWN_SQL, *columns(wanted, 3))
    return {digest: RepliedRow(*fields) for digest, *fields in rows}


BY_ID_SQL: Final[LiteralString] = """
-- messages: rows that replies point to, by id
SELECT session_id, seq, id, role, content, details, source, state
FROM messages WHERE id = ANY($1::uuid[])
"""
BY_PLACE_SQL: Final[LiteralString] = """
-- messages: rows that replies point to, by place
SELECT messages.session_id, messages.seq, id, role, content, details, source, state
FROM unnest($1::uuid[], $2::bigint[]) AS want (session_id, seq)
JOIN messages ON messages.session_id = want.session_id AND messages.seq = want.seq
"""

Key = UUID | tuple[UUID, int]


async def load(
    connection: PoolConnectionProxy, details: Sequence[Mapping[str, object]]
) -> list[RepliedMessage | None]:
    """Return the answered message of each row, given the details of the rows.

    A message that was removed from its transcript, or still waits for its turn, is None.
    """
    keys = [_key(fields) for fields in details]
    ids = {key for key in keys if isinstance(key, UUID)}
    places = {key for key in keys if isinstance(key, tuple)}
    found: dict[Key, RepliedMessage | None] = {}
    if ids:
        for fields in await connection.fetch(BY_ID_SQL, sorted(ids)):
            row = RepliedRow(*fields)
            if row.message_id is not None:
                found[row.message_id] = replied_message(row)
    if places:
        for fields in await connection.fetch(BY_PLACE_SQL, *columns(sorted(places), 2)):
            row = RepliedRow(*fields)
            if row.seq is not None:
                found[row.session_id, row.seq] = replied_message(row)
    return [None if key is None else found.get(key) for key in keys]


def _key(details: Mapping[str, object]) -> Key | None:
    pointer = details.get(POINTER)
    if not isinstance(pointer, dict):
        return None
    if "id" in pointer:
        return UUID(pointer["id"])
    return UUID(pointer["session_id"]), int(pointer["seq"])
