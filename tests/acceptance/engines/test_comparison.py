"""The comparison of docs/comparison.md, shortened: it runs, and counts what people see."""

import pytest

from chatlane_devkit.scenario.feed import read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from tests.benchmarks.comparison.chat_platform import Outcome
from tests.benchmarks.comparison.compare import measure, messages_of
from tests.benchmarks.comparison.systems import CANDIDATES

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

# Up to a little after the first fault.
LINES = 240


async def test_a_short_chat_day_through_chatlane_loses_nothing() -> None:
    steps = read_feed(SCENARIO_FILE)[:LINES]
    written = [item for item in messages_of(steps) if not isinstance(item, str)]
    result = await measure(CANDIDATES[0], steps, per_second=30, burst=0)
    its = result.outcome
    # The adapter is killed too: a message that it was sending may come again.
    wanted = Outcome(len(set(written)) + 1, 0, its.doubled, reordered=0, forgotten=0, stuck=0)
    assert its == wanted
    assert result.recovery.keys() == {"router"}
    assert result.lines > 0
