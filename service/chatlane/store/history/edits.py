"""Find the messages that edits and deletes refer to, change them, and keep their previous text.

Callers hold the locks of the sessions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from pydantic import TypeAdapter
from pydantic_core import from_json

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.domain.edits import Edit, Original
from chatlane.postgres.pool import columns, count_of
from chatlane.postgres.stored_values import read_source
from chatlane.search import index_sql
from chatlane_schemas.inbound import Attachment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import timedelta
    from uuid import UUID

    from asyncpg import Record

    from chatlane.domain.effects import EarlyRow, RevisionRow, RowChange, WaitingChange
    from chatlane.postgres.pool import Connection

_ATTACHMENTS: Final = TypeAdapter(tuple[Attachment, ...])

FIND_HOMES_SQL: Final[LiteralString] = """
-- seen: the sessions of messages, the sessions that took over their rows, and branches
WITH RECURSIVE mark (digest, session_id, arrival, is_copy, hops) AS (
    SELECT digest, session_id, arrival, false, 0 FROM seen WHERE digest = ANY($1::bytea[])
    UNION ALL
    SELECT mark.digest, heir.id, NULL, mark.is_copy OR heir.is_branch, mark.hops + 1
    FROM mark CROSS JOIN LATERAL (
        SELECT parent_id AS id, false AS is_branch
        FROM sessions WHERE id = mark.session_id AND link_kind = 'merged'
        UNION ALL
        SELECT id, false FROM sessions
        WHERE parent_id = mark.session_id AND link_kind = 'compression'
        UNION ALL
        SELECT id, true FROM sessions WHERE parent_id = mark.session_id AND link_kind = 'branch'
    ) AS heir
    WHERE mark.hops < 16
)
SELECT digest, session_id, arrival, is_copy FROM mark WHERE session_id IS NOT NULL
"""


class SessionMark(NamedTuple):
    """A session that may hold a message.

    Attributes:
        arrival: Arrival of the message in this session, if it is known.
        is_copy: Whether the session holds a copy, because it is a branch of the session that the
            message went to.
    """

    session_id: UUID
    arrival: int | None
    is_copy: bool = False


async def find_marks(
    connection: Connection, digests: Iterable[bytes]
) -> dict[bytes, list[SessionMark]]:
    """Return, by digest, the sessions that messages were routed to and moved to since."""
    found: dict[bytes, list[SessionMark]] = {}
    for digest, *fields in await connection.fetch(FIND_HOMES_SQL, list(digests)):
        found.setdefault(digest, []).append(SessionMark(*fields))
    return found


FIND_ORIGINALS_SQL: Final[LiteralString] = """
-- waiting → messages → removed_messages: user messages of locked sessions by their platform ids
SELECT found.*, want.platform_message_id
FROM unnest($1::uuid[], $2::text[]) AS want (session_id, platform_message_id)
CROSS JOIN LATERAL (
    SELECT session_id, arrival AS place, true AS is_waiting, content, details, size_bytes,
           NULL::uuid AS turn_id, message_id, NULL::text AS state, source, 0::bigint AS removal
    FROM waiting
    WHERE session_id = want.session_id AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, seq, false, content, details, 0, turn_id, id, state, source, 0
    FROM messages
    WHERE session_id = want.session_id AND platform_message_id = want.platform_message_id
      -- Our people write rows with the role of the agent, and with a source.
      AND (role = 'user' OR source IS NOT NULL)
    UNION ALL
    SELECT session_id, seq, false, content, details, 0, turn_id, id, state, source, removal
    FROM removed_messages
    WHERE session_id = want.session_id AND platform_message_id = want.platform_message_id
      AND (role = 'user' OR source IS NOT NULL)
) AS found
"""


class Found(NamedTuple):
    """A message with the digest of the address it came from, if that is known."""

    original: Original
    digest: bytes | None


async def find(connection: Connection, wanted: Iterable[tuple[UUID, str]]) -> list[Found]:
    """Return the messages with these pairs of session and platform message id."""
    rows = await connection.fetch(FIND_ORIGINALS_SQL, *columns(wanted, 2))
    return [_found(row) for row in rows]


def _found(row: Record) -> Found:
    original = Original(
        session_id=row["session_id"],
        place=row["place"],
        is_waiting=row["is_waiting"],
        content=row["content"],
        details=from_json(row["details"] or "{}"),
        platform_message_id=row["platform_message_id"],
        size_bytes=row["size_bytes"],
        turn_id=row["turn_id"],
        message_id=row["message_id"],
        state=row["state"],
        removal=row["removal"],
    )
    source = row["source"]
    return Found(original, source and digest_of(read_source(source, "messages")))


CHANGE_WAITING_SQL: Final[LiteralString] = """
-- waiting: write edited texts
UPDATE waiting SET size_bytes = new.size_bytes, content = new.content, details = new.details
FROM unnest($1::uuid[], $2::bigint[], $3::int[], $4::text[], $5::jsonb[])
    AS new (session_id, arrival, size_bytes, content, details)
WHERE waiting.session_id = new.session_id AND waiting.arrival = new.arrival
"""


async def change_waiting(connection: Connection, changes: Iterable[WaitingChange]) -> None:
    """Apply edits of waiting messages; of several edits of one message the last one wins."""
    last = {(change.session_id, change.arrival): change for change in changes}
    if last:
        await connection.execute(CHANGE_WAITING_SQL, *columns(last.values(), 5))


DELETE_WAITING_SQL: Final[LiteralString] = """
-- waiting → messages: move deleted pending messages to the transcript without their text
WITH gone AS (
    DELETE FROM waiting USING unnest($1::uuid[], $2::bigint[], $3::bigint[])
        AS want (session_id, arrival, seq)
    WHERE waiting.session_id = want.session_id AND waiting.arrival = want.arrival
    RETURNING waiting.*, want.seq
)
INSERT INTO messages (
    session_id, seq, id, role, details, author, platform_message_id, source, created_at, state)
SELECT session_id, seq, message_id, 'user',
       jsonb_strip_nulls(jsonb_build_object(
           'kind', details -> 'kind', 'traceparent', details -> 'traceparent')),
       author, platform_message_id, source, stored_at, 'deleted'
FROM gone
"""


async def delete_waiting(connection: Connection, deleted: Sequence[tuple[UUID, int, int]]) -> None:
    """Move waiting messages that their authors deleted into the transcript, without their text.

    `deleted` has (session, arrival, place in the transcript).
    """
    if deleted:
        await connection.execute(DELETE_WAITING_SQL, *columns(deleted, 3))


CHANGE_ROWS_SQL: Final[LiteralString] = """
-- messages: write edited and deleted rows
UPDATE messages SET content = new.content, details = new.details, state = new.state
FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::jsonb[], $5::text[])
    AS new (session_id, seq, content, details, state)
WHERE messages.session_id = new.session_id AND messages.seq = new.seq
"""

CHANGE_ARCHIVED_SQL: Final[LiteralString] = """
-- removed_messages: write edited and deleted rows, which search does not find any more
WITH new AS (
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::jsonb[], $5::text[], $6::bigint[])
        AS new (session_id, seq, content, details, state, removal)
), found AS (
    DELETE FROM searchable USING new
    WHERE searchable.session_id = new.session_id AND searchable.removal = new.removal
      AND searchable.seq = new.seq
)
UPDATE removed_messages SET content = new.content, details = new.details, state = new.state
FROM new
WHERE removed_messages.session_id = new.session_id AND removed_messages.removal = new.removal
  AND removed_messages.seq = new.seq
"""

INSERT_REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: insert the previous texts of rows
INSERT INTO message_revisions (
    session_id, platform_message_id, message_id, content, attachments, reason, at)
SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::jsonb[], $6::text[], $7::timestamptz[])
"""

COUNT_REVISIONS_SQL: Final[LiteralString] = """
-- sessions: count a new version of transcripts
UPDATE sessions SET revision = revision + 1 WHERE id = ANY($1::uuid[])
"""


async def change_rows(
    connection: Connection,
    changes: Iterable[RowChange],
    revisions: Sequence[RevisionRow],
) -> None:
    """Apply edits and deletes of transcript rows, and store their previous text as revisions."""
    last = {(change.session_id, change.seq, change.removal): change for change in changes}
    live = [change for change in last.values() if not change.removal]
    archived = [change for change in last.values() if change.removal]
    if live:
        await connection.execute(CHANGE_ROWS_SQL, *columns([change[:5] for change in live], 5))
        texts = [(change.session_id, change.seq, change.content) for change in live]
        await index_sql.rewrite(connection, texts)
    if archived:
        await connection.execute(CHANGE_ARCHIVED_SQL, *columns(archived, 6))
    if revisions:
        await connection.execute(INSERT_REVISIONS_SQL, *columns(revisions, 7))
        changed = sorted({revision.session_id for revision in revisions})
        await connection.execute(COUNT_REVISIONS_SQL, changed)


FIND_EARLY_SQL: Final[LiteralString] = """
-- early_edits: the edits of messages that have not arrived
SELECT digest, content, attachments, version, event_id, size_bytes
FROM early_edits WHERE digest = ANY($1::bytea[])
"""


async def find_early(connection: Connection, digests: Iterable[bytes]) -> dict[bytes, Edit]:
    """Return, by digest, the newest edits of messages that have not arrived."""
    return {
        row["digest"]: Edit(
            row["content"],
            _ATTACHMENTS.validate_json(row["attachments"]),
            row["version"],
            row["event_id"],
            row["size_bytes"],
        )
        for row in await connection.fetch(FIND_EARLY_SQL, list(digests))
    }


KEEP_EARLY_SQL: Final[LiteralString] = """
-- early_edits: insert or replace edits of messages that have not arrived
INSERT INTO early_edits (digest, content, attachments, version, event_id, size_bytes)
SELECT * FROM unnest(
    $1::bytea[], $2::text[], $3::jsonb[], $4::text[], $5::text[], $6::int[])
    AS new (digest, content, attachments, version, event_id, size_bytes)
ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET
    content = excluded.content, attachments = excluded.attachments, version = excluded.version,
    event_id = excluded.event_id, size_bytes = excluded.size_bytes,
    kept_at = excluded.kept_at
"""

FORGET_EARLY_SQL: Final[LiteralString] = """
-- early_edits: delete obsolete edits
DELETE FROM early_edits WHERE digest = ANY($1::bytea[])
"""


async def keep_early(
    connection: Connection, rows: Iterable[EarlyRow], over: Sequence[bytes]
) -> None:
    """Store edits of messages that have not arrived, and delete the obsolete ones in `over`.

    Of several edits of one message the last one wins.
    """
    last = {row.digest: row for row in rows}
    if last:
        await connection.execute(KEEP_EARLY_SQL, *columns(last.values(), 6))
    if over:
        await connection.execute(FORGET_EARLY_SQL, list(over))


EXPIRE_EARLY_SQL: Final[LiteralString] = """
-- early_edits: delete expired edits, oldest first
DELETE FROM early_edits WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM early_edits
    WHERE kept_at < (SELECT clock_timestamp() - $1::interval) ORDER BY kept_at LIMIT $2))
"""


async def expire_early(connection: Connection, kept: timedelta, limit: int) -> int:
    """Delete up to `limit` early edits that are older than `kept`; returns how many."""
    status = await connection.execute(EXPIRE_EARLY_SQL, kept, limit)
    return count_of(status)


EMPTIED_SQL: Final[LiteralString] = """
-- messages: the turns whose messages were all deleted
SELECT id FROM unnest($1::uuid[]) AS want (id)
LEFT JOIN LATERAL (
    SELECT true AS is_there FROM messages
    WHERE turn_id = want.id AND role = 'user' AND messages.id IS NOT NULL
      AND state IS DISTINCT FROM 'deleted' LIMIT 1
) AS said ON true
WHERE said.is_there IS NULL
"""


async def emptied(connection: Connection, turn_ids: Iterable[UUID]) -> set[UUID]:
    """Return the claimed turns that have no undeleted message."""
    rows = await connection.fetch(EMPTIED_SQL, sorted(turn_ids))
    return {row[0] for row in rows}
