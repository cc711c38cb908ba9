"""Find the rows of a person in every table.

The queries scan large tables by their keys, in batches and without locks. The source of a row names
its sender, and no index covers it: erasures are rare, and an index would slow down every message.
"""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, LiteralString, NamedTuple, TypeVar
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.postgres.pool import columns
from chatlane.privacy.erasure_rules import Row, SenderSpan

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

    from asyncpg import Record
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Transaction

_ROWS_AT_ONCE: Final = 20_000
_LINES_AT_ONCE: Final = 5_000
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


async def next_letters(connection: "PoolConnectionProxy", last: Letter | None) -> list[Letter]:
    """Return the next dead letters, the oldest first."""
    after = (last.at, last.id) if last else (_BEGINNING, _START)
    rows = await connection.fetch(LETTERS_SQL, *after, _BODIES_AT_ONCE)
    return [Letter(*row.values()) for row in rows]


REPLIES_SQL: Final[LiteralString] = """
-- api_requests: the next answered requests
SELECT at, principal, id, reply FROM api_requests
WHERE at >= $1 AND (at, principal, id) > ($1, $2, $3) AND reply IS NOT NULL
ORDER BY at, principal, id LIMIT $4
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


AUDIT_SQL: Final[LiteralString] = """
-- audit: the next lines
SELECT id, at, session_id, detail FROM audit WHERE id > $1 ORDER BY id LIMIT $2
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
    rows = await connection.fetch(AUDIT_SQL, last.id if last else 0, _LINES_AT_ONCE)
    return [AuditLine(row[0], row[1], row[2], from_json(row[3])) for row in rows]


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
