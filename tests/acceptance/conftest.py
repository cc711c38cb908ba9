"""Stages for the acceptance tests."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.service.scene import Scene, open_scene

ReportLine = Callable[[str], None]


@pytest.fixture
async def scene(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A stage on the servers that all tests share."""
    async with open_scene(tmp_path, nats_url, database_url) as its:
        yield its
