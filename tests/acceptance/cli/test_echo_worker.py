"""The worker that repeats what it hears, as a process that something else watches."""

from datetime import timedelta

import pytest

from tests.support.eventually import eventually
from tests.support.installation import Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]


async def test_it_shows_that_it_is_well_where_it_is_told_to(installed: Installation) -> None:
    async with installed.running("echo-worker", "--health"):
        await eventually(installed.is_ready, timedelta(seconds=60))
