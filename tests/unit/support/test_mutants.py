"""Mutants of the protocol: what each breaks, and when it counts as noticed."""

from collections.abc import Callable

import pytest

from tests.chaos import mutant_router
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


@pytest.mark.parametrize("mutate", MUTANTS, ids=NAMES)
def test_a_mutant_finds_what_it_breaks(
    mutate: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced = []

    def replace(owner: object, name: str, replacement: object) -> None:
        replaced.append(name)
        # Undone at the end of the test.
        monkeypatch.setattr(owner, name, replacement)

    monkeypatch.setattr(mutant_router, "setattr", replace, raising=False)
    mutate()
    assert replaced
