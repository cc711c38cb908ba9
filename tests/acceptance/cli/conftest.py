"""Installations: bare, with everything applied, and with a router and a worker."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane.config.settings import load_settings
from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.servers.databases import login_of
from tests.support.service.installation import CONFIG, Installation
from tests.support.service.processes import apply_topology


@pytest.fixture
async def bare(tmp_path: Path, nats_url: str, empty_database_url: str) -> Installation:
    """An installation of which only chatlane.toml exists."""
    return await _installation(tmp_path, nats_url, empty_database_url)


@pytest.fixture
async def installed(tmp_path: Path, nats_url: str, database_url: str) -> Installation:
    """An installation with tables, streams and durables, as `chatlane admin` makes them."""
    installation = await _installation(tmp_path, nats_url, database_url)
    path = tmp_path / "chatlane.toml"
    await apply_topology(load_settings(path, {"CHATLANE_NATS__URL": nats_url}))
    return installation


async def _installation(directory: Path, nats_url: str, owner_url: str) -> Installation:
    (directory / "chatlane.toml").write_text(CONFIG)
    return Installation(
        directory,
        nats_url,
        await login_of(owner_url),
        free_port(),
        owner_url=owner_url,
        retention_url=await login_of(owner_url, "chatlane_retention"),
    )


@pytest.fixture
async def serving(installed: Installation) -> AsyncIterator[Installation]:
    """An installation with a router and an echo worker."""
    async with installed.running("router"), installed.running("echo-worker"):
        await eventually(installed.is_ready, timedelta(seconds=60))
        yield installed
