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
