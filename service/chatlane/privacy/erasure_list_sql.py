"""Store the erasure list, the receipts of erasures, and the erased messages of streams."""

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from chatlane.domain.effects import ErasedRow
from chatlane.postgres.pool import columns
from chatlane.privacy.erasure_rules import Listed
from chatlane.privacy.person_rows_sql import walk_pages
from chatlane.store.logs.log_trims import NO_HOLES, Holes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from datetime import timedelta

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.postgres.pool import Transaction


# As asyncpg writes and reads `-infinity`.
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)


class Erasure(NamedTuple):
    """An erasure of a person.

    Attributes:
        until: It erases what the person wrote up to this time.
        key_id: Id of the key of its digests.
        is_fenced: True if every router knew of it before `until`.
        finished_at: None while it is not complete.
    """

    id: UUID
    begun_at: datetime
    until: datetime
    key_id: str
    is_fenced: bool
    finished_at: datetime | None


WHO_IS_LISTED_SQL: Final[LiteralString] = """
-- erased_people → erased_spans: the entries with these digests
SELECT digest, NULL::timestamptz, until, false FROM erased_people WHERE digest = ANY($1::bytea[])
UNION ALL
SELECT digest, nullif(since, '-infinity'), until, is_past FROM erased_spans
WHERE digest = ANY($1::bytea[])
"""


async def who_is_listed(
    connection: "PoolConnectionProxy", digests: "Iterable[bytes]"
) -> list[Listed]:
    """Return the entries of the erasure list with these digests."""
    rows = await connection.fetch(WHO_IS_LISTED_SQL, list(digests))
    return [Listed(*row.values()) for row in rows]


FIND_IDS_SQL: Final[LiteralString] = """
-- erased_ids: the ids of erased sessions, turns and messages among these
SELECT id FROM erased_ids WHERE id = ANY($1::uuid[]) AND kind <> 'shared'
"""


async def find_ids(connection: "PoolConnectionProxy", ids: "Iterable[UUID]") -> set[UUID]:
    """Return those of the ids that belong to something erased."""
    return {row[0] for row in await connection.fetch(FIND_IDS_SQL, list(ids))}


KEY_IDS_SQL: Final[LiteralString] = """
-- erasures: the ids of all keys of the list
WITH RECURSIVE known (key_id) AS (
    (SELECT key_id FROM erasures ORDER BY key_id LIMIT 1)
    UNION ALL
    SELECT (SELECT erasures.key_id FROM erasures WHERE erasures.key_id > known.key_id
            ORDER BY erasures.key_id LIMIT 1)
    FROM known WHERE known.key_id IS NOT NULL
)
SELECT key_id FROM known WHERE key_id IS NOT NULL
"""


async def key_ids(connection: "PoolConnectionProxy") -> set[str]:
    """Return the ids of all keys of the list's digests."""
    return {row[0] for row in await connection.fetch(KEY_IDS_SQL)}


FIND_SQL: Final[LiteralString] = """
-- erasures: the newest erasure of one of these people
SELECT erasures.id, begun_at, erasures.until, key_id, is_fenced, finished_at FROM (
    SELECT erasure FROM erased_people WHERE digest = ANY($1::bytea[])
    UNION
    SELECT erasure FROM erased_spans
    JOIN unnest($2::bytea[], $3::timestamptz[]) AS want (digest, since) USING (digest, since)
) AS its JOIN erasures ON erasures.id = its.erasure
ORDER BY begun_at DESC LIMIT 1
"""
BEGIN_SQL: Final[LiteralString] = """
-- erasures: insert an erasure, or change the end of one that is not fenced
INSERT INTO erasures (id, until, key_id) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET until = excluded.until, is_fenced = false
"""
LIST_PEOPLE_SQL: Final[LiteralString] = """
-- erased_people: add people to the list
INSERT INTO erased_people (digest, until, erasure)
SELECT digest, $2, $3 FROM unnest($1::bytea[]) AS new (digest) ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET
    until = greatest(erased_people.until, excluded.until), erasure = excluded.erasure
"""


LIST_SPANS_SQL: Final[LiteralString] = """
-- erased_spans: add time spans to the list
INSERT INTO erased_spans (digest, since, until, is_past, erasure)
SELECT digest, coalesce(since, '-infinity'), until, is_past, $5
FROM unnest($1::bytea[], $2::timestamptz[], $3::timestamptz[], $4::boolean[])
    AS new (digest, since, until, is_past)
ORDER BY digest, since
ON CONFLICT (digest, since) DO UPDATE SET
    until = greatest(erased_spans.until, excluded.until), is_past = excluded.is_past,
    erasure = excluded.erasure
"""


async def find(connection: "PoolConnectionProxy", entries: "Iterable[Listed]") -> Erasure | None:
    """Return the newest erasure of a person."""
    always, spans = _parted(entries)
    bounds = columns([(entry.digest, entry.since or _ALWAYS) for entry in spans], 2)
    row = await connection.fetchrow(FIND_SQL, [entry.digest for entry in always], *bounds)
    return None if row is None else Erasure(*row.values())


async def begin(
    connection: "PoolConnectionProxy",
    erasure_id: UUID,
    until: datetime,
    key_id: str,
    entries: "Iterable[Listed]",
) -> None:
    """Add a person to the list; may be repeated with a later end until the erasure is fenced."""
    always, spans = _parted(entries)
    await connection.execute(BEGIN_SQL, erasure_id, until, key_id)
    digests = [entry.digest for entry in always]
    await connection.execute(LIST_PEOPLE_SQL, digests, until, erasure_id)
    if spans:
        await connection.execute(LIST_SPANS_SQL, *columns(spans, 4), erasure_id)


def _parted(entries: "Iterable[Listed]") -> tuple[list[Listed], list[Listed]]:
    """Split entries into those without a start, which older releases know, and the others."""
    all_entries = list(entries)
    always = [entry for entry in all_entries if entry.since is None and not entry.is_past]
    return always, [entry for entry in all_entries if entry not in always]


FENCE_SQL: Final[LiteralString] = """
-- partitions: wait until every earlier batch has ended
SELECT FROM partitions ORDER BY log, id FOR SHARE
"""
FENCED_SQL: Final[LiteralString] = """
-- erasures: mark an erasure as fenced
UPDATE erasures SET is_fenced = true WHERE id = $1
"""
FINISH_SQL: Final[LiteralString] = """
-- erasures: mark an erasure as complete
UPDATE erasures SET finished_at = coalesce(finished_at, clock_timestamp()) WHERE id = $1
"""


async def fence(connection: "PoolConnectionProxy") -> None:
    """Wait until every batch has ended that may have read the list before the last commit.

    A batch first locks the rows of its partitions, and reads the list afterwards.
    """
    await connection.execute(FENCE_SQL)


async def fenced(connection: "PoolConnectionProxy", erasure_id: UUID) -> None:
    """Mark an erasure as fenced: its end is final."""
    await connection.execute(FENCED_SQL, erasure_id)


async def finish(connection: "PoolConnectionProxy", erasure_id: UUID) -> None:
    """Mark an erasure as complete."""
    await connection.execute(FINISH_SQL, erasure_id)


NOTE_IDS_SQL: Final[LiteralString] = """
-- erased_ids: insert the ids that this transaction erases
INSERT INTO erased_ids (id, kind, erasure)
SELECT id, $2, $3 FROM unnest($1::uuid[]) AS new (id) ORDER BY id
ON CONFLICT (id) DO NOTHING
"""
READ_IDS_SQL: Final[LiteralString] = """
-- erased_ids: the ids of one kind of an erasure
SELECT id FROM erased_ids WHERE erasure = $1 AND kind = $2
"""
EXPIRE_IDS_SQL: Final[LiteralString] = """
-- erased_ids: delete old ids, which no result can name
DELETE FROM erased_ids WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM erased_ids
    WHERE erased_at < (SELECT clock_timestamp() - $1::interval) ORDER BY erased_at LIMIT $2))
"""


async def note_ids(
    connection: "PoolConnectionProxy", erasure_id: UUID, kind: str, ids: "Iterable[UUID]"
) -> None:
    """Store ids of erased sessions, turns or messages, or of `shared` sessions, which stay."""
    noted = list(ids)
    if noted:
        await connection.execute(NOTE_IDS_SQL, noted, kind, erasure_id)


async def read_ids(connection: "PoolConnectionProxy", erasure_id: UUID, kind: str) -> set[UUID]:
    """Return the ids of one kind that an erasure has stored so far."""
    return {row[0] for row in await connection.fetch(READ_IDS_SQL, erasure_id, kind)}


NOTE_RECEIPT_SQL: Final[LiteralString] = """
-- erasure_receipts: insert a line
INSERT INTO erasure_receipts (erasure, store, count, ids) VALUES ($1, $2, $3, $4::jsonb)
"""
RECEIPTS_SQL: Final[LiteralString] = """
-- erasure_receipts: the lines of an erasure
SELECT store, count, ids FROM erasure_receipts WHERE erasure = $1 ORDER BY id
"""


class Receipt(NamedTuple):
    """Number of deletions from a store, and the ids of what was deleted."""

    store: str
    deleted: int
    ids: "Sequence[object]" = ()


async def note_receipt(
    connection: "PoolConnectionProxy", erasure_id: UUID, receipt: Receipt
) -> None:
    """Add a line to the receipt, in the transaction of the deletion."""
    if receipt.deleted:
        ids = to_json(receipt.ids).decode()
        await connection.execute(NOTE_RECEIPT_SQL, erasure_id, receipt.store, receipt.deleted, ids)


async def receipts(connection: "PoolConnectionProxy", erasure_id: UUID) -> "Mapping[str, Receipt]":
    """Return the receipt of an erasure, summed up by store."""
    found: dict[str, Receipt] = {}
    for store, count, ids in await connection.fetch(RECEIPTS_SQL, erasure_id):
        before = found.get(store, Receipt(store, 0))
        found[store] = Receipt(store, before.deleted + count, [*before.ids, *from_json(ids)])
    return found


RECENT_SQL: Final[LiteralString] = """
-- erasures: the newest erasures
SELECT id, begun_at, until, key_id, is_fenced, finished_at FROM erasures
WHERE begun_at > '-infinity' ORDER BY begun_at DESC LIMIT $1
"""


async def recent(connection: "PoolConnectionProxy", limit: int) -> list[Erasure]:
    """Return the newest erasures, the newest first."""
    return [Erasure(*row.values()) for row in await connection.fetch(RECENT_SQL, limit)]


class _Line(BaseModel):
    model_config = ConfigDict(
        frozen=True, ser_json_bytes="hex", val_json_bytes="hex", hide_input_in_errors=True
    )

    def text(self) -> str:
        """Return the line as JSON text; older releases do not know the fields with a default."""
        return self.model_dump_json(exclude_defaults=True)


class ListLine(_Line):
    """A person on the erasure list, and its line in an exported copy of the list.

    Attributes:
        erasure: The erasure that added the line.
        key_id: Id of the key of the digest.
        since: When the person got the id; None if the id had no earlier holder.
        is_past: True if the id belonged to another person at the time of the erasure.
    """

    digest: bytes
    until: datetime
    erasure: UUID
    key_id: str
    begun_at: datetime
    since: datetime | None = None
    is_past: bool = False

    @property
    def is_span(self) -> bool:
        """Return True if the line is of a time span, which older releases do not know."""
        return self.since is not None or self.is_past


class Position(_Line):
    """A line of an exported list that names an erased message of a stream.

    Attributes:
        erased_at: None while the stream may still hold the message.
    """

    stream: str
    sequence: int
    stored_at: datetime
    generation: str
    erased_at: datetime | None


_LINES: Final = TypeAdapter[ListLine | Position](ListLine | Position)


def parsed_line(text: str) -> ListLine | Position:
    """Parse a line of an exported list.

    Raises:
        ValueError: The text is not such a line.
    """
    try:
        return _LINES.validate_json(text)
    except ValidationError as exc:
        raise ValueError("not a line of an erasure list") from exc


READ_LIST_SQL: Final[LiteralString] = """
-- erased_people: the next people of the list
SELECT digest, erased_people.until, erasure, key_id, begun_at
FROM erased_people JOIN erasures ON erasures.id = erased_people.erasure
WHERE digest > $1 ORDER BY digest LIMIT $2
"""
READ_SPANS_SQL: Final[LiteralString] = """
-- erased_spans: the next time spans of the list
SELECT digest, erased_spans.until, erasure, key_id, begun_at,
       nullif(since, '-infinity') AS since, is_past
FROM erased_spans JOIN erasures ON erasures.id = erased_spans.erasure
WHERE (digest, since) > ($1, $2) ORDER BY digest, since LIMIT $3
"""
RESTORE_ERASURES_SQL: Final[LiteralString] = """
-- erasures: import the erasures of an exported list
INSERT INTO erasures (id, until, key_id, begun_at)
SELECT id, max(until), min(key_id), min(begun_at)
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::timestamptz[])
    AS new (id, until, key_id, begun_at) GROUP BY id
ON CONFLICT (id) DO NOTHING
"""
RESTORE_LIST_SQL: Final[LiteralString] = """
-- erased_people: import people of an exported list
INSERT INTO erased_people (digest, until, erasure)
SELECT * FROM unnest($1::bytea[], $2::timestamptz[], $3::uuid[]) AS new (digest, until, erasure)
ORDER BY digest
ON CONFLICT (digest) DO UPDATE SET until = greatest(erased_people.until, excluded.until)
"""
RESTORE_SPANS_SQL: Final[LiteralString] = """
-- erased_spans: import time spans of an exported list
INSERT INTO erased_spans (digest, since, until, is_past, erasure)
SELECT digest, coalesce(since, '-infinity'), until, is_past, erasure
FROM unnest($1::bytea[], $2::timestamptz[], $3::uuid[], $4::timestamptz[], $5::boolean[])
    AS new (digest, until, erasure, since, is_past)
ORDER BY digest, since
ON CONFLICT (digest, since) DO UPDATE SET
    until = greatest(erased_spans.until, excluded.until), is_past = excluded.is_past
"""


async def read_list(
    connection: "PoolConnectionProxy", after: ListLine | None, limit: int
) -> list[ListLine]:
    """Return the next lines of the list by digest, those without a start time first."""
    page: list[ListLine] = []
    if after is None or not after.is_span:
        digest = b"" if after is None else after.digest
        rows = await connection.fetch(READ_LIST_SQL, digest, limit)
        page = [ListLine.model_validate(dict(row)) for row in rows]
        after = None
    if len(page) < limit:
        place = (b"", _ALWAYS) if after is None else (after.digest, after.since or _ALWAYS)
        rows = await connection.fetch(READ_SPANS_SQL, *place, limit - len(page))
        page += [ListLine.model_validate(dict(row)) for row in rows]
    return page


async def walk_list(transaction: "Transaction") -> "AsyncIterator[ListLine | Position]":
    """Yield the whole list, then the positions of erased messages."""
    async for people in walk_pages(transaction, partial(read_list, limit=_LINES_AT_ONCE)):
        for person in people:
            yield person
    async for positions in walk_pages(transaction, partial(read_positions, limit=_LINES_AT_ONCE)):
        for position in positions:
            yield position


async def restore_list(
    connection: "PoolConnectionProxy", lines: "Sequence[ListLine | Position]"
) -> None:
    """Import lines of an exported list."""
    people = [line for line in lines if isinstance(line, ListLine)]
    erasures = [(line.erasure, line.until, line.key_id, line.begun_at) for line in people]
    await connection.execute(RESTORE_ERASURES_SQL, *columns(erasures, 4))
    always = [(line.digest, line.until, line.erasure) for line in people if not line.is_span]
    await connection.execute(RESTORE_LIST_SQL, *columns(always, 3))
    spans = [
        (line.digest, line.until, line.erasure, line.since, line.is_past)
        for line in people
        if line.is_span
    ]
    await connection.execute(RESTORE_SPANS_SQL, *columns(spans, 5))
    positions = [tuple(dict(line).values()) for line in lines if isinstance(line, Position)]
    for begin in range(0, len(positions), _POSITIONS_AT_ONCE):
        some = positions[begin : begin + _POSITIONS_AT_ONCE]
        await connection.execute(RESTORE_MESSAGES_SQL, *columns(some, 5))


_LINES_AT_ONCE: Final = 1_000
_POSITIONS_AT_ONCE: Final = 10_000
_FIRST_POSITION: Final = ("", 0, datetime(1970, 1, 1, tzinfo=UTC))

READ_MESSAGES_SQL: Final[LiteralString] = """
-- erased_messages: the next messages whose stream generation is known
SELECT stream, sequence, stored_at, generation, erased_at FROM erased_messages
WHERE (stream, sequence, stored_at) > ($1::text, $2::bigint, $3::timestamptz)
  AND generation IS NOT NULL
ORDER BY stream, sequence, stored_at LIMIT $4
"""
RESTORE_MESSAGES_SQL: Final[LiteralString] = """
-- erased_messages: import positions of an exported list
INSERT INTO erased_messages (stream, sequence, stored_at, generation, erased_at)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::text[], $5::timestamptz[])
    AS new (stream, sequence, stored_at, generation, erased_at)
ORDER BY stream, sequence, stored_at
ON CONFLICT (stream, sequence, stored_at) DO UPDATE SET
    generation = excluded.generation,
    erased_at = coalesce(erased_messages.erased_at, excluded.erased_at)
"""


async def read_positions(
    connection: "PoolConnectionProxy", after: Position | None, limit: int
) -> list[Position]:
    """Return the next positions of erased messages, in order."""
    place = _FIRST_POSITION if after is None else (after.stream, after.sequence, after.stored_at)
    rows = await connection.fetch(READ_MESSAGES_SQL, *place, limit)
    return [Position.model_validate(dict(row)) for row in rows]


NOTE_MESSAGES_SQL: Final[LiteralString] = """
-- erased_messages: note messages to delete from streams
INSERT INTO erased_messages (stream, sequence, stored_at, noted_at)
SELECT stream, sequence, stored_at, coalesce(due_at, clock_timestamp())
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[], $4::timestamptz[])
    AS new (stream, sequence, stored_at, due_at)
ORDER BY stream, sequence, stored_at
ON CONFLICT (stream, sequence, stored_at) DO UPDATE SET noted_at = excluded.noted_at
WHERE erased_messages.erased_at IS NULL AND erased_messages.noted_at > excluded.noted_at
"""
PENDING_SQL: Final[LiteralString] = """
-- erased_messages: the next messages to delete that no process is deleting, oldest first
SELECT stream, sequence, stored_at FROM erased_messages
WHERE erased_at IS NULL AND stream = ANY($1::text[])
  AND noted_at <= (SELECT clock_timestamp())
  AND (generation IS NULL OR noted_at < clock_timestamp() - interval '5 minutes')
ORDER BY noted_at LIMIT $2
"""
PLACE_SQL: Final[LiteralString] = """
-- erased_messages: store the generation of the stream before the deletion
UPDATE erased_messages AS gone SET generation = $4
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS these (stream, sequence, stored_at)
WHERE gone.stream = these.stream AND gone.sequence = these.sequence
  AND gone.stored_at = these.stored_at
"""
GONE_SQL: Final[LiteralString] = """
-- erased_messages: mark messages as deleted, and delete the dead letters that hold them
WITH letters AS (
    DELETE FROM dead_letters
    USING unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS these (stream, sequence, stored_at)
    WHERE these.stream = 'INBOUND' AND dead_letters.log = 'inbound'
      AND dead_letters.sequence = these.sequence AND dead_letters.stored_at = these.stored_at
)
UPDATE erased_messages AS gone SET erased_at = clock_timestamp()
FROM unnest($1::text[], $2::bigint[], $3::timestamptz[]) AS these (stream, sequence, stored_at)
WHERE gone.stream = these.stream AND gone.sequence = these.sequence
  AND gone.stored_at = these.stored_at
"""
EXPIRE_MESSAGES_SQL: Final[LiteralString] = """
-- erased_messages: delete notes that are older than any stream keeps messages
DELETE FROM erased_messages WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM erased_messages
    WHERE noted_at < (SELECT clock_timestamp() - $1::interval) ORDER BY noted_at LIMIT $2))
"""


async def note_messages(connection: "PoolConnectionProxy", rows: "Sequence[ErasedRow]") -> None:
    """Note messages of streams that are to be deleted, now or when they are due."""
    if rows:
        await connection.execute(NOTE_MESSAGES_SQL, *columns(rows, 4))


async def pending_messages(
    connection: "PoolConnectionProxy", streams: "Sequence[str]", limit: int
) -> list[ErasedRow]:
    """Return the noted messages of streams that are not deleted yet."""
    rows = await connection.fetch(PENDING_SQL, streams, limit)
    return [ErasedRow(*row.values()) for row in rows]


async def place_messages(
    connection: "PoolConnectionProxy", rows: "Sequence[ErasedRow]", generation: str
) -> None:
    """Store the stream generation of messages before their deletion."""
    await connection.execute(PLACE_SQL, *_places(rows), generation)


async def messages_gone(connection: "PoolConnectionProxy", rows: "Sequence[ErasedRow]") -> None:
    """Mark messages as deleted, or as not found."""
    await connection.execute(GONE_SQL, *_places(rows))


def _places(rows: "Sequence[ErasedRow]") -> list[list[object]]:
    return columns([(row.stream, row.sequence, row.stored_at) for row in rows], 3)


async def expire(connection: "PoolConnectionProxy", kept: "timedelta", limit: int) -> int:
    """Delete up to `limit` old ids and up to `limit` old positions; return their number.

    After the time `kept` no result for such an id can arrive, and no comparison of streams reaches
    back so far.
    """
    count = 0
    for query in (EXPIRE_IDS_SQL, EXPIRE_MESSAGES_SQL):
        status = await connection.execute(query, kept, limit)
        count += int(status.rpartition(" ")[2])
    return count


HOLES_SQL: Final[LiteralString] = """
-- erased_messages: the number of notes between two sequences, both included
SELECT count(DISTINCT sequence), count(DISTINCT sequence) FILTER (WHERE erased_at IS NOT NULL)
FROM erased_messages
WHERE stream = $1 AND sequence >= $3 AND sequence <= $4 AND generation = $2
"""


async def count_holes(
    connection: "PoolConnectionProxy", stream: str, generation: str, first: int, last: int
) -> Holes:
    """Return how many messages of a stream are missing because they were erased."""
    row = await connection.fetchrow(HOLES_SQL, stream, generation, first, last)
    return NO_HOLES if row is None else Holes(*row.values())


HEED_SQL: Final[LiteralString] = """
-- routers: store under which key this router checks the erasure list
UPDATE routers SET erasure_key = $2, asks_erased_spans = true
WHERE id = $1 AND (erasure_key IS DISTINCT FROM $2 OR NOT asks_erased_spans)
"""
HEEDLESS_SQL: Final[LiteralString] = """
-- routers: the number of live routers that do not check the list under a key
SELECT count(*) FROM routers
WHERE seen_until > clock_timestamp()
  AND (erasure_key IS DISTINCT FROM $1 OR NOT asks_erased_spans)
"""


async def heed(connection: "PoolConnectionProxy", router: UUID, key_id: str) -> None:
    """Record that a router checks the erasure list under a key."""
    await connection.execute(HEED_SQL, router, key_id)


async def count_heedless(connection: "PoolConnectionProxy", key_id: str) -> int:
    """Return the number of live routers that do not check the erasure list under a key."""
    count: int = await connection.fetchval(HEEDLESS_SQL, key_id)
    return count
