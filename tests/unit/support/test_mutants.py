"""When a mutant of the protocol counts as noticed."""

import pytest

from tests.chaos.mutant_router import MUTANTS
from tests.chaos.mutants import is_noticed

NAMES = [mutate.__name__ for mutate in MUTANTS]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_slow_machine_does_is_no_proof(name: str) -> None:
    slow = ["never settled: not within 20 s", "stall: 'p01 1' was answered after 60.0 s"]
    assert not is_noticed(name, slow)


def test_only_the_damage_that_a_mutant_does_counts() -> None:
    assert is_noticed("older_rows_ignored", ["never settled: ...", "inverted: routed of s1"])
    assert not is_noticed("older_rows_ignored", ["doubled: m1 is 2 times on routed"])
