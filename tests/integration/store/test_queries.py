"""Every statement of the store fits the migrated schema, and none reads a large table through."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from chatlane.postgres.pool import Connection, Store, open_store
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.statements import queries

pytestmark = pytest.mark.integration

HEADER = re.compile(r"\s*-- [a-z_.→ ]+: \S.*\n")

# They read all there is, on purpose: how much waits, and who may do what, an operator asks, not
# every message.
READ_EVERYTHING = {"outbox.BACKLOG_SQL", "grants.HELD_SQL"}


QUERIES = queries()


@pytest.fixture(scope="module")
async def connection(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[asyncpg.Connection]:
    """A connection to a migrated database with many rows in it."""
    async with open_database(postgres_server.url, template_database) as name:
        connected = await asyncpg.connect(postgres_server.dsn(name))
        try:
            await connected.execute(FILL)
            await connected.execute(EXPLAIN)
            yield connected
        finally:
            await connected.close()


@pytest.fixture(scope="module")
async def fresh_store(
    postgres_server: RunningPostgres, template_database: str
) -> AsyncIterator[Store]:
    """A store on a migrated database without rows, as a new installation has it."""
    async with (
        open_database(postgres_server.url, template_database) as name,
        open_store(postgres_server.dsn(name)) as store,
    ):
        async with store.transaction() as connected:
            await connected.execute(EXPLAIN)
            await connected.execute("SELECT create_seen_days(current_date, current_date)")
        yield store


def test_all_statements_are_found() -> None:
    assert len(QUERIES) > 30
    assert "outbox.INSERT_OUTBOX_SQL" in QUERIES
    assert "session_lists.PAGE_SQL" in QUERIES


def test_a_statement_says_what_it_is_for() -> None:
    """So it can be recognised in pg_stat_activity."""
    assert [name for name, sql in QUERIES.items() if not HEADER.match(sql)] == []


async def test_a_statement_fits_the_schema(connection: asyncpg.Connection) -> None:
    faults: dict[str, str] = {}
    for name, sql in QUERIES.items():
        try:
            await connection.prepare(sql)
        except asyncpg.PostgresError as error:
            faults[name] = str(error)
    assert faults == {}


def test_rows_are_locked_in_order() -> None:
    locking = {name: sql for name, sql in QUERIES.items() if "FOR NO KEY UPDATE" in sql}
    assert [name for name, sql in locking.items() if "ORDER BY" not in sql] == []


async def test_no_statement_reads_a_large_table_through(connection: asyncpg.Connection) -> None:
    assert await tables_read_through(connection) == {}


async def test_no_plan_for_empty_tables_harms_them_when_they_grow(fresh_store: Store) -> None:
    """A plan is kept with its prepared statement long after the tables have grown."""
    async with fresh_store.transaction() as connection:
        assert await tables_read_through(connection) == {}


async def tables_read_through(
    connection: asyncpg.Connection | Connection,
) -> dict[str, list[str]]:
    """Return, by statement, the large tables that its plan reads from end to end."""
    found: dict[str, list[str]] = {}
    for name in QUERIES.keys() - READ_EVERYTHING:
        plan = json.loads(await connection.fetchval("SELECT generic_plan($1)", QUERIES[name]))
        if tables := sorted(scanned_through(plan[0]["Plan"])):
            found[name] = tables
    return found


async def test_the_guard_sees_a_scan(connection: asyncpg.Connection) -> None:
    scan = "SELECT id FROM outbox WHERE subject = $1"
    plan = json.loads(await connection.fetchval("SELECT generic_plan($1)", scan))
    assert list(scanned_through(plan[0]["Plan"])) == ["outbox"]


def scanned_through(node: dict[str, Any]) -> Iterator[str]:
    """Yield the tables that a plan reads from end to end, but for the small ones."""
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL:
        yield node["Relation Name"]
    for child in node.get("Plans", ()):
        yield from scanned_through(child)


SMALL = {
    "agent_pauses",
    "partitions",
    "routers",
    "log_marks",
    "log_trims",
    "schema_migrations",
    "searchable_id_seq",
    "reconciliation",
    "stream_marks",
}

# A plan for parameters that are not known, which is what a prepared statement ends up with.
EXPLAIN = """
CREATE FUNCTION generic_plan(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    plan text;
BEGIN
    EXECUTE 'EXPLAIN (GENERIC_PLAN, FORMAT JSON) ' || query INTO plan;
    RETURN plan;
END
$$
"""

FILL = """
SELECT create_seen_days(current_date - 2, current_date + 1);
INSERT INTO seen (digest, day, session_id, arrival)
    SELECT sha256(n::text::bytea), current_date + 1 - n % 4, gen_random_uuid(), n
    FROM generate_series(1, 20000) AS n;
INSERT INTO sessions (id, session_key, agent, platform, started_at, title, title_scope)
    SELECT lpad(to_hex(n), 32, '0')::uuid, 'key:' || n, 'main', 'telegram', now(), 'title:' || n, ''
    FROM generate_series(1, 20000) AS n;
INSERT INTO lanes (session_key, session_id)
    SELECT session_key, id FROM sessions;
INSERT INTO projects (id, owner, name, colour, place)
    SELECT id, 'telegram:bot:' || started_at || id, 'Garden', '#6366f1', 1 FROM sessions;
INSERT INTO drafts (session_id, owner, text, changed_at)
    SELECT id, 'telegram:bot:' || id, 'words', now() FROM sessions;
INSERT INTO read_marks (session_id, owner, through_seq, read_at)
    SELECT id, 'telegram:bot:' || id, 1, now() FROM sessions;
UPDATE sessions SET room = 'matrix:bot:' || id WHERE random() < 0.01;
INSERT INTO room_reports (room, chat, reported_at, until)
    SELECT 'matrix:bot:' || id, id, now(), now() + random() * interval '2 hours' FROM sessions;
INSERT INTO room_members (room, form, owner)
    SELECT 'matrix:bot:' || id, id, 'matrix:bot:' || id FROM sessions;
INSERT INTO session_holds (session_id, name, held_until)
    SELECT id, 'job', now() FROM sessions;
UPDATE sessions SET check_at = now() + random() * interval '1 day' WHERE random() < 0.1;
INSERT INTO lane_aliases (alias, session_key)
    SELECT 'old ' || session_key, session_key FROM sessions;
INSERT INTO turns (id, session_id, agent, state, source, due_at)
    SELECT id, id, 'main', CASE WHEN random() < 0.01 THEN 'claimed' ELSE 'done' END, '{}', now()
    FROM sessions;
INSERT INTO turn_steps (turn_id, session_id, attempt, name, result)
    SELECT id, id, 1, 'look', '{}' FROM sessions;
INSERT INTO messages (session_id, seq, id, role, content, created_at, turn_id)
    SELECT id, 1, id, 'user', 'hello', now(), id FROM sessions;
INSERT INTO removed_messages (session_id, removal, seq, reason, id, role, created_at,
                              platform_message_id)
    SELECT id, 1, 1, 'undone', id, 'user', now(), session_key FROM sessions;
INSERT INTO searchable (session_id, removal, seq, id, terms)
    SELECT id, 0, 1, nextval('searchable_id_seq'), array_to_tsvector(ARRAY['hello', session_key, '=b:' || (currval('searchable_id_seq') >> 13)]) FROM sessions;
INSERT INTO search_progress (session_id, seq) SELECT id, 1 FROM sessions;
INSERT INTO api_requests (principal, id, digest, at)
    SELECT 'someone', session_key, 'x', now() - random() * interval '1 day'
    FROM sessions;
INSERT INTO outbox (session_id, stream, router, subject, message_id, payload)
    SELECT id, 'OUTBOUND', lpad(to_hex(random(1, 4)), 32, '0')::uuid, 'subject', 'id', 'x'
    FROM sessions;
INSERT INTO waiting (
        session_id, arrival, session_key, message_id, size_bytes, details, source, stored_at)
    SELECT id, 1, session_key, id, 1, '{}', '{}', now() FROM sessions;
INSERT INTO routed_changes (message_id, session_id)
SELECT gen_random_uuid(), gen_random_uuid() FROM generate_series(1, 20000);
INSERT INTO expiring_messages (message_id, part, session_id, expires_at)
SELECT gen_random_uuid(), 'content', gen_random_uuid(), now() + n * interval '1 s'
FROM generate_series(1, 20000) AS n;
INSERT INTO early_edits (digest, attachments, size_bytes)
    SELECT sha256(id::text::bytea), '[]', 1 FROM sessions;
INSERT INTO message_revisions (session_id, platform_message_id, message_id, reason, at)
    SELECT id, session_key, id, 'edited', now() FROM sessions;
INSERT INTO dead_letters (id, stage, reason, digest, size_bytes)
    SELECT id, 'inbound', 'not_json', 'digest', 1 FROM sessions;
INSERT INTO dead_letter_shares
    SELECT 'inbound', 'telegram/' || n % 50, now() - n * interval '1 minute', 'not_json', 1, 1, 1, 1
    FROM generate_series(1, 40000) AS n;
INSERT INTO deliveries (session_id, message_id, platform, account, agent, created_at, is_untold)
    SELECT id, id, 'telegram', 'bot', CASE WHEN random() < 0.99 THEN 'main' END, now(),
           random() < 0.01
    FROM sessions;
INSERT INTO delivered_messages (digest, session_id, message_id, piece)
    SELECT sha256(id::text::bytea), id, id, 0 FROM sessions;
INSERT INTO late_results (id, session_id, body) SELECT id::text, id, 'x' FROM sessions;
INSERT INTO audit (action, session_id, detail) SELECT 'session_removed', id, '{}' FROM sessions;
INSERT INTO erasure_requests (id, person, requested_by, requested_at, finished_at)
SELECT id, NULL, 'web', started_at, started_at FROM sessions;
INSERT INTO former_ids (platform, account, form, identity, since, until)
SELECT 'signal', 'bot', '+' || number % 10000, 'p' || number, now(), now() + interval '1 s' * number
FROM generate_series(1, 20000) AS number;
INSERT INTO erased_spans (digest, since, until, is_past, erasure)
SELECT decode(md5(number::text), 'hex'), now(), now(), false, gen_random_uuid()
FROM generate_series(1, 20000) AS number;
INSERT INTO aliases (platform, account, kind, alias, canonical, first_seen_at)
    SELECT 'whatsapp', 'bot', 'person', 'alias' || n, 'canonical' || n, now()
    FROM generate_series(1, 20000) AS n;
INSERT INTO bot_budgets (key, opened_at, last_at, messages, is_silenced)
    SELECT decode(md5(n::text), 'hex'), now(), now(), 1, false
    FROM generate_series(1, 20000) AS n;
INSERT INTO shown_lists (key, shown_at, session_ids)
    SELECT decode(md5(n::text), 'hex'), now(), '{}' FROM generate_series(1, 20000) AS n;
INSERT INTO admission (key, full_at) SELECT decode(md5(n::text), 'hex'), now()
    FROM generate_series(1, 20000) AS n;
INSERT INTO erasures (id, until, key_id) SELECT id, now(), 'key' FROM sessions;
INSERT INTO erased_people (digest, until, erasure)
    SELECT sha256(id::text::bytea), now(), id FROM sessions;
INSERT INTO erased_ids (id, kind, erasure, erased_at)
    SELECT id, 'message', lpad(to_hex(random(1, 40)), 32, '0')::uuid,
           now() - random() * interval '90 days' FROM sessions;
INSERT INTO erased_messages (stream, sequence, stored_at, generation, noted_at, erased_at)
    SELECT 'INBOUND', n, now(), 'g', now() - random() * interval '90 days',
           CASE WHEN n % 100 > 0 THEN now() END
    FROM generate_series(1, 20000) AS n;
INSERT INTO erasure_receipts (erasure, store, count, ids)
    SELECT id, 'messages', 1, '[]' FROM sessions;
ANALYZE;
"""
