"""A caller answers a question with text."""

import pytest

from chatlane_bridges.synadia.queries import chosen
from chatlane_schemas.content.buttons import Button

OPTIONS = (Button(label="Allow once", value="allow"), Button(label="Deny"))


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("1", "allow"),
        (" allow ONCE\n", "allow"),
        ("allow", "allow"),
        ("deny", "Deny"),
        ("perhaps", "perhaps"),
        ("3", "3"),
    ],
)
def test_an_option_is_named_by_number_label_or_value(said: str, value: str) -> None:
    assert value == chosen(said, OPTIONS)
