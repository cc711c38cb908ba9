from collections.abc import Collection

import pytest

from tests.support.parts import Part, part_of


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ((), "together"),
        (("integration",), "together"),
        (("acceptance", "untimed"), "together"),
        (("acceptance",), "alone"),
        (("acceptance", "untimed", "slow"), "sweeps"),
        (("acceptance", "slow"), "slow"),
        (("integration", "slow"), "sweeps"),
        (("acceptance", "slow", "long"), "other"),
        (("integration", "containers"), "other"),
        (("benchmark",), "other"),
    ],
)
def test_each_test_belongs_to_one_part(marks: Collection[str], expected: Part) -> None:
    assert part_of(marks) == expected
