"""Change transcripts: lock their counters, place and move rows, and archive removed rows.

Callers hold the lock of the session and have written all earlier decisions about it: these
statements see rows, not pending effects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, LiteralString, NamedTuple, TypeAlias

from chatlane.domain.sessions.transcripts import KnownRow, UserRow, Version, turn_starts
from chatlane.domain.turns.retries import PersonRow
from chatlane.postgres.pool import columns, count_of
from chatlane.postgres.stored_values import read_person_row
from chatlane.search import index_sql
from chatlane_schemas.fields import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.transcripts import AppendedRow

Reason: TypeAlias = Literal["undone", "replaced"]

# A turn has at most 50 messages, and a rewind covers few turns.
_USER_ROWS_AT_ONCE: Final = 200


@dataclass(slots=True)
class TranscriptCounters:
    """The columns of a locked session that a change of its transcript reads and updates.

    `last_message_at` is that of the rows that the change adds.
    """

    id: UUID
    next_seq: int
    revision: int
    seq_gaps: int
    active_turn: UUID | None
    has_ended: bool
    owner: str | None
    agent: str
    read_only: bool
    last_message_at: datetime | None = None

    @property
    def version(self) -> Version:
        """Return the version of the transcript."""
        return Version(self.revision, self.next_seq)


LOCK_SQL: Final[LiteralString] = """
-- sessions: lock the session of a transcript
SELECT id, next_seq, revision, seq_gaps, active_turn,
       ended_at IS NOT NULL AS has_ended, owner, agent, read_only
FROM sessions WHERE id = $1 ORDER BY id FOR NO KEY UPDATE
"""


async def lock(connection: Connection, session_id: UUID) -> TranscriptCounters | None:
    """Lock a session and return its counters; None if it does not exist."""
    row = await connection.fetchrow(LOCK_SQL, session_id)
    return None if row is None else TranscriptCounters(*row.values())


UPDATE_SQL: Final[LiteralString] = """
-- sessions: write the counters of a locked transcript
UPDATE sessions SET
    next_seq = $2, revision = $3, seq_gaps = $4, last_message_at = greatest(last_message_at, $5)
WHERE id = $1
"""


async def write(connection: Connection, session: TranscriptCounters) -> None:
    """Write the counters of a locked session."""
    await connection.execute(
        UPDATE_SQL,
        session.id,
        session.next_seq,
        session.revision,
        session.seq_gaps,
        session.last_message_at,
    )


VERSION_SQL: Final[LiteralString] = """
-- sessions: the version of a transcript
SELECT revision, next_seq FROM sessions WHERE id = $1
"""


async def find_version(connection: Connection, session_id: UUID) -> str | None:
    """Return the version of a transcript as seen by the current transaction."""
    row = await connection.fetchrow(VERSION_SQL, session_id)
    return None if row is None else Version(*row.values()).text


FIND_EDGE_SQL: Final[LiteralString] = """
-- messages: rows that a summary replaces, the role of the next row, and rows of the live turn
SELECT (SELECT count(*) FROM (
            SELECT FROM messages WHERE session_id = $1 AND seq <= $2 LIMIT $3) AS oldest) AS found,
       (SELECT role FROM messages WHERE session_id = $1 AND seq > $2
        ORDER BY seq LIMIT 1) AS next_role,
       EXISTS (SELECT FROM messages
               WHERE turn_id = $4 AND session_id = $1 AND seq <= $2) AS is_in_work
"""


class Edge(NamedTuple):
    """The rows around the last place of a summary.

    Attributes:
        found: How many rows the summary replaces, counted up to the limit.
        next_role: Role of the first row after it.
        is_in_progress: Whether the live turn answers some of the replaced rows.
    """

    found: int
    next_role: str | None
    is_in_progress: bool


async def find_edge(
    connection: Connection, session: TranscriptCounters, through_seq: int, limit: int
) -> Edge:
    """Return the rows around a place; counts at most `limit` rows up to it."""
    [row] = await connection.fetch(
        FIND_EDGE_SQL, session.id, through_seq, limit, session.active_turn
    )
    return Edge(*row.values())


FIND_KNOWN_SQL: Final[LiteralString] = """
-- messages: which of these rows are stored, pending or archived
WITH line AS MATERIALIZED (
    -- Read once: a read for each row exceeds the timeout with a thousand rows and a long line.
    SELECT session_id, platform_message_id, message_id FROM waiting
    WHERE session_id = $1 AND (platform_message_id IN (SELECT unnest($3::text[]))
                               OR message_id IN (SELECT unnest($4::uuid[])))
)
SELECT want.place, found.session_id, found.seq
FROM unnest($2::int[], $3::text[], $4::uuid[]) AS want (place, platform_message_id, id)
CROSS JOIN LATERAL (
    SELECT session_id, seq FROM messages
    WHERE session_id = $1 AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, seq FROM messages WHERE id = want.id
    UNION ALL
    SELECT session_id, NULL FROM line
    WHERE platform_message_id = want.platform_message_id OR message_id = want.id
    UNION ALL
    SELECT session_id, NULL FROM removed_messages
    WHERE session_id = $1 AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, NULL FROM removed_messages WHERE id = want.id
) AS found
"""


async def find_known(
    connection: Connection, session_id: UUID, rows: Sequence[AppendedRow]
) -> dict[int, KnownRow] | None:
    """Return the stored rows by index in `rows`; None if one belongs to another session."""
    named = [
        (number, row.platform_message_id or None, row.message_id)
        for number, row in enumerate(rows)
        if row.platform_message_id or row.message_id
    ]
    if not named:
        return {}
    found = await connection.fetch(FIND_KNOWN_SQL, session_id, *columns(named, 3))
    if any(stored["session_id"] != session_id for stored in found):
        return None
    # A row in the transcript takes precedence over a waiting or archived one.
    ordered = sorted(found, key=lambda stored: stored["seq"] is not None)
    return {stored["place"]: KnownRow(stored["seq"]) for stored in ordered}


class LastTurns(NamedTuple):
    """The newest turns of a transcript.

    Attributes:
        from_seq: First place of the oldest of these turns; all later rows belong to them.
        text: Text of the users in the oldest of these turns.
    """

    from_seq: int
    text: str | None


async def last_turns(connection: Connection, session_id: UUID, turns: int) -> LastTurns | None:
    """Return the last turns, as many as there are; None if the transcript has no user message."""
    starts = await _turn_starts(connection, session_id, turns)
    if not starts:
        return None
    return LastTurns(starts[-1], await _words_of_turn(connection, session_id, starts))


USER_ROWS_SQL: Final[LiteralString] = """
-- messages: user messages below a place, newest first
SELECT seq, turn_id FROM messages
WHERE session_id = $1 AND seq < $2 AND role = 'user' AND (details ? 'observed') IS NOT TRUE
ORDER BY seq DESC LIMIT $3
"""


async def _turn_starts(connection: Connection, session_id: UUID, wanted: int) -> list[int]:
    """Return the first places of the last turns, newest first, as many as there are."""
    found: list[UserRow] = []
    below = MAX_INT64
    while True:
        rows = await connection.fetch(USER_ROWS_SQL, session_id, below, _USER_ROWS_AT_ONCE)
        found += [UserRow(*row.values()) for row in rows]
        starts = turn_starts(found)
        # A turn beyond the wanted ones was found, so the last wanted one is complete.
        if len(rows) < _USER_ROWS_AT_ONCE or len(starts) > wanted:
            return starts[:wanted]
        below = found[-1].seq


WORDS_SQL: Final[LiteralString] = """
-- messages: the user messages of one turn
SELECT content FROM messages
WHERE session_id = $1 AND seq >= $2 AND seq < $3 AND role = 'user' AND (details ? 'observed') IS NOT TRUE
ORDER BY seq LIMIT 50
"""


async def _words_of_turn(
    connection: Connection, session_id: UUID, starts: Sequence[int]
) -> str | None:
    """Return the user text at the start of the oldest of these turns."""
    end = starts[-2] if len(starts) > 1 else MAX_INT64
    rows = await connection.fetch(WORDS_SQL, session_id, starts[-1], end)
    return "\n".join(row["content"] for row in rows if row["content"]) or None


SAID_SQL: Final[LiteralString] = """
-- messages: the undeleted user messages from a place on, to be run again
SELECT content, details, author, platform_message_id, source, created_at FROM messages
WHERE session_id = $1 AND seq >= $2 AND role = 'user' AND state IS DISTINCT FROM 'deleted'
  AND (details ? 'observed') IS NOT TRUE
ORDER BY seq LIMIT 50
"""


async def rows_of_people_from(
    connection: Connection, session_id: UUID, from_seq: int
) -> tuple[PersonRow, ...]:
    """Return the user messages from a place on, oldest first: at most as many as a turn takes.

    Deleted messages are omitted, so that they never run again.
    """
    rows = await connection.fetch(SAID_SQL, session_id, from_seq)
    return tuple(read_person_row(PersonRow(*row.values())) for row in rows)


TAKE_OUT_SQL: Final[LiteralString] = """
-- messages → removed_messages: archive the rows between two places, without or with context
WITH removed AS (
    DELETE FROM messages
    WHERE session_id = $1 AND seq >= $2 AND seq <= $3
      AND ($5::boolean OR (details ? 'observed') IS NOT TRUE)
    RETURNING *
), counted AS (
    UPDATE sessions SET revision = revision + 1, seq_gaps = seq_gaps + taken.rows
    FROM (SELECT count(*) AS rows FROM removed) AS taken
    WHERE sessions.id = $1 AND taken.rows > 0
    RETURNING sessions.revision
)
INSERT INTO removed_messages (
    session_id, removal, seq, reason, id, role, content, details, author, platform_message_id,
    source, turn_id, reply_to, part, created_at, row_id, state, unanswered, successor_from,
    successor_through)
SELECT session_id, counted.revision, seq, $4::text, id, role, content, details, author,
       platform_message_id, source, turn_id, reply_to, part, created_at, row_id, state, unanswered,
       $6::bigint, $7::bigint
FROM removed CROSS JOIN counted
"""


class Successors(NamedTuple):
    """The places of the rows that take the place of removed rows."""

    from_seq: int
    through_seq: int


async def take_out(
    connection: Connection,
    session_id: UUID,
    from_seq: int,
    *,
    through_seq: int = MAX_INT64,
    reason: Reason = "undone",
    successors: Successors | None = None,
) -> int:
    """Move rows of a locked session to the archive; returns how many.

    If any rows move, the session's revision grows by one, and its number of places without a row
    grows by the number of rows.

    Without successors the rows of a turn are taken back. Overheard messages, reactions and other
    context in between belong to no turn, and stay.

    Args:
        reason: `undone`, or `replaced` if a summary or other rows say the same.
        successors: Rows that leave the transcript if the removed ones come back.
    """
    status = await connection.execute(
        TAKE_OUT_SQL,
        session_id,
        from_seq,
        through_seq,
        reason,
        successors is not None,
        *(successors or (None, None)),
    )
    await index_sql.forget_rows(connection, session_id, from_seq, through_seq)
    return count_of(status)


FIND_REMOVAL_SQL: Final[LiteralString] = """
-- removed_messages: the rows that one change took out, and what is in their way
WITH archived AS (
    SELECT * FROM removed_messages WHERE session_id = $1 AND removal = $2
), bounds AS (
    SELECT min(seq) AS first_seq, max(seq) AS last_seq, min(reason) AS reason,
           min(successor_from) AS successor_from, max(successor_through) AS successor_through,
           count(*) FILTER (
               WHERE role = 'user' AND source IS NOT NULL
                 AND coalesce(details ->> 'kind', 'message') = 'message'
                 AND source #>> '{sender,is_bot}' IS DISTINCT FROM 'true') AS person_messages
    FROM archived
), taken AS (
    SELECT live.* FROM archived CROSS JOIN LATERAL (
        SELECT session_id, seq FROM messages
        WHERE messages.session_id = archived.session_id AND messages.seq = archived.seq
        UNION ALL
        SELECT session_id, seq FROM messages WHERE messages.id = archived.id
        UNION ALL
        SELECT session_id, seq FROM messages
        WHERE messages.reply_to = archived.reply_to AND messages.part = archived.part
    ) AS live
)
SELECT bounds.*,
       (SELECT max(later.removal) FROM removed_messages AS later
        WHERE later.session_id = $1 AND later.removal > $2 AND later.reason = 'replaced'
          AND later.successor_through >= first_seq) AS covered_by,
       EXISTS (
           SELECT FROM taken
           WHERE session_id <> $1 OR successor_from IS NULL
              OR seq < successor_from OR seq > successor_through) AS is_taken
FROM bounds
"""


class Removal(NamedTuple):
    """The rows that one change took out of a transcript.

    Attributes:
        first_seq: First place of the rows; None if there are none.
        successor_from: First place of the rows that took their place; None if they were undone.
        person_messages: Messages of people among the rows.
        covered_by: A later change that replaced rows at these places or behind them.
        is_taken: Whether another row has the place or the id of one of them.
    """

    first_seq: int | None
    last_seq: int | None
    reason: str | None
    successor_from: int | None
    successor_through: int | None
    person_messages: int
    covered_by: int | None
    is_taken: bool


async def find_removal(connection: Connection, session_id: UUID, removal: int) -> Removal:
    """Return the removal by which a change of a locked session took rows out."""
    [row] = await connection.fetch(FIND_REMOVAL_SQL, session_id, removal)
    return Removal(*row.values())


PUT_BACK_SQL: Final[LiteralString] = """
-- removed_messages → messages: put archived rows back at their places
WITH back AS (
    DELETE FROM removed_messages WHERE session_id = $1 AND removal = $2 RETURNING *
), found AS (
    DELETE FROM searchable WHERE session_id = $1 AND removal = $2
)
INSERT INTO messages (
    session_id, seq, id, role, content, details, author, platform_message_id, source, turn_id,
    reply_to, part, created_at, row_id, state, unanswered)
SELECT session_id, seq, id, role, content, details, author, platform_message_id, source, turn_id,
       reply_to, part, created_at, row_id, state, unanswered
FROM back
"""


async def put_back(
    connection: Connection, session_id: UUID, removal: int, from_seq: int, through_seq: int
) -> int:
    """Move archived rows of a locked session back to their places; returns how many.

    The caller counts the change in the counters of the session.
    """
    status = await connection.execute(PUT_BACK_SQL, session_id, removal)
    await index_sql.forget_rows(connection, session_id, from_seq, through_seq)
    return count_of(status)


COUNT_SAID_SQL: Final[LiteralString] = """
-- messages: count what people wrote in their chats from a place on
SELECT count(*) FROM messages
WHERE session_id = $1 AND seq >= $2 AND role = 'user' AND source IS NOT NULL
  AND coalesce(details ->> 'kind', 'message') = 'message'
  AND source #>> '{sender,is_bot}' IS DISTINCT FROM 'true'
  AND (details ? 'observed') IS NOT TRUE
"""


async def count_said(connection: Connection, session_id: UUID, from_seq: int) -> int:
    """Return how many rows from a place on people wrote in their chats."""
    count: int = await connection.fetchval(COUNT_SAID_SQL, session_id, from_seq)
    return count


UNCOUNT_SQL: Final[LiteralString] = """
-- sessions: messages of people that were undone do not count
UPDATE sessions SET user_messages = greatest(0, user_messages - $2) WHERE id = $1
"""


RECOUNT_SQL: Final[LiteralString] = """
-- sessions: messages of people that came back count again
UPDATE sessions SET user_messages = user_messages + $2 WHERE id = $1
"""


async def count_restored(connection: Connection, session_id: UUID, person_messages: int) -> None:
    """Add messages that came back to those of people in a locked session."""
    await connection.execute(RECOUNT_SQL, session_id, person_messages)


async def uncount_messages(connection: Connection, session_id: UUID, person_messages: int) -> None:
    """Subtract messages that were undone from those of people in a locked session."""
    await connection.execute(UNCOUNT_SQL, session_id, person_messages)


COUNT_TAIL_SQL: Final[LiteralString] = """
-- messages: count the rows after a place, and whether one waits for a `stream` answer
SELECT count(*),
       coalesce(bool_or(
           role = 'user' AND id IS NOT NULL AND source IS NOT NULL AND turn_id IS NULL
           AND unanswered IS NULL AND (details ? 'observed') IS NOT TRUE AND state IS DISTINCT FROM 'deleted'
           AND NOT EXISTS (SELECT FROM messages AS answer WHERE answer.reply_to = tail.id)), false)
FROM messages AS tail WHERE session_id = $1 AND seq > $2
"""


async def count_tail(
    connection: Connection, session_id: UUID, through_seq: int
) -> tuple[int, bool]:
    """Return how many rows follow a place, and whether one of them still waits for an answer.

    Only messages that were routed to a `stream` agent count: turns have their own state.
    """
    [[count, is_asking]] = await connection.fetch(COUNT_TAIL_SQL, session_id, through_seq)
    return count, is_asking


MOVE_TAIL_SQL: Final[LiteralString] = """
-- messages: move the rows after a summary to the session that begins with it
WITH placed AS (
    SELECT ctid AS place, $4 - 1 + row_number() OVER (ORDER BY seq) AS to_seq
    FROM messages WHERE session_id = $1 AND seq > $2
), counted AS (
    UPDATE sessions SET revision = revision + 1, seq_gaps = seq_gaps + moved.rows
    FROM (SELECT count(*) AS rows FROM placed) AS moved
    WHERE sessions.id = $1 AND moved.rows > 0
)
UPDATE messages SET
    session_id = $3, seq = placed.to_seq,
    -- The id that `row_id_of` gives for the place that the row leaves.
    row_id = coalesce(messages.row_id, (
        SELECT encode(set_byte(set_byte(
            hash, 6, get_byte(hash, 6) & 15 | 128), 8, get_byte(hash, 8) & 63 | 128), 'hex')::uuid
        FROM substr(sha256(uuid_send(messages.session_id) || int8send(messages.seq)), 1, 16) AS hash))
FROM placed
-- Rows change only under the lock of their session, so their places are stable. With a join by
-- keys, a plan made for a small table compares each row with each.
WHERE messages.ctid = placed.place
"""


async def move_tail(
    connection: Connection,
    session_id: UUID,
    through_seq: int,
    to_session: UUID,
    first_seq: int,
) -> None:
    """Move the rows after a place to another session, to the places from `first_seq` on."""
    await connection.execute(MOVE_TAIL_SQL, session_id, through_seq, to_session, first_seq)
    await index_sql.forget_rows(connection, session_id, through_seq + 1)


GIVE_TITLE_UP_SQL: Final[LiteralString] = """
-- sessions: clear title and pin of a session and return them
UPDATE sessions SET title = NULL, title_scope = NULL, pinned_at = NULL
FROM (SELECT title, title_scope, pinned_at FROM sessions WHERE id = $1) AS before
WHERE sessions.id = $1 RETURNING before.title, before.title_scope, before.pinned_at
"""

INHERIT_SQL: Final[LiteralString] = """
-- sessions: copy title, settings and holds to the session that continues another one
WITH holds AS (UPDATE session_holds SET session_id = $2 WHERE session_id = $1)
UPDATE sessions AS child SET
    title = $3, title_scope = $4, cwd = parent.cwd, model = parent.model, config = parent.config,
    model_override = parent.model_override, held_until = parent.held_until,
    answers = parent.answers, origin = parent.origin, archived_at = parent.archived_at,
    title_by_model = parent.title_by_model, pinned_at = $5, project_id = parent.project_id,
    labels = parent.labels, worktree = parent.worktree
FROM sessions AS parent WHERE child.id = $2 AND parent.id = $1
"""


async def inherit(connection: Connection, parent: UUID, child: UUID) -> None:
    """Move title and pin of a session to its successor, and copy its settings."""
    [[title, scope, pinned_at]] = await connection.fetch(GIVE_TITLE_UP_SQL, parent)
    await connection.execute(INHERIT_SQL, parent, child, title, scope, pinned_at)
