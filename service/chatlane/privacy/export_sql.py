"""Read the stored data of a person in batches."""

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.privacy.export_records import (
    AliasRecord,
    RevisionRecord,
    RowRecord,
    SessionRecord,
    WaitingRecord,
)
from chatlane.privacy.person_rows_sql import span_columns, walk_pages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from uuid import UUID

    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Transaction
    from chatlane.privacy.erasure_rules import SenderSpan

_ROWS_AT_ONCE: Final = 500

ROWS_SQL: Final[LiteralString] = """
-- messages: the next rows of a session with their content
SELECT session_id, seq, false AS is_archived, role, created_at AS at, id, turn_id, reply_to,
       content AS text, details, source
FROM messages WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $3
"""
ARCHIVE_SQL: Final[LiteralString] = """
-- removed_messages: the next archived rows of a session with their content
SELECT session_id, removal, seq, true AS is_archived, role, created_at AS at, id, turn_id,
       reply_to, content AS text, details, source
FROM removed_messages WHERE session_id = $1 AND (removal, seq) > ($2, $3)
ORDER BY removal, seq LIMIT $4
"""


async def rows(transaction: "Transaction", session_id: "UUID") -> "AsyncIterator[RowRecord]":
    """Yield the rows of a session, archived rows last."""

    async def current(connection: "PoolConnectionProxy", last: "Record | None") -> "list[Record]":
        after = last["seq"] if last else 0
        return await connection.fetch(ROWS_SQL, session_id, after, _ROWS_AT_ONCE)

    async def archived(connection: "PoolConnectionProxy", last: "Record | None") -> "list[Record]":
        place = (last["removal"], last["seq"]) if last else (0, 0)
        return await connection.fetch(ARCHIVE_SQL, session_id, *place, _ROWS_AT_ONCE)

    for read in (current, archived):
        async for some in walk_pages(transaction, read):
            for row in some:
                yield RowRecord.model_validate(dict(row))


ANSWERED_SQL: Final[LiteralString] = """
-- messages: turns and messages of a person in a session
SELECT turn_id, id FROM (
    SELECT turn_id, id, created_at, sender_of(source) AS who FROM messages WHERE session_id = $1
    UNION ALL
    SELECT turn_id, id, created_at, sender_of(source) FROM removed_messages WHERE session_id = $1
) AS its WHERE EXISTS (
           SELECT FROM unnest($2::jsonb[], $3::timestamptz[], $4::timestamptz[])
               AS senders (who, since, until)
           WHERE senders.who = its.who AND created_at >= coalesce(since, '-infinity')
             AND created_at < coalesce(until, 'infinity'))
"""


async def answered_in(
    connection: "PoolConnectionProxy", session_id: "UUID", spans: "Iterable[SenderSpan]"
) -> "tuple[set[UUID], set[UUID]]":
    """Return the ids of the turns and messages of a person in a shared session."""
    found = await connection.fetch(ANSWERED_SQL, session_id, *span_columns(spans))
    return {row[0] for row in found if row[0]}, {row[1] for row in found if row[1]}


SESSION_SQL: Final[LiteralString] = """
-- sessions: a session without its rows
SELECT id AS session_id, session_key, agent, platform, started_at, ended_at, title, labels,
       project_id AS folder_id, carry_over AS note, opening_note
FROM sessions WHERE id = $1
"""
WAITING_SQL: Final[LiteralString] = """
-- waiting: the waiting messages of a session
SELECT session_id, message_id AS id, stored_at AS at, content AS text, details, source FROM waiting
WHERE session_id = $1 ORDER BY arrival
"""
REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: the earlier versions of the messages of a session
SELECT session_id, message_id, at, content AS text, attachments FROM message_revisions
WHERE session_id = $1 ORDER BY platform_message_id, id
"""
ALIASES_SQL: Final[LiteralString] = """
-- aliases → former_ids: the ids of a person, also those that belong to another person now
SELECT alias AS id, canonical, first_seen_at, held_since AS since, NULL::timestamptz AS until
FROM aliases WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
UNION ALL
SELECT form, identity, NULL, nullif(since, '-infinity'), until FROM former_ids
WHERE platform = $1 AND account = $2 AND identity = $3
"""


async def sessions(connection: "PoolConnectionProxy", session_id: "UUID") -> list[SessionRecord]:
    """Return the session with this id; none if it was removed meanwhile."""
    found = await connection.fetch(SESSION_SQL, session_id)
    return [SessionRecord.model_validate(dict(row)) for row in found]


async def waiting(connection: "PoolConnectionProxy", session_id: "UUID") -> list[WaitingRecord]:
    """Return the waiting messages of a session, in order."""
    found = await connection.fetch(WAITING_SQL, session_id)
    return [WaitingRecord.model_validate(dict(row)) for row in found]


async def revisions(connection: "PoolConnectionProxy", session_id: "UUID") -> list[RevisionRecord]:
    """Return the earlier versions of a session's messages, ordered by message."""
    found = await connection.fetch(REVISIONS_SQL, session_id)
    return [RevisionRecord.model_validate(dict(row)) for row in found]


async def aliases(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str
) -> list[AliasRecord]:
    """Return the ids of a person."""
    found = await connection.fetch(ALIASES_SQL, *account, identity)
    return [AliasRecord.model_validate(dict(row)) for row in found]
