"""Stages for the acceptance tests, and a place to tell how long recoveries took."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.support.scene import Scene, open_scene

_TOLD = pytest.StashKey[list[str]]()

Tell = Callable[[str], None]


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Tell something that is shown at the end of the run."""
    told = request.config.stash.setdefault(_TOLD, [])

    def add(line: str) -> None:
        told.append(f"{request.node.name}: {line}")

    return add


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Show what was told."""
    if told := config.stash.get(_TOLD, []):
        terminalreporter.section("recoveries")
        for line in sorted(told):
            terminalreporter.write_line(line)


@pytest.fixture
async def scene(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A stage on the servers that all tests share."""
    async with open_scene(tmp_path, nats_url, database_url) as its:
        yield its
