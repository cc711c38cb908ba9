"""Columns of closed sets: the checks of the tables, and the migration that brought them."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, get_args

import asyncpg
import pytest

from chatlane.domain.catalog import BusyMode
from chatlane.domain.sessions.transcripts import BRANCH, COMPRESSION
from chatlane_schemas.events import EndReason, ResetReason
from chatlane_schemas.results import Outcome, Role
from chatlane_schemas.session_api.transcripts import RowState, Unanswered
from chatlane_schemas.turns import CancelReason
from tests.support.servers.migrations import apply_each

pytestmark = pytest.mark.integration

KNOWN: Final[dict[str, Iterable[str]]] = {
    "sessions.end_reason": EndReason,
    "sessions.start_reason": ResetReason,
    "sessions.link_kind": (BRANCH, COMPRESSION, "merged"),
    "turns.cancel": CancelReason,
    "turns.rest": ("resting", "rested", "parked"),
    "turns.outcome": Outcome,
    "waiting.busy": get_args(BusyMode),
    "messages.state": RowState,
    "messages.role": Role,
    "messages.unanswered": Unanswered,
    "message_revisions.reason": RowState,
}
CHECK: Final = """
SELECT pg_get_constraintdef(oid), convalidated FROM pg_constraint
WHERE conrelid = $1::regclass AND conname = $2
"""


@pytest.mark.parametrize("column", KNOWN)
async def test_f10_a_column_takes_the_values_that_the_code_knows(
    database_url: str, column: str
) -> None:
    """Who adds a value replaces the check first, in a migration of its own."""
    table, _, field = column.partition(".")
    connection = await asyncpg.connect(database_url)
    try:
        row = await connection.fetchrow(CHECK, table, f"{table}_{field}_check")
    finally:
        await connection.close()
    assert row is not None
    assert set(re.findall(r"'(\w+)'", row[0])) == set(map(str, KNOWN[column]))
    assert row[1]


WRONG: Final = """
INSERT INTO sessions (id, session_key, agent, platform, started_at, start_reason, link_kind,
                      ended_at, end_reason)
    SELECT lpad(n::text, 32, '0')::uuid, 'k' || n, 'main', 'telegram', now(),
           CASE n WHEN 1 THEN 'bored' ELSE 'idle' END,
           CASE n WHEN 2 THEN 'cousin' ELSE 'branch' END,
           now(), CASE n WHEN 3 THEN repeat('x', 99) ELSE 'daily' END
    FROM generate_series(1, 4) AS n;
INSERT INTO turns (id, session_id, agent, state, due_at, cancel, rest, outcome)
    VALUES (gen_random_uuid(), lpad('4', 32, '0')::uuid, 'main', 'claimed', now(),
            'regret', 'asleep', 'fine');
INSERT INTO waiting (session_id, arrival, session_key, message_id, size_bytes, details, source,
                     stored_at, busy)
    VALUES (lpad('4', 32, '0')::uuid, 1, 'k4', gen_random_uuid(), 1, '{}', '{}', now(), 'shout');
INSERT INTO messages (session_id, seq, role, created_at, state)
    VALUES (lpad('4', 32, '0')::uuid, 1, 'user', now(), 'burnt');
"""
REPAIRED: Final = """
SELECT start_reason, link_kind, end_reason, NULL FROM sessions
UNION ALL SELECT cancel, rest, outcome, NULL FROM turns
UNION ALL SELECT busy, NULL, NULL, NULL FROM waiting
UNION ALL SELECT state, NULL, NULL, NULL FROM messages
"""
NOTED: Final = """
SELECT session_id::text, detail ->> 'column', detail ->> 'was' FROM audit
WHERE action = 'value_repaired' ORDER BY session_id, detail ->> 'column'
"""


async def test_f10_values_that_were_wrong_are_repaired_and_noted(
    empty_database_url: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(empty_database_url)
    try:
        async for file in apply_each(empty_database_url, tmp_path):
            if file.name.startswith("0140"):
                await connection.execute(WRONG)
        rows = [tuple(row)[:3] for row in await connection.fetch(REPAIRED)]
        noted = [(row[0][-1], row[1], row[2]) for row in await connection.fetch(NOTED)]
    finally:
        await connection.close()
    assert sorted(rows, key=str) == [
        ("idle", "branch", "daily"),
        ("idle", "branch", "requested"),
        ("idle", None, "daily"),
        ("stopped", None, None),
        (None, "branch", "daily"),
        (None, None, None),
        (None, None, None),
    ]
    assert noted == [
        ("1", "sessions.start_reason", "bored"),
        ("2", "sessions.link_kind", "cousin"),
        ("3", "sessions.end_reason", "x" * 64),
        ("4", "messages.state", "burnt"),
        ("4", "turns.cancel", "regret"),
        ("4", "turns.outcome", "fine"),
        ("4", "turns.rest", "asleep"),
        ("4", "waiting.busy", "shout"),
    ]
