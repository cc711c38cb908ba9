"""Commands of a roll-out that begin before the servers are there."""

import asyncio
from pathlib import Path

import pytest

from chatlane_servers.embedded import free_port
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.service.installation import CONFIG, Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]


async def test_streams_are_made_once_postgres_and_its_tables_are_there(
    own_postgres: RunningPostgres, nats_url: str, tmp_path: Path
) -> None:
    (tmp_path / "chatlane.toml").write_text(CONFIG)
    async with open_database(own_postgres.url) as name:
        installation = Installation(tmp_path, nats_url, own_postgres.dsn(name), free_port())
        await own_postgres.stop()
        waiting = asyncio.gather(
            installation.run("admin", "apply", "--wait", "2m"),
            installation.run("admin", "migrate", "--wait", "2m"),
        )
        refused = await installation.run("admin", "migrate")
        await own_postgres.start()
        applied, migrated = await waiting

    assert refused.code != 0
    assert (migrated.code, applied.code) == (0, 0), migrated.err + applied.err
    assert "waiting: Postgres does not answer" in migrated.err
    assert "everything is as declared" in applied.out


async def test_a_wait_ends_with_the_reason(nats_url: str, tmp_path: Path) -> None:
    (tmp_path / "chatlane.toml").write_text(CONFIG)
    nowhere = f"postgresql://chatlane@127.0.0.1:{free_port()}/chatlane"
    installation = Installation(tmp_path, nats_url, nowhere, free_port())

    ended = await installation.run("admin", "migrate", "--wait", "1s")

    assert ended.code == 1
    assert "Postgres does not answer" in ended.err.splitlines()[-1]
