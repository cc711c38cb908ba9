"""What the migration runner says when it fails, and what it does not."""

import pytest

from chatlane.store.migrations import MigrationError, migrate

CANARY = "canary-7f3a"


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
