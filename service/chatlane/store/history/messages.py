"""Transcript rows, ordered by (session, seq)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from chatlane.domain.addressing.sources import is_of_person
from chatlane.domain.turns.turn_results import Question
from chatlane.postgres.pool import columns
from chatlane.postgres.stored_values import read_record, read_source
from chatlane.store.history import replies
from chatlane_schemas.results import TranscriptRow
from chatlane_schemas.turns import TurnMessage

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from uuid import UUID

    from asyncpg import Record
    from pydantic import JsonValue

    from chatlane.domain.effects import LateRow, MessageRow, UnansweredTurn
    from chatlane.postgres.pool import Connection
    from chatlane_schemas.source import Source

INSERT_MESSAGES_SQL: Final[LiteralString] = """
-- messages: insert transcript rows
INSERT INTO messages (
    session_id, seq, role, content, created_at, id, details, author, platform_message_id, source,
    turn_id, reply_to, part, row_id)
SELECT * FROM unnest(
    $1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::uuid[], $7::jsonb[],
    $8::text[], $9::text[], $10::jsonb[], $11::uuid[], $12::uuid[], $13::int[], $14::uuid[])
"""


async def insert(connection: Connection, rows: Sequence[MessageRow]) -> None:
    """Append rows at the places that their sessions assigned."""
    if rows:
        await connection.execute(INSERT_MESSAGES_SQL, *columns(rows, 14))


LAST_SOURCE_SQL: Final[LiteralString] = """
-- waiting → messages: the source of the newest message, among the last rows
SELECT source FROM (
    (SELECT 1 AS age, arrival AS place, source FROM waiting
     WHERE session_id = $1 ORDER BY arrival DESC LIMIT 1)
    UNION ALL
    (SELECT 2, seq, source FROM messages WHERE session_id = $1 ORDER BY seq DESC LIMIT $2)
) AS newest
WHERE source IS NOT NULL ORDER BY age, place DESC LIMIT 1
"""


async def find_last_source(connection: Connection, session_id: UUID, rows: int) -> Source | None:
    """Return the source of the newest message, among the waiting ones and the last `rows` rows."""
    source: str | None = await connection.fetchval(LAST_SOURCE_SQL, session_id, rows)
    return None if source is None else read_source(source, "messages")


OF_TURNS_SQL: Final[LiteralString] = """
-- messages: the undeleted user messages of turns in order; copies in branches have no id
SELECT turn_id, id, seq, details, content, source, created_at FROM messages
WHERE turn_id = ANY($1::uuid[]) AND role = 'user' AND id IS NOT NULL
  AND state IS DISTINCT FROM 'deleted'
ORDER BY turn_id, seq
"""


async def of_turns(
    connection: Connection, turn_ids: Iterable[UUID]
) -> dict[UUID, list[TurnMessage]]:
    """Return the user messages of each turn, in transcript order."""
    found: dict[UUID, list[TurnMessage]] = {}
    rows = await connection.fetch(OF_TURNS_SQL, list(turn_ids))
    details = [from_json(row["details"]) for row in rows]
    replied = await replies.load(connection, details)
    for row, fields, other in zip(rows, details, replied, strict=True):
        message = _turn_message(row, fields)
        if other is not None:
            message = message.model_copy(update={"replied": other})
        found.setdefault(row["turn_id"], []).append(message)
    return found


STEPS_OF_TURNS_SQL: Final[LiteralString] = """
-- messages: the newest rows that earlier attempts at turns added, up to a size per turn
SELECT turn_id, role, content, details FROM (
    SELECT turn_id, seq, role, content, details,
           sum(coalesce(octet_length(content), 0) + octet_length(details::text))
               OVER (PARTITION BY turn_id ORDER BY seq DESC) AS size_bytes
    FROM messages WHERE turn_id = ANY($1::uuid[]) AND role <> 'user'
) AS steps
WHERE size_bytes <= $2 ORDER BY turn_id, seq
"""


async def steps_of_turns(
    connection: Connection,
    turn_ids: Iterable[UUID],
    max_bytes: int,
    *,
    with_reasoning: Container[UUID] = (),
) -> dict[UUID, list[TranscriptRow]]:
    """Return the newest rows that earlier attempts at turns added, in transcript order.

    Args:
        connection: Connection to read on.
        turn_ids: The turns.
        max_bytes: Size of the rows of one turn.
        with_reasoning: Turns whose rows keep their reasoning.
    """
    found: dict[UUID, list[TranscriptRow]] = {}
    for turn_id, role, content, details in await connection.fetch(
        STEPS_OF_TURNS_SQL, list(turn_ids), max_bytes
    ):
        fields = from_json(details or "{}") | {"role": role, "content": content}
        if turn_id not in with_reasoning:
            fields.pop("reasoning", None)
        row = read_record(TranscriptRow, fields, "messages", is_json=True)
        if row is not None:
            found.setdefault(turn_id, []).append(row)
    return found


HAS_PLATFORM_MESSAGE_SQL: Final[LiteralString] = """
-- messages: whether an undeleted message has this platform id
SELECT EXISTS (
    SELECT FROM messages
    WHERE session_id = $1 AND platform_message_id = $2 AND state IS DISTINCT FROM 'deleted'
      -- An unanswered message without a turn was withdrawn, and so were its files.
      AND (unanswered IS NULL OR turn_id IS NOT NULL))
"""


async def has_platform_message(
    connection: Connection, session_id: UUID, platform_message_id: str
) -> bool:
    """Return whether the transcript has this message, neither deleted nor withdrawn."""
    found: bool = await connection.fetchval(
        HAS_PLATFORM_MESSAGE_SQL, session_id, platform_message_id
    )
    return found


COUNT_OF_OTHERS_SQL: Final[LiteralString] = """
-- messages: count the messages of a turn by other people
SELECT count(*) FROM messages
WHERE turn_id = $1 AND role = 'user' AND id IS NOT NULL AND state IS DISTINCT FROM 'deleted'
  AND (author = ANY($2::text[]) OR source #>> '{sender,alt_id}' = ANY($2)) IS NOT TRUE
"""


async def count_of_others(connection: Connection, turn_id: UUID, authors: Iterable[str]) -> int:
    """Return how many messages of a claimed turn have none of these platform ids as author."""
    count: int = await connection.fetchval(COUNT_OF_OTHERS_SQL, turn_id, sorted(authors))
    return count


MARK_UNANSWERED_SQL: Final[LiteralString] = """
-- messages: mark the messages of turns that ended without an answer
UPDATE messages SET unanswered = ended.reason
FROM unnest($1::uuid[], $2::text[]) AS ended (turn_id, reason)
WHERE messages.turn_id = ended.turn_id AND role = 'user'
"""


async def mark_unanswered(connection: Connection, ended: Sequence[UnansweredTurn]) -> None:
    """Mark the messages of turns of locked sessions; of several reasons the last one wins."""
    last = {turn.turn_id: turn for turn in ended}
    if last:
        await connection.execute(MARK_UNANSWERED_SQL, *columns(last.values(), 2))


REOPEN_TURN_SQL: Final[LiteralString] = """
-- messages: unmark the messages of a turn that is retried
UPDATE messages SET unanswered = NULL WHERE turn_id = $1 AND unanswered IS NOT NULL
"""


async def reopen_turn(connection: Connection, turn_id: UUID) -> None:
    """Remove the unanswered mark from the messages of a turn; its session is locked."""
    await connection.execute(REOPEN_TURN_SQL, turn_id)


GIVE_UP_SQL: Final[LiteralString] = """
-- messages: mark routed messages as unanswered, unless they have an answer
UPDATE messages AS question SET unanswered = 'failed'
WHERE id = ANY($1::uuid[]) AND role = 'user' AND turn_id IS NULL
  AND NOT EXISTS (SELECT FROM messages AS answer WHERE answer.reply_to = question.id)
"""


async def give_up(connection: Connection, message_ids: Sequence[UUID]) -> None:
    """Mark messages of a `stream` agent as unanswered; their sessions are locked."""
    if message_ids:
        await connection.execute(GIVE_UP_SQL, message_ids)


REOPEN_SQL: Final[LiteralString] = """
-- messages: unmark routed messages that have an answer after all
UPDATE messages SET unanswered = NULL WHERE id = ANY($1::uuid[])
"""


async def reopen(connection: Connection, message_ids: Sequence[UUID]) -> None:
    """Remove the unanswered mark from messages that have an answer after all."""
    if message_ids:
        await connection.execute(REOPEN_SQL, list(message_ids))


BRING_FILES_SQL: Final[LiteralString] = """
-- messages: add late files to an unanswered message
UPDATE messages SET content = coalesce($4, content),
    details = coalesce(details, '{}') || jsonb_build_object('attachments', $3::jsonb)
WHERE session_id = $1 AND platform_message_id = $2 AND role = 'user'
  AND unanswered IS NOT NULL AND turn_id IS NULL AND NOT coalesce(details, '{}') ? 'attachments'
"""


async def bring_files(
    connection: Connection,
    session_id: UUID,
    platform_message_id: str,
    attachments: Sequence[JsonValue],
    words: str | None,
) -> bool:
    """Add files and words to an unanswered message without a turn; False if there is none."""
    written = to_json(attachments).decode()
    status = await connection.execute(
        BRING_FILES_SQL, session_id, platform_message_id, written, words
    )
    return not status.endswith(" 0")


SIZE_OF_TURN_SQL: Final[LiteralString] = """
-- messages: number and size of the user messages of a turn
SELECT count(*), coalesce(sum(
    coalesce(octet_length(content), 0) + octet_length(details::text) + octet_length(source::text)
), 0) FROM messages WHERE turn_id = $1 AND role = 'user'
"""


COUNT_PLACED_SQL: Final[LiteralString] = """
-- messages: count which of these messages are rows of a turn
SELECT count(*) FROM messages WHERE id = ANY($1::uuid[]) AND turn_id = $2
"""


async def count_placed(connection: Connection, ids: Iterable[UUID], turn_id: UUID) -> int:
    """Return how many of these messages are rows of a turn."""
    count: int = await connection.fetchval(COUNT_PLACED_SQL, list(ids), turn_id)
    return count


class TurnSize(NamedTuple):
    """The number and size of the messages that a turn answers."""

    messages: int
    size_bytes: int


async def size_of_turn(connection: Connection, turn_id: UUID) -> TurnSize:
    """Return the number of user messages in a turn, and their approximate size."""
    row = await connection.fetchrow(SIZE_OF_TURN_SQL, turn_id)
    return TurnSize(0, 0) if row is None else TurnSize(row[0], int(row[1]))


def _turn_message(row: Record, details: Mapping[str, object]) -> TurnMessage:
    fields = {
        **details,
        "id": str(row["id"]),
        "seq": row["seq"],
        "text": row["content"],
        "stored_at": row["created_at"],
    }
    # Every turn reads this, so the stored JSON of the source is inserted as it is.
    body = b'%b,"source":%b}' % (to_json(fields)[:-1], row["source"].encode())
    try:
        # Validate as JSON: the models are strict about Python types and lenient about JSON types.
        return TurnMessage.model_validate_json(body)
    except ValidationError:
        source = read_source(row["source"], "messages").model_dump(mode="json", exclude_none=True)
        message = read_record(TurnMessage, fields | {"source": source}, "messages", is_json=True)
        if message is None:
            raise
        return message


QUESTIONS_SQL: Final[LiteralString] = """
-- messages: the routed messages of `stream` answers, and their earlier answers
SELECT question.session_id, want.id, question.source, want.part,
       question.kind, answer.result_id, question.unanswered IS NOT NULL AS was_given_up
FROM unnest($1::uuid[], $2::int[]) AS want (id, part)
-- The result of a turn answers its messages; it has a fencing number.
CROSS JOIN LATERAL (
    SELECT session_id, source, details ->> 'kind' AS kind, unanswered FROM messages
    WHERE id = want.id AND source IS NOT NULL AND turn_id IS NULL LIMIT 1
) AS question
LEFT JOIN LATERAL (
    SELECT details ->> 'result_id' AS result_id FROM messages
    WHERE reply_to = want.id AND part = want.part LIMIT 1
) AS answer ON true
UNION ALL
-- A rewound message counts as answered.
SELECT removed.session_id, want.id, removed.source, want.part, NULL, 'undone', false
FROM unnest($1::uuid[], $2::int[]) AS want (id, part)
CROSS JOIN LATERAL (
    SELECT session_id, source FROM removed_messages
    WHERE id = want.id AND source IS NOT NULL AND turn_id IS NULL LIMIT 1
) AS removed
"""


async def find_questions(
    connection: Connection, wanted: Sequence[tuple[UUID, int]]
) -> dict[tuple[UUID, int], tuple[UUID, Question, str | None]]:
    """Return, by (message id, part), the session, the message, and the result id that answered it."""
    rows = await connection.fetch(QUESTIONS_SQL, *columns(wanted, 2))
    found = {}
    for row in rows:
        source = read_source(row["source"], "messages")
        question = Question(
            row["id"], source, is_of_person(row["kind"], source), row["was_given_up"]
        )
        found[row["id"], row["part"]] = row["session_id"], question, row["result_id"]
    return found


INSERT_LATE_SQL: Final[LiteralString] = """
-- late_results: keep late results for operators
INSERT INTO late_results (id, session_id, turn_id, attempt, reply_to, body)
SELECT * FROM unnest($1::text[], $2::uuid[], $3::uuid[], $4::int[], $5::text[], $6::bytea[])
ON CONFLICT (id) DO NOTHING
"""


async def keep_late(connection: Connection, rows: Sequence[LateRow]) -> None:
    """Store results that arrived after their turn had moved on; a repeat is stored once."""
    if rows:
        await connection.execute(INSERT_LATE_SQL, *columns(rows, 6))
