"""Find the data of a person in every table, and delete or blank it.

The queries scan large tables by their keys, in batches and without locks. They delete and blank
rows under the lock of the session. The source of a row names its sender, and no index covers it:
erasures are rare, and an index would slow down every message.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.postgres.pool import columns
from chatlane.privacy.erasure_rules import Row, SenderSpan
from chatlane.search import index_sql

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Transaction

_ROWS_AT_ONCE: Final = 20_000
_CHANGED_AT_ONCE: Final = 5_000
_BODIES_AT_ONCE: Final = 200
# A key of a session begins with `agent:` or the name of an origin, in ASCII.
_BEHIND_ALL: Final = "\x7f"
_START: Final = UUID(int=0)
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _edge_sql(table: LiteralString, number: LiteralString) -> LiteralString:
    return f"""
-- {table}: the last row of the next piece of a scan
SELECT session_id, {number} FROM {table} WHERE (session_id, {number}) > ($1, $2)
ORDER BY session_id, {number} OFFSET $3 LIMIT 1
"""  # noqa: S608 - names of this module


def _senders_sql(
    table: LiteralString, number: LiteralString, stored_at: LiteralString
) -> LiteralString:
    return f"""
-- {table}: the senders of the rows of a piece, by session
SELECT session_id, who, min(at), max(at) FROM (
    SELECT session_id, sender_of(source) AS who, {stored_at} AS at
    FROM {table}
    WHERE (session_id, {number}) > ($1, $2)
      AND ($3::uuid IS NULL OR (session_id, {number}) <= ($3, $4))
      AND source #> '{{sender}}' IS NOT NULL AND {stored_at} <= $5
      AND ($6::text IS NULL OR (source ->> 'platform' = $6 AND source ->> 'account' = $7))
) AS piece GROUP BY session_id, who
"""  # noqa: S608 - names of this module


def _quotes_sql(
    table: LiteralString, number: LiteralString, stored_at: LiteralString
) -> LiteralString:
    return f"""
-- {table}: whom the rows of a piece quote, by session
SELECT session_id, details #>> '{{quote,sender_id}}', details #>> '{{replied_row,id}}', max({stored_at})
FROM {table}
WHERE (session_id, {number}) > ($1, $2)
  AND ($3::uuid IS NULL OR (session_id, {number}) <= ($3, $4))
  AND details ? 'quote' AND {stored_at} <= $5
  AND source ->> 'platform' = $6 AND source ->> 'account' = $7
GROUP BY 1, 2, 3
"""  # noqa: S608 - names of this module


EDGE_OF_MESSAGES_SQL: Final = _edge_sql("messages", "seq")
SENDERS_OF_MESSAGES_SQL: Final = _senders_sql("messages", "seq", "created_at")
EDGE_OF_WAITING_SQL: Final = _edge_sql("waiting", "arrival")
SENDERS_OF_WAITING_SQL: Final = _senders_sql("waiting", "arrival", "stored_at")
EDGE_OF_REMOVED_SQL: Final = _edge_sql("removed_messages", "removal")
SENDERS_OF_REMOVED_SQL: Final = _senders_sql("removed_messages", "removal", "created_at")

QUOTES_IN_MESSAGES_SQL: Final = _quotes_sql("messages", "seq", "created_at")
QUOTES_IN_WAITING_SQL: Final = _quotes_sql("waiting", "arrival", "stored_at")
QUOTES_IN_REMOVED_SQL: Final = _quotes_sql("removed_messages", "removal", "created_at")

# Scan waiting messages first: they may move to a transcript at any moment.
_WALKS: Final = (
    (EDGE_OF_WAITING_SQL, SENDERS_OF_WAITING_SQL),
    (EDGE_OF_MESSAGES_SQL, SENDERS_OF_MESSAGES_SQL),
    (EDGE_OF_REMOVED_SQL, SENDERS_OF_REMOVED_SQL),
)
_WALKS_OF_QUOTES: Final = (
    (EDGE_OF_WAITING_SQL, QUOTES_IN_WAITING_SQL),
    (EDGE_OF_MESSAGES_SQL, QUOTES_IN_MESSAGES_SQL),
    (EDGE_OF_REMOVED_SQL, QUOTES_IN_REMOVED_SQL),
)


RowT = TypeVar("RowT")


async def walk_pages(
    transaction: "Transaction",
    read: "Callable[[PoolConnectionProxy, RowT | None], Awaitable[Sequence[RowT]]]",
) -> "AsyncIterator[Sequence[RowT]]":
    """Yield batches of rows, each read in a transaction, until a batch is empty.

    Args:
        transaction: Opens a transaction for each batch.
        read: Returns the rows after the last row of the batch before; None for the first.
    """
    last: RowT | None = None
    while True:
        async with transaction() as connection:
            rows = await read(connection, last)
        if not rows:
            return
        yield rows
        last = rows[-1]


class SenderHit(NamedTuple):
    """A sender and the session they wrote in; `who` is the part of a source that names them.

    Attributes:
        first_at: When the first message of the sender was stored.
        last_at: When the last one was stored.
    """

    session_id: UUID
    who: "Mapping[str, Any]"
    first_at: datetime
    last_at: datetime


async def walk_senders(
    transaction: "Transaction", until: datetime, of: tuple[str, str] | None = None
) -> "AsyncIterator[SenderHit]":
    """Yield the senders of each session from all tables that hold messages.

    Args:
        transaction: Opens a transaction for each batch.
        until: Only rows stored up to this time.
        of: Platform and account; None for all.
    """
    platform, account = of or (None, None)
    async for session_id, who, first_at, last_at in _walk_rows(
        transaction, _WALKS, until, platform, account
    ):
        yield SenderHit(session_id, from_json(who), first_at, last_at)


async def _walk_rows(
    transaction: "Transaction",
    walks: "Iterable[tuple[LiteralString, LiteralString]]",
    until: datetime,
    platform: str | None,
    account: str | None,
) -> "AsyncIterator[Record]":
    """Yield the rows that a statement returns for each piece of a table, one table after the other."""
    for edge_sql, found_sql in walks:
        after: tuple[UUID, int] = (_START, 0)
        while True:
            async with transaction() as connection:
                edge = await connection.fetchrow(edge_sql, *after, _ROWS_AT_ONCE)
                last = (None, None) if edge is None else tuple(edge)
                rows = await connection.fetch(found_sql, *after, *last, until, platform, account)
            for row in rows:
                yield row
            if edge is None:
                break
            after = (edge[0], edge[1])


class QuoteHit(NamedTuple):
    """A session whose rows quote a message, as the platform showed it.

    Attributes:
        sender_id: The platform's id of the author of the quoted message, if it said so.
        message_id: Our id of the quoted message, if it was found.
        last_at: When the last of the rows was stored.
    """

    session_id: UUID
    sender_id: str | None
    message_id: str | None
    last_at: datetime


async def walk_quotes(
    transaction: "Transaction", until: datetime, of: tuple[str, str]
) -> "AsyncIterator[QuoteHit]":
    """Yield whom the rows of an account quote, up to a time, from all tables that hold messages."""
    async for row in _walk_rows(transaction, _WALKS_OF_QUOTES, until, *of):
        yield QuoteHit(*row.values())


_QUOTES: Final[LiteralString] = """
session_id = $1 AND details ? 'quote' AND (
    details #>> '{replied_row,id}' = ANY($4::text[])
    OR EXISTS (
        SELECT FROM unnest($2::text[], $3::timestamptz[]) AS own (sender_id, since)
        WHERE own.sender_id = details #>> '{quote,sender_id}'
          AND {stored_at} >= coalesce(own.since, '-infinity')))
"""
FORGET_QUOTES_SQL: Final[LiteralString] = f"""
-- messages → waiting → removed_messages: remove quotes from the rows of a session, and count them
WITH live AS (
    UPDATE messages SET details = details - 'quote'
    WHERE created_at <= $5 AND {_QUOTES.replace("{stored_at}", "created_at")} RETURNING 1
), line AS (
    UPDATE waiting SET details = details - 'quote'
    WHERE stored_at <= $5 AND {_QUOTES.replace("{stored_at}", "stored_at")} RETURNING 1
), archived AS (
    UPDATE removed_messages SET details = details - 'quote'
    WHERE created_at <= $5 AND {_QUOTES.replace("{stored_at}", "created_at")} RETURNING 1
), changed AS (
    UPDATE sessions SET revision = revision + 1 WHERE id = $1 AND EXISTS (SELECT FROM live)
)
SELECT (SELECT count(*) FROM live) + (SELECT count(*) FROM line) + (SELECT count(*) FROM archived)
"""  # noqa: S608 - constants


async def forget_quotes(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    authors: "Iterable[tuple[str, datetime | None]]",
    message_ids: "Iterable[UUID]",
    until: datetime,
) -> int:
    """Remove quotes of a person from the rows of others in a locked session; return their number.

    Args:
        connection: Connection of the transaction that has locked the session.
        session_id: Session to write to.
        authors: Ids of the person as quotes name them, each with the time since which it belongs to the person.
        message_ids: Our ids of messages of the person.
        until: Only rows stored up to this time.
    """
    names = columns(authors, 2)
    quoted = [str(message_id) for message_id in message_ids]
    count: int = await connection.fetchval(FORGET_QUOTES_SQL, session_id, *names, quoted, until)
    return count


class SessionHit(NamedTuple):
    """A session or lane that may belong to a person."""

    session_id: UUID
    session_key: str
    owner: str | None
    started_at: datetime | None


OWNED_SQL: Final[LiteralString] = """
-- sessions: the sessions of these owners
SELECT id, session_key, owner, started_at FROM sessions WHERE owner = ANY($1::text[])
"""
EDGE_OF_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: the last row of the next piece of a scan
SELECT id FROM sessions WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1
"""
SESSIONS_SQL: Final[LiteralString] = """
-- sessions: the sessions of a piece whose keys match a pattern
SELECT id, session_key, owner, started_at FROM sessions
WHERE id > $1 AND ($2::uuid IS NULL OR id <= $2) AND session_key LIKE $3
"""
EDGE_OF_LANES_SQL: Final[LiteralString] = """
-- lanes: the last row of the next piece of a scan
SELECT session_key FROM lanes WHERE session_key > $1 ORDER BY session_key OFFSET $2 LIMIT 1
"""
LANES_SQL: Final[LiteralString] = """
-- lanes: the lanes of a piece whose keys match a pattern, with the start of their sessions
SELECT lanes.session_id, lanes.session_key, sessions.owner, sessions.started_at
FROM (SELECT session_id, session_key FROM lanes
      WHERE session_key > $1 AND session_key <= $2 AND session_key LIKE $3
      ORDER BY session_key) AS lanes
LEFT JOIN LATERAL (
    SELECT owner, started_at FROM sessions WHERE sessions.id = lanes.session_id LIMIT 1
) AS sessions ON true
"""


async def owned(connection: "PoolConnectionProxy", owners: "Iterable[str]") -> list[SessionHit]:
    """Return the sessions of these owners."""
    return [SessionHit(*row.values()) for row in await connection.fetch(OWNED_SQL, sorted(owners))]


async def walk_sessions(transaction: "Transaction", like: str) -> "AsyncIterator[SessionHit]":
    """Yield the sessions whose keys match a LIKE pattern."""
    after: UUID | None = _START
    while after is not None:
        async with transaction() as connection:
            edge = await connection.fetchval(EDGE_OF_SESSIONS_SQL, after, _ROWS_AT_ONCE)
            rows = await connection.fetch(SESSIONS_SQL, after, edge, like)
        for row in rows:
            yield SessionHit(*row.values())
        after = edge


async def walk_lanes(transaction: "Transaction", like: str) -> "AsyncIterator[SessionHit]":
    """Yield the lanes whose keys match a LIKE pattern, with the sessions they point to."""
    after: str | None = ""
    while after is not None:
        async with transaction() as connection:
            edge = await connection.fetchval(EDGE_OF_LANES_SQL, after, _ROWS_AT_ONCE)
            rows = await connection.fetch(LANES_SQL, after, edge or _BEHIND_ALL, like)
        for row in rows:
            yield SessionHit(*row.values())
        after = edge


SENDERS_OF_SESSIONS_SQL: Final[LiteralString] = """
-- messages → waiting → removed_messages: the senders in these sessions
SELECT session_id, who, min(at), max(at) FROM (
    SELECT session_id, sender_of(source) AS who, created_at AS at FROM messages
    WHERE session_id = ANY($1::uuid[]) AND source #> '{sender}' IS NOT NULL
    UNION ALL
    SELECT session_id, sender_of(source), stored_at FROM waiting
    WHERE session_id = ANY($1::uuid[]) AND source #> '{sender}' IS NOT NULL
    UNION ALL
    SELECT session_id, sender_of(source), created_at FROM removed_messages
    WHERE session_id = ANY($1::uuid[]) AND source #> '{sender}' IS NOT NULL
) AS entry GROUP BY session_id, who
"""
LANES_TO_SQL: Final[LiteralString] = """
-- lanes: the lanes that point to a session
SELECT session_key FROM lanes WHERE session_id = $1 ORDER BY session_key
"""


async def senders_of(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> list[SenderHit]:
    """Return the senders of some sessions from all tables that hold messages."""
    rows = await connection.fetch(SENDERS_OF_SESSIONS_SQL, list(ids))
    return [
        SenderHit(session_id, from_json(who), first_at, last_at)
        for session_id, who, first_at, last_at in rows
    ]


async def lanes_to(connection: "PoolConnectionProxy", session_id: UUID) -> list[str]:
    """Return the keys of the lanes that point to a session."""
    return [row[0] for row in await connection.fetch(LANES_TO_SQL, session_id)]


HAS_OLD_ROWS_SQL: Final[LiteralString] = """
-- messages: the sessions that hold rows stored up to a time
SELECT id FROM unnest($1::uuid[]) AS want (id)
WHERE (SELECT true FROM messages WHERE session_id = want.id AND created_at <= $2
       ORDER BY session_id, seq LIMIT 1)
   OR (SELECT true FROM removed_messages WHERE session_id = want.id AND created_at <= $2
       ORDER BY session_id, removal, seq LIMIT 1)
"""


async def with_old_rows(
    connection: "PoolConnectionProxy", ids: "Iterable[UUID]", until: datetime
) -> set[UUID]:
    """Return the sessions that hold rows stored up to a time."""
    return {row[0] for row in await connection.fetch(HAS_OLD_ROWS_SQL, list(ids), until)}


TRIM_SQL: Final[LiteralString] = """
-- messages: delete the first rows of a session that is being removed, with their turns
WITH gone AS (
    DELETE FROM messages WHERE ctid = ANY(ARRAY(
        SELECT ctid FROM messages WHERE session_id = $1 ORDER BY seq LIMIT $2))
    RETURNING turn_id
), of_turns AS (
    DELETE FROM turns USING (SELECT DISTINCT turn_id FROM gone) AS had
    WHERE turns.id = had.turn_id AND turns.session_id = $1
    RETURNING turns.id
), steps AS (
    DELETE FROM turn_steps USING of_turns WHERE turn_steps.turn_id = of_turns.id
)
SELECT count(*) FROM gone
"""


async def trim(connection: "PoolConnectionProxy", session_id: UUID) -> int:
    """Delete a batch of rows of a session before its removal; return their number.

    The remaining rows then fit into one transaction that is short enough for other writers.
    """
    count: int = await connection.fetchval(TRIM_SQL, session_id, _ROWS_AT_ONCE)
    return count


SIZES_SQL: Final[LiteralString] = """
-- sessions: the number of rows of these sessions in each table
SELECT
    (SELECT count(*) FROM messages WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM removed_messages WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM message_revisions WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM waiting WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM late_results WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM lanes WHERE session_id = ANY($1::uuid[])),
    (SELECT count(*) FROM searchable WHERE session_id = ANY($1::uuid[]))
"""
_SIZES: Final = (
    "messages",
    "removed_messages",
    "message_revisions",
    "waiting",
    "late_results",
    "lanes",
    "searchable",
)


async def sizes(connection: "PoolConnectionProxy", ids: "Sequence[UUID]") -> dict[str, int]:
    """Return the number of rows of some sessions in each table."""
    row = await connection.fetchrow(SIZES_SQL, ids)
    return dict(zip(_SIZES, row.values() if row else (), strict=True))


ROWS_OF_SESSION_SQL: Final[LiteralString] = """
-- messages: the rows of a session, and whether the person wrote them
SELECT seq, role, created_at <= $6 AND EXISTS (
           SELECT FROM unnest($3::jsonb[], $4::timestamptz[], $5::timestamptz[])
               AS senders (who, since, until)
           WHERE senders.who = entry.who AND created_at >= coalesce(since, '-infinity')
             AND created_at < coalesce(until, 'infinity')),
       id, turn_id, reply_to, source IS NOT NULL
FROM (
    SELECT seq, role, created_at, id, turn_id, reply_to, source, sender_of(source) AS who
    FROM messages WHERE session_id = $1 AND seq > $2 ORDER BY seq LIMIT $7
) AS entry ORDER BY seq
"""
ROWS_OF_ARCHIVE_SQL: Final[LiteralString] = """
-- removed_messages: the archived rows of a session, and whether the person wrote them
SELECT removal, seq, role, created_at <= $5 AND EXISTS (
           SELECT FROM unnest($2::jsonb[], $3::timestamptz[], $4::timestamptz[])
               AS senders (who, since, until)
           WHERE senders.who = entry.who AND created_at >= coalesce(since, '-infinity')
             AND created_at < coalesce(until, 'infinity')),
       id, turn_id, reply_to, source IS NOT NULL
FROM (
    SELECT removal, seq, role, created_at, id, turn_id, reply_to, source, sender_of(source) AS who
    FROM removed_messages WHERE session_id = $1
) AS entry ORDER BY removal, seq
"""


def span_columns(spans: "Iterable[SenderSpan]") -> list[list[Any]]:
    """Return the senders and their time spans as columns for a statement."""
    return columns(((to_json(who).decode(), since, until) for who, since, until in spans), 3)


async def rows_of(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    spans: "Iterable[SenderSpan]",
    until: datetime,
) -> list[Row]:
    """Return the rows of a session with the columns that decide whose they are."""
    names = span_columns(spans)
    found: list[Row] = []
    after = 0
    while True:
        piece = await connection.fetch(
            ROWS_OF_SESSION_SQL, session_id, after, *names, until, _ROWS_AT_ONCE
        )
        found += [Row(row[0], row[1], bool(row[2]), *row[3:]) for row in map(tuple, piece)]
        if len(piece) < _ROWS_AT_ONCE:
            return found
        after = piece[-1][0]


HAS_SAID_SQL: Final[LiteralString] = """
-- messages → removed_messages → waiting: whether the person wrote in a session
WITH senders AS (
    SELECT * FROM unnest($2::jsonb[], $3::timestamptz[], $4::timestamptz[])
        AS senders (who, since, until)
)
SELECT EXISTS (
    SELECT FROM messages JOIN senders ON sender_of(source) = senders.who
    WHERE session_id = $1 AND created_at <= $5 AND created_at >= coalesce(since, '-infinity')
      AND created_at < coalesce(until, 'infinity')
) OR EXISTS (
    SELECT FROM removed_messages JOIN senders ON sender_of(source) = senders.who
    WHERE session_id = $1 AND created_at <= $5 AND created_at >= coalesce(since, '-infinity')
      AND created_at < coalesce(until, 'infinity')
) OR EXISTS (
    SELECT FROM waiting JOIN senders ON sender_of(source) = senders.who
    WHERE session_id = $1 AND stored_at <= $5 AND stored_at >= coalesce(since, '-infinity')
      AND stored_at < coalesce(until, 'infinity')
)
"""


async def has_written(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    spans: "Iterable[SenderSpan]",
    until: datetime,
) -> bool:
    """Return True if one of these senders wrote in a session up to a time."""
    found: bool = await connection.fetchval(HAS_SAID_SQL, session_id, *span_columns(spans), until)
    return found


async def archived_rows_of(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    spans: "Iterable[SenderSpan]",
    until: datetime,
) -> dict[int, list[Row]]:
    """Return the archived rows of a session, grouped by removal."""
    names = span_columns(spans)
    found: dict[int, list[Row]] = {}
    for row in await connection.fetch(ROWS_OF_ARCHIVE_SQL, session_id, *names, until):
        removal, seq, role, is_own, *rest = row
        found.setdefault(removal, []).append(Row(seq, role, bool(is_own), *rest))
    return found


BLANK_SQL: Final[LiteralString] = """
-- messages: remove content and author; places and ids stay
UPDATE messages SET
    content = NULL, state = 'deleted', author = NULL, platform_message_id = NULL, source = NULL,
    details = jsonb_strip_nulls(jsonb_build_object(
        'kind', details -> 'kind', 'result_id', details -> 'result_id'))
WHERE session_id = $1 AND seq = ANY($2::bigint[])
"""
COUNT_REVISION_SQL: Final[LiteralString] = """
-- sessions: count a revision, and delete title, labels and notes, which may quote blanked rows
UPDATE sessions SET
    revision = revision + 1, title = NULL, title_scope = NULL, labels = NULL, carry_over = NULL,
    opening_note = NULL
WHERE id = $1
"""


async def blank(
    connection: "PoolConnectionProxy", session_id: UUID, places: "Sequence[int]"
) -> None:
    """Blank rows of a locked session; their places and ids stay."""
    for begin in range(0, len(places), _CHANGED_AT_ONCE):
        some = places[begin : begin + _CHANGED_AT_ONCE]
        await connection.execute(BLANK_SQL, session_id, some)
        await index_sql.rewrite(connection, [(session_id, seq, None) for seq in some])
    await connection.execute(COUNT_REVISION_SQL, session_id)


DELETE_ARCHIVED_SQL: Final[LiteralString] = """
-- removed_messages: delete rows of the archive and their search entries
WITH found AS (
    DELETE FROM searchable USING unnest($2::bigint[], $3::bigint[]) AS gone (removal, seq)
    WHERE searchable.session_id = $1 AND searchable.removal = gone.removal
      AND searchable.seq = gone.seq
)
DELETE FROM removed_messages USING unnest($2::bigint[], $3::bigint[]) AS gone (removal, seq)
WHERE removed_messages.session_id = $1 AND removed_messages.removal = gone.removal
  AND removed_messages.seq = gone.seq
"""
DELETE_REVISIONS_SQL: Final[LiteralString] = """
-- message_revisions: delete earlier versions of messages
DELETE FROM message_revisions WHERE message_id = ANY($1::uuid[])
"""
DELETE_LATE_SQL: Final[LiteralString] = """
-- late_results: delete late results to turns and messages of a session
DELETE FROM late_results
WHERE session_id = $1 AND (turn_id = ANY($2::uuid[]) OR reply_to = ANY($3::text[]))
"""
WAITING_OF_SESSION_SQL: Final[LiteralString] = """
-- waiting: the waiting messages of the person in a session
SELECT arrival, message_id FROM (
    SELECT arrival, message_id, stored_at, sender_of(source) AS who
    FROM waiting WHERE session_id = $1
) AS entry WHERE stored_at <= $5 AND EXISTS (
           SELECT FROM unnest($2::jsonb[], $3::timestamptz[], $4::timestamptz[])
               AS senders (who, since, until)
           WHERE senders.who = entry.who AND stored_at >= coalesce(since, '-infinity')
             AND stored_at < coalesce(until, 'infinity'))
ORDER BY arrival
"""
DELETE_WAITING_SQL: Final[LiteralString] = """
-- waiting: delete messages of a session
DELETE FROM waiting WHERE session_id = $1 AND arrival = ANY($2::bigint[])
"""
CLEAR_TURNS_SQL: Final[LiteralString] = """
-- turns: remove personal data; cancel claimed and parked turns, and make other attempts void
WITH steps AS (DELETE FROM turn_steps WHERE turn_id = ANY($1::uuid[]))
UPDATE turns SET
    source = CASE WHEN state IN ('ready', 'claimed') THEN source - 'sender' - 'message_id' END,
    error = NULL,
    draft = NULL,
    -- The ids are left, so that the end of the turn takes the buttons away.
    question = CASE WHEN (state = 'claimed' OR (state = 'ready' AND rest = 'parked'))
            AND question IS NOT NULL THEN jsonb_build_object(
        'state', 'erased', 'id', question -> 'id', 'message_id', question -> 'message_id',
        'attempt', question -> 'attempt') END,
    token = CASE WHEN state = 'claimed' THEN token END,
    cancel = CASE WHEN state = 'claimed' OR (state = 'ready' AND rest = 'parked')
                  THEN coalesce(cancel, 'stopped') ELSE cancel END,
    due_at = CASE WHEN state = 'ready' AND rest = 'parked' THEN clock_timestamp() ELSE due_at END
WHERE id = ANY($1::uuid[])
"""
COUNT_RUNNING_SQL: Final[LiteralString] = """
-- turns: the number of these turns that a worker has claimed
SELECT count(*) FROM turns WHERE id = ANY($1::uuid[]) AND state = 'claimed'
"""


async def delete_archived(
    connection: "PoolConnectionProxy", session_id: UUID, places: "Sequence[tuple[int, int]]"
) -> None:
    """Delete rows of the archive, named by (removal, seq)."""
    for begin in range(0, len(places), _CHANGED_AT_ONCE):
        some = places[begin : begin + _CHANGED_AT_ONCE]
        await connection.execute(DELETE_ARCHIVED_SQL, session_id, *columns(some, 2))


async def delete_revisions(connection: "PoolConnectionProxy", messages: "Iterable[UUID]") -> int:
    """Delete the earlier revisions of messages; return their number."""
    status = await connection.execute(DELETE_REVISIONS_SQL, list(messages))
    return int(status.rpartition(" ")[2])


async def delete_late(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    turns: "Iterable[UUID]",
    messages: "Iterable[UUID]",
) -> int:
    """Delete late results of a session to turns and messages; return their number."""
    replies = [str(message_id) for message_id in messages]
    status = await connection.execute(DELETE_LATE_SQL, session_id, list(turns), replies)
    return int(status.rpartition(" ")[2])


async def waiting_of(
    connection: "PoolConnectionProxy",
    session_id: UUID,
    spans: "Iterable[SenderSpan]",
    until: datetime,
) -> list[tuple[int, UUID]]:
    """Return (arrival, message id) of the waiting messages of these senders in a session."""
    names = span_columns(spans)
    rows = await connection.fetch(WAITING_OF_SESSION_SQL, session_id, *names, until)
    return [(row[0], row[1]) for row in rows]


async def delete_waiting(
    connection: "PoolConnectionProxy", session_id: UUID, arrivals: "Sequence[int]"
) -> None:
    """Delete waiting messages of a locked session."""
    if arrivals:
        await connection.execute(DELETE_WAITING_SQL, session_id, arrivals)


async def clear_turns(connection: "PoolConnectionProxy", turns: "Iterable[UUID]") -> None:
    """Remove personal data from locked turns, and cancel those that a worker still runs."""
    await connection.execute(CLEAR_TURNS_SQL, sorted(turns))


async def count_running(connection: "PoolConnectionProxy", turns: "Iterable[UUID]") -> int:
    """Return how many of these turns a worker has claimed."""
    count: int = await connection.fetchval(COUNT_RUNNING_SQL, list(turns))
    return count


LINKED_SQL: Final[LiteralString] = """
-- messages: the sessions that hold answers to turns and messages
SELECT session_id FROM messages
WHERE turn_id = ANY($1::uuid[]) AND role <> 'user' AND state IS DISTINCT FROM 'deleted'
UNION
SELECT session_id FROM messages
WHERE reply_to = ANY($2::uuid[]) AND reply_to IS NOT NULL AND state IS DISTINCT FROM 'deleted'
"""


async def with_answers(
    connection: "PoolConnectionProxy", turns: "Iterable[UUID]", messages: "Iterable[UUID]"
) -> set[UUID]:
    """Return the sessions that hold answers to turns and messages."""
    rows = await connection.fetch(LINKED_SQL, list(turns), list(messages))
    return {row[0] for row in rows}


HEIRS_SQL: Final[LiteralString] = """
-- sessions: the sessions that continue these with a summary, and branches of either
WITH RECURSIVE heir (id, hops) AS (
    SELECT id, 0 FROM unnest($1::uuid[]) AS start (id)
    UNION
    SELECT next.id, heir.hops + 1 FROM heir CROSS JOIN LATERAL (
        SELECT id FROM sessions WHERE parent_id = heir.id AND link_kind = 'compression'
        UNION ALL
        SELECT id FROM sessions WHERE parent_id = heir.id AND link_kind = 'branch'
    ) AS next WHERE heir.hops < 64
)
SELECT DISTINCT id FROM heir WHERE hops > 0
"""
SAME_KEY_SQL: Final[LiteralString] = """
-- sessions: the sessions with the same keys as these
SELECT others.id FROM sessions AS these JOIN sessions AS others USING (session_key)
WHERE these.id = ANY($1::uuid[])
"""
CLEAR_NOTES_SQL: Final[LiteralString] = """
-- sessions: delete the notes to and from other sessions of the lane
UPDATE sessions SET carry_over = NULL, opening_note = NULL
WHERE id = ANY($1::uuid[]) AND (carry_over IS NOT NULL OR opening_note IS NOT NULL)
"""


async def heirs_of(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> set[UUID]:
    """Return the sessions that continue these with a summary, and all branches of either."""
    return {row[0] for row in await connection.fetch(HEIRS_SQL, list(ids))}


async def of_same_lanes(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> set[UUID]:
    """Return all sessions with the same session keys as these."""
    return {row[0] for row in await connection.fetch(SAME_KEY_SQL, list(ids))}


async def clear_notes(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> int:
    """Delete the notes of locked sessions; return the number of changed sessions."""
    status = await connection.execute(CLEAR_NOTES_SQL, sorted(ids))
    return int(status.rpartition(" ")[2])


DELETE_LANES_SQL: Final[LiteralString] = """
-- lanes: delete lanes that still point to these sessions
WITH led AS (
    DELETE FROM lanes USING unnest($1::text[], $2::uuid[]) AS gone (session_key, session_id)
    WHERE lanes.session_key = gone.session_key AND lanes.session_id = gone.session_id
    RETURNING lanes.session_key
)
SELECT count(*) FROM led
"""
DELETE_LANE_ALIASES_SQL: Final[LiteralString] = """
-- lane_aliases: delete the names of lanes in another system
DELETE FROM lane_aliases WHERE session_key = ANY($1::text[])
"""


async def delete_lanes(
    connection: "PoolConnectionProxy", lanes: "Iterable[tuple[str, UUID]]"
) -> int:
    """Delete lanes that still point to these sessions; return their number."""
    count: int = await connection.fetchval(DELETE_LANES_SQL, *columns(lanes, 2))
    return count


async def delete_lane_aliases(connection: "PoolConnectionProxy", keys: "Iterable[str]") -> int:
    """Delete the names of lanes in another system; return their number."""
    status = await connection.execute(DELETE_LANE_ALIASES_SQL, sorted(keys))
    return int(status.rpartition(" ")[2])


DELETE_CHAT_ALIASES_SQL: Final[LiteralString] = """
-- aliases: delete the ids of chats
DELETE FROM aliases
WHERE platform = $1 AND account = $2 AND kind = 'chat'
  AND (alias = ANY($3::text[]) OR canonical = ANY($3::text[])) AND first_seen_at <= $4
"""
VACATE_IDS_SQL: Final[LiteralString] = """
-- aliases: give ids with earlier holders to a new identity, which the next holder gets
UPDATE aliases SET
    canonical = alias || '~' || gen_random_uuid(), first_seen_at = clock_timestamp(),
    partner = NULL, was_canonical = false, taken_from = '',
    held_since = $4 + interval '1 microsecond',
    revision = revision + 1
WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
  AND first_seen_at <= $4 AND EXISTS (
      SELECT FROM former_ids
      WHERE former_ids.platform = $1 AND former_ids.account = $2
        AND former_ids.form = aliases.alias AND identity <> $3)
"""
DELETE_IDS_SQL: Final[LiteralString] = """
-- aliases → former_ids: delete the ids of a person with their time spans
WITH past AS (
    DELETE FROM former_ids WHERE platform = $1 AND account = $2 AND identity = $3
    RETURNING form
), vacant AS (
    -- Kept only so that the next person with this id is not taken for the earlier holder.
    DELETE FROM aliases
    WHERE platform = $1 AND account = $2 AND kind = 'person' AND taken_from = ''
      AND alias IN (SELECT form FROM past)
      AND NOT EXISTS (
          SELECT FROM former_ids
          WHERE former_ids.platform = $1 AND former_ids.account = $2
            AND former_ids.form = aliases.alias AND identity <> $3)
), present AS (
    DELETE FROM aliases
    WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
      AND first_seen_at <= $4
    RETURNING alias
)
SELECT (SELECT count(*) FROM past) + (SELECT count(*) FROM present)
"""
COUNT_IDS_SQL: Final[LiteralString] = """
-- aliases → former_ids: the number of rows about the ids of a person
SELECT (SELECT count(*) FROM aliases
        WHERE platform = $1 AND account = $2 AND kind = 'person' AND canonical = $3
          AND first_seen_at <= $4)
     + (SELECT count(*) FROM former_ids WHERE platform = $1 AND account = $2 AND identity = $3)
"""


async def delete_chat_aliases(
    connection: "PoolConnectionProxy",
    account: tuple[str, str],
    names: "Iterable[str]",
    until: datetime,
) -> int:
    """Delete the aliases of chats of an account that are older than a time; return their number."""
    status = await connection.execute(DELETE_CHAT_ALIASES_SQL, *account, sorted(names), until)
    return int(status.rpartition(" ")[2])


async def delete_ids(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str, until: datetime
) -> int:
    """Delete the ids of a person that were known before a time; return the number of rows.

    Earlier holders of an id stay known. Otherwise the next person who writes with it would take
    the place of an earlier holder.
    """
    status = await connection.execute(VACATE_IDS_SQL, *account, identity, until)
    deleted: int = await connection.fetchval(DELETE_IDS_SQL, *account, identity, until)
    return int(status.rpartition(" ")[2]) + deleted


async def count_ids(
    connection: "PoolConnectionProxy", account: tuple[str, str], identity: str, until: datetime
) -> int:
    """Return the number of rows about the ids of a person that were known before a time."""
    count: int = await connection.fetchval(COUNT_IDS_SQL, *account, identity, until)
    return count


class Letter(NamedTuple):
    """A dead letter with the columns that decide whose it is."""

    at: datetime
    id: UUID
    stage: str
    subject: str | None
    session_id: UUID | None
    stored_at: datetime | None
    body: bytes | None


LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: the next letters with their bodies
SELECT at, id, stage, subject, session_id, stored_at, body FROM dead_letters
WHERE at >= $1 AND (at, id) > ($1, $2) ORDER BY at, id LIMIT $3
"""
DELETE_LETTERS_SQL: Final[LiteralString] = """
-- dead_letters: delete letters
DELETE FROM dead_letters WHERE id = ANY($1::uuid[])
"""


async def next_letters(connection: "PoolConnectionProxy", last: Letter | None) -> list[Letter]:
    """Return the next dead letters, the oldest first."""
    after = (last.at, last.id) if last else (_BEGINNING, _START)
    rows = await connection.fetch(LETTERS_SQL, *after, _BODIES_AT_ONCE)
    return [Letter(*row.values()) for row in rows]


async def delete_letters(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> None:
    """Delete dead letters."""
    await connection.execute(DELETE_LETTERS_SQL, list(ids))


REPLIES_SQL: Final[LiteralString] = """
-- api_requests: the next answered requests
SELECT at, principal, id, reply FROM api_requests
WHERE at >= $1 AND (at, principal, id) > ($1, $2, $3) AND reply IS NOT NULL
ORDER BY at, principal, id LIMIT $4
"""
FORGET_REPLIES_SQL: Final[LiteralString] = """
-- api_requests: delete replies; the requests stay known, so that a repeat is refused
UPDATE api_requests SET reply = NULL
FROM unnest($1::text[], $2::text[]) AS these (principal, id)
WHERE api_requests.principal = these.principal AND api_requests.id = these.id
"""


class Reply(NamedTuple):
    """The stored reply to a request."""

    at: datetime
    principal: str
    id: str
    reply: bytes


async def next_replies(connection: "PoolConnectionProxy", last: Reply | None) -> list[Reply]:
    """Return the next answered requests, the oldest first."""
    after = last[:3] if last else (_BEGINNING, "", "")
    rows = await connection.fetch(REPLIES_SQL, *after, _BODIES_AT_ONCE)
    return [Reply(*row.values()) for row in rows]


async def forget_replies(
    connection: "PoolConnectionProxy", requests: "Iterable[tuple[str, str]]"
) -> None:
    """Delete the stored replies of requests, named by (principal, id)."""
    await connection.execute(FORGET_REPLIES_SQL, *columns(requests, 2))


AUDIT_SQL: Final[LiteralString] = """
-- audit: the next lines
SELECT id, at, session_id, detail FROM audit WHERE id > $1 ORDER BY id LIMIT $2
"""
CLEAR_AUDIT_SQL: Final[LiteralString] = """
-- audit: delete details; actor, action and time stay
UPDATE audit SET detail = '{"erased": true}' WHERE id = ANY($1::bigint[])
"""


class AuditLine(NamedTuple):
    """A line of the audit; `detail` is decoded."""

    id: int
    at: datetime
    session_id: UUID | None
    detail: object


async def next_audit_lines(
    connection: "PoolConnectionProxy", last: AuditLine | None
) -> list[AuditLine]:
    """Return the next lines of the audit, by id."""
    rows = await connection.fetch(AUDIT_SQL, last.id if last else 0, _CHANGED_AT_ONCE)
    return [AuditLine(row[0], row[1], row[2], from_json(row[3])) for row in rows]


async def clear_audit_lines(connection: "PoolConnectionProxy", ids: "Iterable[int]") -> None:
    """Remove the details from lines of the audit."""
    await connection.execute(CLEAR_AUDIT_SQL, list(ids))


OLD_EARLY_SQL: Final[LiteralString] = """
-- early_edits: delete the edits of these messages, and all from before a time
DELETE FROM early_edits WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM early_edits WHERE digest = ANY($1::bytea[])
    UNION
    (SELECT ctid FROM early_edits WHERE kept_at < $2 ORDER BY kept_at LIMIT $3)))
"""


async def delete_early_edits(
    connection: "PoolConnectionProxy", digests: "Iterable[bytes]", before: datetime
) -> int:
    """Delete edits that wait for their message; return their number.

    Args:
        digests: Digests of the messages.
        before: The log no longer holds edits from before this time, so their senders are unknown.
    """
    status = await connection.execute(OLD_EARLY_SQL, list(digests), before, _CHANGED_AT_ONCE)
    return int(status.rpartition(" ")[2])


NOW_SQL: Final[LiteralString] = """
-- erasures: the clock of the database
SELECT clock_timestamp()
"""


async def now(connection: "PoolConnectionProxy") -> datetime:
    """Return the database time, which also stamps requests and dead letters."""
    moment: datetime = await connection.fetchval(NOW_SQL)
    return moment


class OutboxLine(NamedTuple):
    """A row of the outbox with the columns that decide whose it is."""

    id: int
    stream: str
    created_at: datetime
    payload: bytes


OUTBOX_SQL: Final[LiteralString] = """
-- outbox: the next rows up to an id
SELECT id, stream, created_at, payload FROM outbox WHERE id > $1 AND id <= $2
ORDER BY id LIMIT $3
"""
LAST_OUTBOX_SQL: Final[LiteralString] = """
-- outbox: the newest row
SELECT id FROM outbox ORDER BY id DESC LIMIT 1
"""


async def last_outbox_row(connection: "PoolConnectionProxy") -> int:
    """Return the id of the newest row, or 0 if the outbox is empty."""
    return await connection.fetchval(LAST_OUTBOX_SQL) or 0


async def next_outbox_rows(
    connection: "PoolConnectionProxy", last: OutboxLine | None, through: int
) -> list[OutboxLine]:
    """Return the next rows of the outbox up to an id."""
    rows = await connection.fetch(OUTBOX_SQL, last.id if last else 0, through, _BODIES_AT_ONCE)
    return [OutboxLine(*row.values()) for row in rows]


KNOWN_PEOPLE_SQL: Final[LiteralString] = """
-- aliases: all ids of people, except those kept only for an earlier holder
SELECT platform, account, alias FROM aliases
WHERE (platform, account, kind, alias) > ('', '', '', '') AND kind = 'person'
  AND taken_from IS DISTINCT FROM '' AND alias <> ''
ORDER BY platform, account, kind, alias
"""


async def known_people(
    connection: "PoolConnectionProxy",
) -> list[tuple[str, str, str]]:
    """Return (platform, account, id) of every known id of a person."""
    return [(row[0], row[1], row[2]) for row in await connection.fetch(KNOWN_PEOPLE_SQL)]
