"""Messages that wait for a turn; a message is stored only here until its turn is claimed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from pydantic_core import from_json, to_json

from chatlane.domain.addressing.sources import is_of_person
from chatlane.domain.turns.claims import SteeringHead, WaitingHead
from chatlane.postgres.pool import columns, count_of
from chatlane.postgres.stored_values import read_source

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from asyncpg import Record
    from pydantic import JsonValue

    from chatlane.domain.effects import WaitingRow
    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.transcripts import Unanswered
    from chatlane_schemas.source import Source

INSERT_WAITING_SQL: Final[LiteralString] = """
-- waiting: messages of a batch
INSERT INTO waiting (
    session_id, arrival, session_key, message_id, author, platform_message_id, size_bytes,
    content, details, source, stored_at, busy, ready_at, awaits_files)
SELECT session_id, arrival, session_key, message_id, author, platform_message_id, size_bytes,
       content, details, source, stored_at, busy, clock_timestamp() + ready_in, awaits_files
FROM unnest(
    $1::uuid[], $2::bigint[], $3::text[], $4::uuid[], $5::text[], $6::text[], $7::int[],
    $8::text[], $9::jsonb[], $10::jsonb[], $11::timestamptz[], $12::text[],
    $13::interval[], $14::boolean[])
    AS new (session_id, arrival, session_key, message_id, author, platform_message_id, size_bytes,
            content, details, source, stored_at, busy, ready_in, awaits_files)
"""


async def insert(connection: Connection, rows: Sequence[WaitingRow]) -> None:
    """Add messages at the places that their sessions assigned."""
    if rows:
        await connection.execute(INSERT_WAITING_SQL, *columns(rows, 14))


FIND_BUSY_SQL: Final[LiteralString] = """
-- waiting: which of these sessions have something in the line
SELECT id FROM unnest($1::uuid[]) AS want (id)
WHERE EXISTS (SELECT FROM waiting WHERE waiting.session_id = want.id)
"""


async def sessions_with_waiting(connection: Connection, ids: Iterable[UUID]) -> set[UUID]:
    """Return the locked sessions that have waiting messages."""
    rows = await connection.fetch(FIND_BUSY_SQL, list(ids))
    return {row[0] for row in rows}


HEADS_SQL: Final[LiteralString] = """
-- waiting: the first messages of each session's line
SELECT head.session_id, head.arrival, head.session_key, head.size_bytes, head.source,
       head.busy IS NOT DISTINCT FROM 'queue', head.album_id, head.author,
       greatest(head.ready_at - clock_timestamp(), interval '0'), head.awaits_files, head.kind
FROM unnest($1::uuid[]) AS want (id)
CROSS JOIN LATERAL (
    SELECT session_id, arrival, session_key, size_bytes, source, busy, author,
           details ->> 'album_id' AS album_id, ready_at, awaits_files, details ->> 'kind' AS kind
    FROM waiting
    WHERE waiting.session_id = want.id ORDER BY arrival LIMIT $2
) AS head
ORDER BY head.session_id, head.arrival
"""


async def heads(
    connection: Connection, ids: Iterable[UUID], limit: int
) -> dict[UUID, list[WaitingHead]]:
    """Return up to `limit` waiting messages of each session, in order, without bodies."""
    found: dict[UUID, list[WaitingHead]] = {}
    for row in await connection.fetch(HEADS_SQL, list(ids), limit):
        found.setdefault(row[0], []).append(_head(row))
    return found


def _head(row: Record) -> WaitingHead:
    album_id, author = row[6], row[7]
    source = read_source(row[4], "waiting")
    return WaitingHead(
        arrival=row[1],
        session_key=row[2],
        size_bytes=row[3],
        source=source,
        is_alone=row[5],
        album=None if album_id is None else (album_id, author),
        ready_in=row[8] or timedelta(0),
        awaits_files=row[9],
        is_of_person=is_of_person(row[10], source),
    )


FIND_STEERED_SQL: Final[LiteralString] = """
-- waiting: which of these sessions have something that a running turn may take in
SELECT id FROM unnest($1::uuid[]) AS want (id)
WHERE EXISTS (SELECT FROM waiting WHERE waiting.session_id = want.id AND busy = 'steer')
"""


async def sessions_with_steered(connection: Connection, ids: Iterable[UUID]) -> set[UUID]:
    """Return the sessions with waiting messages that may steer a running turn."""
    return {row[0] for row in await connection.fetch(FIND_STEERED_SQL, list(ids))}


STEERED_HEADS_SQL: Final[LiteralString] = """
-- waiting: the first messages that may steer a turn of one session
SELECT arrival, size_bytes, source, details ? 'attachments' OR awaits_files, details ->> 'kind'
FROM waiting
WHERE session_id = $1 AND busy = 'steer' ORDER BY arrival LIMIT $2
"""


async def steered_heads(connection: Connection, session_id: UUID, limit: int) -> list[SteeringHead]:
    """Return up to `limit` messages that may steer, in order, without bodies."""
    rows = await connection.fetch(STEERED_HEADS_SQL, session_id, limit)
    heads = []
    for arrival, size_bytes, written, has_files, kind in rows:
        source = read_source(written, "waiting")
        person = is_of_person(kind, source)
        heads.append(SteeringHead(arrival, size_bytes, source, has_files, is_of_person=person))
    return heads


FIND_ANSWERED_SQL: Final[LiteralString] = """
-- waiting: what a result says that it answers
SELECT arrival, source, details ->> 'kind' FROM waiting
WHERE session_id = $1 AND message_id = ANY($2::uuid[]) ORDER BY arrival
"""


class AnsweredHead(NamedTuple):
    """A waiting message that a result names as answered."""

    arrival: int
    source: Source
    is_of_person: bool


async def find_answered(
    connection: Connection, session_id: UUID, ids: Iterable[UUID]
) -> list[AnsweredHead]:
    """Return the messages with these ids that wait in a session, in order."""
    rows = await connection.fetch(FIND_ANSWERED_SQL, session_id, list(ids))
    heads = []
    for arrival, written, kind in rows:
        source = read_source(written, "waiting")
        heads.append(AnsweredHead(arrival, source, is_of_person(kind, source)))
    return heads


LOCATE_SQL: Final[LiteralString] = """
-- waiting: the message that waits for its files
SELECT arrival, details FROM waiting
WHERE session_id = $1 AND platform_message_id = $2 AND awaits_files ORDER BY arrival LIMIT 1
"""

BRING_SQL: Final[LiteralString] = """
-- waiting: the files of a message are there
UPDATE waiting SET details = $3::jsonb, size_bytes = size_bytes + $4,
    content = coalesce($5, content), ready_at = NULL, awaits_files = false
WHERE session_id = $1 AND arrival = $2
"""


async def bring_files(
    connection: Connection,
    session_id: UUID,
    platform_message_id: str,
    attachments: Sequence[JsonValue],
    *,
    words: str | None,
    size_bytes: int,
) -> bool:
    """Add files and words to a waiting message of a locked session.

    Returns:
        False if no message waits for files.
    """
    found = await connection.fetchrow(LOCATE_SQL, session_id, platform_message_id)
    if found is None:
        return False
    files = {"attachments": attachments} if attachments else {"files_missing": words is None}
    details = to_json(from_json(found["details"]) | files).decode()
    await connection.execute(BRING_SQL, session_id, found["arrival"], details, size_bytes, words)
    return True


CLOSE_SQL: Final[LiteralString] = """
-- waiting → messages: messages that will not be answered
WITH closed AS (
    DELETE FROM waiting
    WHERE session_id = $1
      AND ($4::text[] IS NULL OR author = ANY($4) OR source #>> '{sender,alt_id}' = ANY($4))
    RETURNING *
)
INSERT INTO messages (
    session_id, seq, id, role, content, details, author, platform_message_id, source, created_at,
    unanswered)
SELECT session_id, $2 - 1 + row_number() OVER (ORDER BY arrival), message_id, 'user', content,
       details, author, platform_message_id, source, stored_at, $3
FROM closed
"""


async def close(
    connection: Connection,
    session_id: UUID,
    first_seq: int,
    reason: Unanswered,
    authors: Collection[str] | None,
) -> int:
    """Move waiting messages of a locked session into its transcript, marked as unanswered.

    Args:
        connection: Connection of a transaction that has locked the session.
        first_seq: Transcript place of the first of them.
        reason: Reason that they stay unanswered.
        authors: Platform ids of the person whose messages to move; None for all messages.

    Returns:
        How many messages were moved.
    """
    ids = None if authors is None else sorted(authors)
    status = await connection.execute(CLOSE_SQL, session_id, first_seq, reason, ids)
    return count_of(status)


COUNT_SQL: Final[LiteralString] = """
-- waiting: how many messages are in the line of a session
SELECT count(*) FROM waiting WHERE session_id = $1
"""


async def count(connection: Connection, session_id: UUID) -> int:
    """Return how many messages wait in a locked session."""
    found: int = await connection.fetchval(COUNT_SQL, session_id)
    return found


TAKE_SQL: Final[LiteralString] = """
-- waiting → messages: the turn's messages get their place in the transcript
WITH taken AS (
    DELETE FROM waiting USING unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::bigint[])
        AS want (session_id, last_arrival, turn_id, first_seq)
    WHERE waiting.session_id = want.session_id AND waiting.arrival <= want.last_arrival
    RETURNING waiting.*, want.turn_id, want.first_seq
)
INSERT INTO messages (
    session_id, seq, id, role, content, details, author, platform_message_id, source, turn_id,
    created_at)
SELECT session_id,
       first_seq - 1 + row_number() OVER (PARTITION BY session_id ORDER BY arrival),
       message_id, 'user', content,
       CASE WHEN awaits_files THEN details || '{"files_missing": true}' ELSE details END, author, platform_message_id, source, turn_id,
       stored_at
FROM taken
"""


async def take(
    connection: Connection,
    takings: Sequence[tuple[UUID, int, UUID, int]],
) -> int:
    """Move the first waiting messages of each session into its transcript.

    Args:
        connection: Connection of a transaction that has locked the sessions.
        takings: (session, last arrival taken, turn, first transcript place).

    Returns:
        How many messages were moved.
    """
    if not takings:
        return 0
    status = await connection.execute(TAKE_SQL, *columns(takings, 4))
    return count_of(status)


TAKE_SOME_SQL: Final[LiteralString] = """
-- waiting → messages: what a running turn takes in
WITH taken AS (
    DELETE FROM waiting WHERE session_id = $1 AND arrival = ANY($2::bigint[]) RETURNING *
)
INSERT INTO messages (
    session_id, seq, id, role, content, details, author, platform_message_id, source, turn_id,
    created_at)
SELECT session_id, $4 - 1 + row_number() OVER (ORDER BY arrival), message_id, 'user', content,
       details, author, platform_message_id, source, $3, stored_at
FROM taken
"""


async def take_some(
    connection: Connection,
    session_id: UUID,
    arrivals: Sequence[int],
    turn_id: UUID,
    first_seq: int,
) -> None:
    """Move waiting messages of a locked session into its transcript, as rows of a turn."""
    await connection.execute(TAKE_SOME_SQL, session_id, list(arrivals), turn_id, first_seq)
