"""The parts that the targets `test` and `test-all` divide the tests into."""

from collections.abc import Collection
from typing import Final, Literal

Part = Literal["together", "alone", "sweeps", "slow", "other"]

_OTHER_TARGETS: Final = frozenset({"containers", "benchmark", "long", "kube_api"})

MARK_OF_PART: Final = {"alone": "acceptance", "sweeps": "slow", "slow": "slow"}
"""A mark that the tests of a part have, where the part is small; their files name it."""

ONE_SERVER_FOLDERS: Final = frozenset(
    {
        "tests/acceptance/console",
        "tests/integration/adapters/discord",
        "tests/integration/adapters/matrix",
        "tests/integration/adapters/telegram",
    }
)
"""Folders whose tests share what takes seconds to start: one process runs all of them."""


def folder_of(nodeid: str) -> str:
    """Return the folder of a test, relative to the root of the repository."""
    return nodeid.partition("::")[0].rpartition("/")[0]


def part_of(marks: Collection[str]) -> Part:
    """Return the part that a test with these marks belongs to."""
    if not _OTHER_TARGETS.isdisjoint(marks):
        return "other"
    needs_all = "acceptance" in marks and "untimed" not in marks
    if "slow" in marks:
        return "slow" if needs_all else "sweeps"
    return "alone" if needs_all else "together"
