"""Store the marks of streams, and find the messages in the database that streams should hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane.domain.turns.retries import PersonRow
from chatlane.postgres.stored_values import read_person_row
from chatlane.reconciliation.stream_marks import StreamMark

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark, and the progress of the search for lost messages.

    Attributes:
        search_after: The search continues after this message id; None without a search.
        search_until: Last message id of the search; later messages were published after the loss.
    """

    mark: StreamMark
    search_after: UUID | None = None
    search_until: UUID | None = None

    def searched(self, through: UUID) -> "Marked":
        """Return the mark with the search advanced to an id, or ended."""
        if self.search_until is None or through >= self.search_until:
            return Marked(self.mark)
        return replace(self, search_after=through)


READ_MARKS_SQL: Final[LiteralString] = """
-- stream_marks: all marks
SELECT stream, generation, host, holes, first_seq, first_at, last_seq, last_at,
       search_after, search_until
FROM stream_marks ORDER BY stream
"""


async def read(connection: "PoolConnectionProxy") -> dict[str, Marked]:
    """Return the marks by stream."""
    found: dict[str, Marked] = {}
    for row in await connection.fetch(READ_MARKS_SQL):
        stream, *fields, search_after, search_until = row.values()
        found[stream] = Marked(StreamMark(*fields), search_after, search_until)
    return found


WRITE_MARK_SQL: Final[LiteralString] = """
-- stream_marks: store the state of a stream
INSERT INTO stream_marks (
    stream, generation, host, holes, first_seq, first_at, last_seq, last_at,
    search_after, search_until)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (stream) DO UPDATE SET
    generation = excluded.generation, host = excluded.host, holes = excluded.holes,
    first_seq = excluded.first_seq, first_at = excluded.first_at,
    last_seq = excluded.last_seq, last_at = excluded.last_at,
    search_after = excluded.search_after, search_until = excluded.search_until
"""


async def write(connection: "PoolConnectionProxy", stream: str, marked: Marked) -> None:
    """Store the mark of a stream."""
    mark = marked.mark
    await connection.execute(
        WRITE_MARK_SQL,
        stream,
        mark.generation,
        mark.host,
        mark.holes,
        mark.first_seq,
        mark.first_at,
        mark.last_seq,
        mark.last_at,
        marked.search_after,
        marked.search_until,
    )


class Piece(NamedTuple):
    """A batch of messages in the order of their ids.

    Attributes:
        awaited: Session ids by id of the messages that a `stream` agent still has to answer.
        through: Id of the last message in the batch; None if the batch is empty.
    """

    awaited: dict[UUID, UUID]
    through: UUID | None


AWAITED_SQL: Final[LiteralString] = """
-- stream_marks: the next messages, and whether each was routed and is not answered; copies in
-- branches and imported rows have no id or no source, claimed messages have a turn
WITH piece AS (
    SELECT id, session_id, seq, role, turn_id, source, state, unanswered,
           details ? 'observed' AS is_observed
    FROM messages
    WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3
), talk AS (
    -- Answers come in the order of the questions: no question before the last answered one is open.
    SELECT of.session_id, coalesce((
        SELECT question.seq FROM messages AS answer
        JOIN messages AS question ON question.id = answer.reply_to
        WHERE answer.session_id = of.session_id AND answer.reply_to IS NOT NULL
        ORDER BY answer.seq DESC LIMIT 1), 0) AS answered
    FROM (SELECT DISTINCT session_id FROM piece) AS of
    JOIN sessions ON sessions.id = of.session_id AND sessions.agent = ANY($4::text[])
)
SELECT piece.id, piece.session_id,
       coalesce(role = 'user' AND turn_id IS NULL AND source IS NOT NULL
                AND state IS DISTINCT FROM 'deleted' AND unanswered IS NULL
                AND is_observed IS NOT TRUE AND piece.seq > talk.answered, false)
FROM piece LEFT JOIN talk ON talk.session_id = piece.session_id
ORDER BY piece.id
"""


async def find_awaited(
    connection: "PoolConnectionProxy",
    after: UUID,
    until: UUID,
    agents: Iterable[str],
    limit: int,
) -> Piece:
    """Return the next messages up to `until`; `agents` are those with stream delivery."""
    rows = await connection.fetch(AWAITED_SQL, after, until, limit, sorted(agents))
    awaited = {row[0]: row[1] for row in rows if row[2]}
    return Piece(awaited, rows[-1][0] if rows else None)


class Lost(NamedTuple):
    """A message that the stream does not hold."""

    id: UUID
    session_id: UUID
    seq: int
    row: PersonRow


CONFIRM_LOST_SQL: Final[LiteralString] = """
-- stream_marks: messages of locked sessions that are not in the outbox
SELECT id, session_id, seq, content, details::text, author, platform_message_id, source::text,
       created_at
FROM messages
WHERE id = ANY($1::uuid[]) AND session_id = ANY($2::uuid[]) AND NOT EXISTS (
    SELECT FROM outbox
    WHERE outbox.session_id = messages.session_id AND outbox.stream = 'ROUTED'
      AND (outbox.message_id IN (messages.id::text, 'again:' || messages.id::text)
           OR starts_with(outbox.message_id, 'again:' || messages.id::text || ':')))
ORDER BY session_id, seq
"""


async def confirm_lost(
    connection: "PoolConnectionProxy", ids: Iterable[UUID], locked: Iterable[UUID]
) -> list[Lost]:
    """Return the messages to publish again, in the order of their sessions."""
    rows = await connection.fetch(CONFIRM_LOST_SQL, sorted(ids), sorted(locked))
    found: list[Lost] = []
    for row in rows:
        message_id, session_id, seq, *fields = row.values()
        found.append(Lost(message_id, session_id, seq, read_person_row(PersonRow(*fields))))
    return found


SET_ASIDE_SQL: Final[LiteralString] = """
-- stream_marks: the subjects that have a dead letter
SELECT DISTINCT subject FROM dead_letters WHERE subject = ANY($1::text[])
"""


async def find_set_aside(connection: "PoolConnectionProxy", subjects: Sequence[str]) -> set[str]:
    """Return the subjects that have a dead letter, which an operator has to decide."""
    return {row[0] for row in await connection.fetch(SET_ASIDE_SQL, list(subjects))}


UNKNOWN_ROUTED_SQL: Final[LiteralString] = """
-- stream_marks: the number of messages that the database does not know
SELECT count(*) FROM unnest($1::uuid[], $2::uuid[]) AS held (session_id, id)
WHERE NOT EXISTS (SELECT FROM messages WHERE messages.id = held.id)
  AND NOT EXISTS (SELECT FROM removed_messages WHERE removed_messages.id = held.id)
  AND NOT EXISTS (SELECT FROM audit WHERE audit.session_id = held.session_id
                  AND action = 'session_removed')
"""


async def count_unknown_routed(
    connection: "PoolConnectionProxy", held: Sequence[tuple[UUID, UUID]]
) -> int:
    """Return how many of these (session, message) pairs the database does not know."""
    count: int = await connection.fetchval(
        UNKNOWN_ROUTED_SQL, [pair[0] for pair in held], [pair[1] for pair in held]
    )
    return count


UNSAID_SQL: Final[LiteralString] = """
-- stream_marks: the number of outbound messages that no decision has assigned
SELECT count(*) FROM unnest($1::uuid[], $2::bigint[]) AS held (session_id, out_seq)
JOIN sessions ON sessions.id = held.session_id
WHERE sessions.next_out_seq <= held.out_seq
"""


async def count_unsaid(connection: "PoolConnectionProxy", held: Sequence[tuple[UUID, int]]) -> int:
    """Return how many of these (session, out_seq) pairs no decision has assigned."""
    count: int = await connection.fetchval(
        UNSAID_SQL, [pair[0] for pair in held], [pair[1] for pair in held]
    )
    return count
