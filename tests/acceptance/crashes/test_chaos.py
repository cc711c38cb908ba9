"""Everything that can break, amid traffic, by chance; the seed and the command repeat it.

`make chaos-long` does the same for longer and with other seeds.
"""

from datetime import timedelta
from typing import Final

import pytest

from chatlane_servers.binaries import server_directory
from tests.acceptance.conftest import ReportLine
from tests.support.chaos import Plan, run_chaos
from tests.support.nemesis import CRASH_POINT, WEIGHTS

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

MESSAGES, FAULTS = 20_000, 100
PLAN: Final = Plan(
    seed=1,
    messages=MESSAGES,
    faults=FAULTS,
    per_second=350,
    pause=timedelta(milliseconds=420),
    messages_per_fault=150,
    most_unheard=400,
    # Leases of 1 s end amid the work of a slow machine, one after another.
    longest_wait=timedelta(seconds=90),
    # A worker that is hit has turns in work.
    think=timedelta(milliseconds=50),
    slots=16,
)


@pytest.mark.timeout(420)
async def test_whatever_breaks_every_conversation_sees_every_message_once_and_in_order(
    report_line: ReportLine,
) -> None:
    with server_directory() as directory:
        outcome = await run_chaos(directory, PLAN)
    report_line(outcome.summary())
    assert not outcome.problems, outcome.report(PLAN)
    assert outcome.sent >= MESSAGES
    assert outcome.fault_count >= FAULTS
    assert outcome.faults.keys() == {*WEIGHTS, CRASH_POINT}
