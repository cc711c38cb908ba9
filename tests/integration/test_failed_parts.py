"""A part of the router fails, and what it had in its hands never ends."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane.app.lifecycle import open_app, route
from chatlane.config.settings import load_settings
from chatlane.ingest import batch_committer
from chatlane_client import AdapterClient, open_connection
from tests.support.servers.databases import login_of
from tests.support.service.load_users import Person
from tests.support.service.processes import ACCOUNT, PLATFORM, apply_topology, config_text

pytestmark = pytest.mark.integration

# Less than the time that a stop may take, and much more than a lease.
_ENDS_WITHIN: Final = timedelta(seconds=30)


async def test_a_router_whose_part_has_failed_ends_long_before_its_stop_timeout(
    nats_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "chatlane.toml"
    dsn = await login_of(database_url)
    path.write_text(config_text(nats_url, dsn, lease=timedelta(seconds=1)), "utf-8")
    settings = load_settings(path, {"CHATLANE_ROUTER__STOP_TIMEOUT": "5m"})
    await apply_topology(settings)

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(batch_committer, "decoded", fail)
    async with open_app(settings) as app, open_connection(nats_url, name="test") as client:
        routing = asyncio.create_task(route(app, asyncio.Event()))
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        await adapter.publish(Person("ann").event("hello", "1"))
        async with asyncio.timeout(_ENDS_WITHIN.total_seconds()):
            await routing
        assert app.has_ended.is_set()
