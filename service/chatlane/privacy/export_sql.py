"""Read the stored data of a person in batches."""

from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple

from pydantic_core import from_json

from chatlane.privacy.erase_sql import said_columns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Transaction
    from chatlane.privacy.erasure_rules import Said

_ROWS_AT_ONCE: Final = 500


class Told(NamedTuple):
    """A row of a transcript with its content; `removal` is 0 unless it is in the archive."""

    removal: int
    seq: int
    role: str
    at: "datetime"
    id: "UUID | None"
    turn_id: "UUID | None"
    reply_to: "UUID | None"
    text: str | None
    details: "Mapping[str, Any] | None"
    source: "Mapping[str, Any] | None"


ROWS_SQL: Final[LiteralString] = """
-- messages: the next rows of a session with all they say
SELECT 0::bigint, seq, role, created_at, id, turn_id, reply_to, content, details, source
FROM messages WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
ARCHIVE_SQL: Final[LiteralString] = """
-- removed_messages: the next archived rows of a session with all they say
SELECT removal, seq, role, created_at, id, turn_id, reply_to, content, details, source
FROM removed_messages WHERE session_id = $1 AND (removal, seq) > ($2, $3)
ORDER BY removal, seq LIMIT $4
"""


async def rows(transaction: "Transaction", session_id: "UUID") -> "AsyncIterator[Told]":
    """Yield the rows of a session, archived rows last."""
    after = 0
    while True:
        async with transaction() as connection:
            some = await connection.fetch(ROWS_SQL, session_id, after, _ROWS_AT_ONCE)
        for row in some:
            yield _told(tuple(row))
        if len(some) < _ROWS_AT_ONCE:
            break
        after = some[-1]["seq"]
    place = (0, 0)
    while True:
        async with transaction() as connection:
            some = await connection.fetch(ARCHIVE_SQL, session_id, *place, _ROWS_AT_ONCE)
        for row in some:
            yield _told(tuple(row))
        if len(some) < _ROWS_AT_ONCE:
            return
        place = (some[-1]["removal"], some[-1]["seq"])


def _told(row: "tuple[Any, ...]") -> Told:
    removal, seq, role, at, row_id, turn_id, reply_to, text, details, source = row
    return Told(
        removal,
        seq,
        role,
        at,
        row_id,
        turn_id,
        reply_to,
        text,
        details and from_json(details),
        source and from_json(source),
    )


ANSWERED_SQL: Final[LiteralString] = """
-- messages: which turns and messages of a session are of somebody
SELECT turn_id, id FROM (
    SELECT turn_id, id, created_at, sender_of(source) AS who FROM messages WHERE session_id = $1
    UNION ALL
    SELECT turn_id, id, created_at, sender_of(source) FROM removed_messages WHERE session_id = $1
) AS its WHERE EXISTS (
           SELECT FROM unnest($2::jsonb[], $3::timestamptz[], $4::timestamptz[])
               AS said (who, since, until)
           WHERE said.who = its.who AND created_at >= coalesce(since, '-infinity')
             AND created_at < coalesce(until, 'infinity'))
"""


async def answered_in(
    connection: "PoolConnectionProxy", session_id: "UUID", said: "Iterable[Said]"
) -> "tuple[set[UUID], set[UUID]]":
    """Return the ids of the turns and messages of a person in a shared session."""
    found = await connection.fetch(ANSWERED_SQL, session_id, *said_columns(said))
    return {row[0] for row in found if row[0]}, {row[1] for row in found if row[1]}


class Facts(NamedTuple):
    """Exported facts about a session."""

    id: "UUID"
    session_key: str
    agent: str
    platform: str
    started_at: "datetime"
    ended_at: "datetime | None"
    title: str | None
    note: str | None
    opening_note: str | None


FACTS_SQL: Final[LiteralString] = """
-- sessions: what there is to know of some
SELECT id, session_key, agent, platform, started_at, ended_at, title, carry_over, opening_note
FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id
"""
WAITING_SQL: Final[LiteralString] = """
-- waiting: the line of a session
SELECT message_id, stored_at, content, details, source FROM waiting
WHERE session_id = $1 ORDER BY arrival
"""
REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: what messages of a session said before
SELECT message_id, at, content, attachments FROM message_revisions
WHERE session_id = $1 ORDER BY platform_message_id, id
"""
ALIASES_SQL: Final[LiteralString] = """
-- aliases → former_ids: all that is known of the ids of a person
SELECT alias, canonical, first_seen_at, held_since, NULL::timestamptz FROM aliases
WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
UNION ALL
SELECT form, identity, NULL, nullif(since, '-infinity'), until FROM former_ids
WHERE platform = $1 AND account = $2 AND identity = $3
"""


async def facts(connection: "PoolConnectionProxy", ids: "Sequence[UUID]") -> list[Facts]:
    """Return the exported facts about some sessions."""
    return [Facts(*row.values()) for row in await connection.fetch(FACTS_SQL, ids)]


class Waits(NamedTuple):
    """A message that waits in a session."""

    id: "UUID"
    at: "datetime"
    text: str | None
    details: "dict[str, Any]"
    source: "dict[str, Any]"


async def waiting(connection: "PoolConnectionProxy", session_id: "UUID") -> list[Waits]:
    """Return the waiting messages of a session, in order."""
    found = await connection.fetch(WAITING_SQL, session_id)
    return [
        Waits(row[0], row[1], row[2], from_json(row[3]), from_json(row[4]))
        for row in map(tuple, found)
    ]


class Revised(NamedTuple):
    """An earlier version of a message that was edited or deleted."""

    message_id: "UUID | None"
    at: "datetime"
    text: str | None
    attachments: "list[dict[str, Any]] | None"


async def revisions(connection: "PoolConnectionProxy", session_id: "UUID") -> list[Revised]:
    """Return the earlier versions of a session's messages, ordered by message."""
    found = await connection.fetch(REVISIONS_SQL, session_id)
    return [
        Revised(row[0], row[1], row[2], row[3] and from_json(row[3])) for row in map(tuple, found)
    ]


class Named(NamedTuple):
    """An id of a person, and the time span in which they had it; None for no bound."""

    id: str
    canonical: str
    first_seen_at: "datetime | None"
    since: "datetime | None"
    until: "datetime | None"


async def aliases(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str
) -> list[Named]:
    """Return all ids of a person, including those that belong to another person now."""
    found = await connection.fetch(ALIASES_SQL, *account, identity)
    return [Named(*row.values()) for row in found]
