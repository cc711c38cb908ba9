"""What every migration says about the way back, and what the runner says when it fails."""

import re
from pathlib import Path
from typing import Final

import pytest

from chatlane.postgres.migrations import MigrationError, migrate
from tests.support.servers.migrations import FILES, way_back

CANARY = "canary-7f3a"

_REFUSAL: Final = r"DO \$\$ BEGIN RAISE EXCEPTION 'cannot be rolled back: [^']+'; END \$\$;"
# What people wrote, and columns of tables that stay.
_LOSING: Final = r"\b(ALTER TABLE|DELETE|TRUNCATE|UPDATE)\b"
_DOWN: Final = "-- migrate:down"
_COMMENT: Final = r"--.*"
_BODY: Final = r"\$(\w*)\$.*?\$\1\$"
_LOCKING: Final = (
    r"(LOCK TABLE|ALTER TABLE(?! \w+ SET)|CREATE (?:UNIQUE )?INDEX \w+\s+ON) (\w+(?:, \w+)*)"
)
# As in ARCHITECTURE.md, and where transactions use the tables that it does not name.
_ORDER: Final = (
    *("routers", "partitions", "aliases", "sessions", "turns", "lanes", "waiting", "seen"),
    *("messages", "removed_messages", "dead_letters", "late_results", "outbox"),
)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_migration_can_be_undone_without_loss_or_refuses(file: Path) -> None:
    back = way_back(file)
    assert back
    assert re.fullmatch(_REFUSAL, back) or not re.search(_LOSING, back)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_undone_is_what_the_migration_made(file: Path) -> None:
    made = set(re.findall(r"CREATE (?:UNIQUE )?(?:INDEX|TABLE|SEQUENCE) (\w+)", file.read_text()))
    undone = set(re.findall(r"DROP (?:INDEX|TABLE|SEQUENCE) (\w+)", way_back(file)))
    assert undone <= made


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_migration_locks_tables_in_the_order_in_which_routers_use_them(file: Path) -> None:
    used = list(dict.fromkeys(table for _, table in _locks_of(file)))
    if len(used) > 1:
        assert sorted(used, key=_ORDER.index) == used


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_migration_asks_for_no_stronger_lock_of_a_table_that_it_has_locked(file: Path) -> None:
    indexed: set[str] = set()
    locked: set[str] = set()
    for is_exclusive, table in _locks_of(file):
        assert not (is_exclusive and table in indexed - locked), table
        (locked if is_exclusive else indexed).add(table)


def _locks_of(file: Path) -> list[tuple[bool, str]]:
    """Return the tables that a migration locks, in order, and whether nobody can read them then."""
    up = re.sub(_COMMENT, "", file.read_text().partition(_DOWN)[0])
    up = re.sub(_BODY, "", up, flags=re.DOTALL)
    created = re.findall(r"CREATE TABLE (\w+)", up)
    found: list[tuple[bool, str]] = []
    for words, tables in re.findall(_LOCKING, up):
        found += [(not words.startswith("CREATE"), table) for table in tables.split(", ")]
    return [(is_exclusive, table) for is_exclusive, table in found if table not in created]


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://ann:{CANARY}@127.0.0.1:no-port/chat",
        f"postgresql://ann:{CANARY}%2F@127.0.0.1:no-port/chat",
        f"postgresql://127.0.0.1:no-port/chat?user=ann&password={CANARY}",
        f"postgresql://ann:{CANARY}@127.0.0.1:1/chat",
    ],
)
async def test_a_migration_that_fails_says_no_password(dsn: str) -> None:
    with pytest.raises(MigrationError) as caught:
        await migrate(dsn)
    assert CANARY not in f"{caught.value!r} {caught.value}"
