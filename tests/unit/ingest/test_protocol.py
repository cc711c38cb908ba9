"""Routers on ports in memory, in virtual time: whatever happens in whatever order."""

import os
from typing import Final

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.worlds.protocol_machine import MemoryWorld, ProtocolMachine

# A thousand take about two minutes.
EXAMPLES: Final = int(os.environ.get("CHATLANE_TEST_EXAMPLES", "40"))


class InMemory(ProtocolMachine):
    def __init__(self) -> None:
        super().__init__(MemoryWorld)


# Many steps in one test, and the sooner over the faster the machine.
@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_out_of_order() -> None:
    chosen = settings(max_examples=EXAMPLES, stateful_step_count=50, deadline=None)
    run_state_machine_as_test(InMemory, settings=chosen)
