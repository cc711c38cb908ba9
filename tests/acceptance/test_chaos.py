"""Everything that can break, amid traffic, by chance; the seed and the command repeat it.

`make chaos-long` does the same for longer and with other seeds.
"""

from datetime import timedelta
from typing import Final

import pytest

from chatlane.dev.binaries import server_directory
from tests.acceptance.conftest import Tell
from tests.support.chaos import Plan, run_chaos

pytestmark = pytest.mark.acceptance

PLAN: Final = Plan(seed=1, messages=3_000, per_second=250, pause=timedelta(milliseconds=500))


@pytest.mark.timeout(180)
async def test_whatever_breaks_every_conversation_sees_every_message_once_and_in_order(
    tell: Tell,
) -> None:
    with server_directory() as directory:
        outcome = await run_chaos(directory, PLAN)
    tell(outcome.summary())
    assert outcome.fault_count > 0
    assert not outcome.problems, outcome.report(PLAN)
