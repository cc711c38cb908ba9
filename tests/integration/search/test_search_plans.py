"""How searches and long transcripts are read when there are 200,000 rows in 10,000 sessions."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from chatlane.postgres.pool import Store, open_store
from chatlane.search.search_sql import Place, SearchReads
from chatlane.search.tokens import any_mark, owner_mark, search_of
from chatlane.store import pending_messages
from chatlane.store.addressing import identities
from chatlane.store.history import transcript_changes
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.transcripts import TranscriptSearch
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database

pytestmark = pytest.mark.integration

# One word in half of all rows, one in a hundredth, one in a single row; each session a hundredth
# of a person's. Indexes of this size are made faster than they grow.
FILL: Final = """
INSERT INTO sessions (id, session_key, agent, platform, started_at, owner, next_seq)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'key:' || n, 'main', 'telegram', now(),
           'telegram:bot:' || n % 100, CASE n WHEN 1 THEN 20021 ELSE 21 END
    FROM generate_series(1, 10000) AS n;
INSERT INTO messages (session_id, seq, role, content, created_at)
    SELECT id, seq, CASE WHEN seq % 2 = 1 THEN 'user' ELSE 'assistant' END,
           'row of words', now()
    FROM sessions CROSS JOIN generate_series(1, 20) AS seq;
INSERT INTO messages (session_id, seq, role, content, created_at)
    SELECT lpad('1', 32, '0')::uuid, 20 + n,
           CASE WHEN n % 2 = 1 THEN 'user' ELSE 'assistant' END, 'row of words', now()
    FROM generate_series(1, 20000) AS n;
INSERT INTO waiting (
        session_id, arrival, session_key, message_id, size_bytes, details, source, stored_at)
    SELECT lpad(to_hex(2 - n % 2), 32, '0')::uuid, n, 'key', gen_random_uuid(), 1000, '{}',
           '{"platform": "telegram", "account": "bot"}', now()
    FROM generate_series(1, 2000) AS n;
DROP INDEX searchable_terms_idx;
INSERT INTO searchable (session_id, removal, seq, id, terms)
    SELECT session_id, 0, seq, id, array_to_tsvector(array_remove(ARRAY[
               '=b:' || (id >> 13),
               '=s:' || replace(session_id::text, '-', ''),
               '=o:' || left(encode(sha256(owner::bytea), 'hex'), 32),
               CASE WHEN id % 2 = 0 THEN 'common' END,
               CASE WHEN id % 100 = 0 THEN 'some' END,
               CASE WHEN id = 77777 THEN 'rare' END,
               'w' || id % 5000, 'v' || id % 7000], NULL))
    FROM (
        SELECT session_id, seq, owner, nextval('searchable_id_seq') AS id
        FROM messages JOIN sessions ON sessions.id = session_id
        WHERE seq <= 20 ORDER BY seq, session_id
    ) AS numbered;
CREATE INDEX searchable_terms_idx ON searchable USING gin (terms) WITH (gin_pending_list_limit = 256);
ANALYZE;
"""
HOT: Final = UUID(int=1)
ANN: Final = Person(platform="telegram", account="bot", id="8")
START: Final = Place(float("inf"), 2**63 - 1)


@pytest.fixture(scope="module")
async def large_store(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[Store]:
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_store(postgres_server.dsn(name)) as store,
    ):
        connection = await asyncpg.connect(postgres_server.dsn(name))
        await connection.execute(FILL)
        await connection.close()
        yield store


async def plan_of(store: Store, query: str, *arguments: object) -> dict[str, Any]:
    """Run a statement as the store runs it; returns what it did."""
    async with store.transaction() as connection:
        plan = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *arguments)
    found: dict[str, Any] = json.loads(plan)[0]["Plan"]
    return found


async def plan_of_search(store: Store, *scopes: str, query: str = "common") -> dict[str, Any]:
    search = search_of(query)
    assert search is not None
    arguments: tuple[object, ...] = (
        search.tsquery(*scopes),
        2,
        1000,
        *START,
        None,
        None,
        21,
        32_768,
        [],
    )
    return await plan_of(store, SearchReads._SEARCH, *arguments)


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def rows_read(plan: dict[str, Any], relation: str) -> int:
    """Return how many rows of a table were looked at, those that did not fit included."""
    return sum(
        round(
            (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
            + node.get("Rows Removed by Index Recheck", 0)
        )
        for node in nodes(plan)
        if node.get("Relation Name") == relation
    )


def scans(plan: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the ways in which tables were read."""
    return {
        (node["Relation Name"], node["Node Type"])
        for node in nodes(plan)
        if "Relation Name" in node and node["Relation Name"] != "searchable_id_seq"
    }


@pytest.mark.parametrize(
    ("query", "most"), [("common", 20_000), ("some", 2_500), ("rare", 1), ("none", 0), ("w7", 50)]
)
async def test_a_search_looks_at_what_its_words_name(
    large_store: Store, query: str, most: int
) -> None:
    plan = await plan_of_search(large_store, query=query)

    assert ("searchable", "Bitmap Heap Scan") in scans(plan)
    assert not any(kind == "Seq Scan" for _, kind in scans(plan))
    assert rows_read(plan, "searchable") <= most
    assert rows_read(plan, "messages") <= 1000


async def test_a_search_of_a_person_looks_at_their_rows_only(large_store: Store) -> None:
    found = await SearchReads(large_store, identities.find_owners).search(
        search_of("common"),  # type: ignore[arg-type] # one it is
        TranscriptSearch(id="1", at=datetime.now(UTC), query="common", acting_for=ANN),
        behind=START,
        limit=50,
    )
    plan = await plan_of_search(large_store, any_mark([owner_mark("telegram:bot:8")]))

    assert len(found) == 50
    # 2,000 rows are theirs, and all of them match.
    assert rows_read(plan, "searchable") <= 2_500


async def test_of_very_many_rows_the_newest_are_found(large_store: Store) -> None:
    found = await SearchReads(large_store, identities.find_owners).search(
        search_of("common"),  # type: ignore[arg-type] # one it is
        TranscriptSearch(id="1", at=datetime.now(UTC), query="common"),
        behind=START,
        limit=2000,
    )

    assert sorted(hit.id for hit in found) == list(range(198_002, 200_001, 2))


async def test_a_page_of_a_long_transcript_reads_a_page(large_store: Store) -> None:
    for below in (20_021, 10_000, 5):
        plan = await plan_of(
            large_store,
            TranscriptReads._ROWS,
            HOT,
            below,
            100,
            500_000,
            262_144,
            None,
            False,  # noqa: FBT003 - as the reader passes it
            False,  # noqa: FBT003 - as the reader passes it
        )
        assert scans(plan) == {
            ("messages", "Index Scan"),
            ("sessions", "Index Scan"),
            ("turns", "Index Scan"),
        }
        assert rows_read(plan, "messages") <= 101


async def test_the_last_turns_of_a_long_transcript_are_found_at_its_end(
    large_store: Store,
) -> None:
    plan = await plan_of(large_store, transcript_changes.USER_ROWS_SQL, HOT, 2**62, 200)

    assert scans(plan) == {("messages", "Index Scan")}
    assert rows_read(plan, "messages") <= 400


async def test_the_head_of_a_long_line_is_read_and_no_more(large_store: Store) -> None:
    plan = await plan_of(large_store, pending_messages.HEADS_SQL, [HOT], 50)

    assert rows_read(plan, "waiting") <= 50
    assert not any(kind == "Seq Scan" for _, kind in scans(plan))
