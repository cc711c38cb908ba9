"""The worker that repeats what it hears, as a process that something else watches."""

from datetime import timedelta

import pytest

from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.service.installation import Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


async def test_it_shows_that_it_is_well_where_it_is_told_to(installed: Installation) -> None:
    async with installed.running("echo-worker", "--health"):
        await eventually(installed.is_ready, timedelta(seconds=60))


async def test_it_can_be_stopped_while_it_waits_for_its_server(installed: Installation) -> None:
    installed._environment["CHATLANE_NATS__URL"] = f"nats://127.0.0.1:{free_port()}"

    async with installed.running("echo-worker", "--health"):
        await eventually(installed.is_alive, timedelta(seconds=30))
        assert not await installed.is_ready()
