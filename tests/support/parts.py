"""The parts that the targets `test` and `test-all` divide the tests into."""

from collections.abc import Collection
from typing import Final, Literal

Part = Literal["together", "alone", "slow", "other"]

_OTHER_TARGETS: Final = frozenset({"containers", "benchmark", "long"})


def part_of(marks: Collection[str]) -> Part:
    """Return the part that a test with these marks belongs to."""
    if not _OTHER_TARGETS.isdisjoint(marks):
        return "other"
    if "slow" in marks:
        return "slow"
    return "alone" if "acceptance" in marks and "untimed" not in marks else "together"
