"""Installations: bare, with everything applied, and with a router and a worker."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane.dev.servers import free_port
from tests.support.databases import login_of
from tests.support.eventually import eventually
from tests.support.installation import CONFIG, Installation


@pytest.fixture
async def bare(tmp_path: Path, nats_url: str, empty_database_url: str) -> Installation:
    """An installation of which only chatlane.toml exists."""
    (tmp_path / "chatlane.toml").write_text(CONFIG)
    return Installation(
        tmp_path,
        nats_url,
        await login_of(empty_database_url),
        free_port(),
        owner_url=empty_database_url,
        retention_url=await login_of(empty_database_url, "chatlane_retention"),
    )


@pytest.fixture
async def installed(bare: Installation) -> Installation:
    """An installation with tables, streams and durables."""
    await bare.done("admin", "migrate")
    await bare.done("admin", "grants", "--apply")
    await bare.done("admin", "apply")
    return bare


@pytest.fixture
async def serving(installed: Installation) -> AsyncIterator[Installation]:
    """An installation with a router and an echo worker."""
    async with installed.running("router"), installed.running("echo-worker"):
        await eventually(installed.is_ready, timedelta(seconds=60))
        yield installed
