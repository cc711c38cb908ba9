"""What people see of a text, and which titles look alike."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane_schemas.content.visible_text import is_blank, shown_title, title_key, visible

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
HEART_ON_FIRE = "\u2764\ufe0f\u200d\U0001f525"
KEYCAP = "1\ufe0f\u20e3"
PERSIAN = "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("cafe\u0301", "caf\u00e9"),
        ("pl\u200ban", "plan"),
        ("plan\U000e0041\U000e0042\U000e007f", "plan"),
        ("a\u202eb\u2066c", "abc"),
        ("p\u200dlan\ufe0f", "plan"),
        ("\ufeff plan \u00ad", "plan"),
        ("\U0001f600\ufe00\ufe01\U000e0101", "\U0001f600"),
        ("\U0001f600\u200d", "\U0001f600"),
        (FAMILY, FAMILY),
        (HEART_ON_FIRE, HEART_ON_FIRE),
        (KEYCAP, KEYCAP),
        (PERSIAN, PERSIAN),
        ("a\u2028b\tc", "a b c"),
        ("\u2800 \u2800", ""),
        ("\x07\U000e0041", ""),
    ],
)
def test_f09_a_title_has_only_what_people_see(typed: str, shown: str) -> None:
    assert shown_title(typed) == shown


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("caf\u00e9", "cafe\u0301"),
        ("plan", "p\u200cl\u2060an"),
        ("\u2764", "\u2764\ufe0f"),
        ("\U0001f600\U0001f600", "\U0001f600\u200d\U0001f600"),
        ("plan", "plan\U000e0020"),
    ],
)
def test_f09_titles_that_look_alike_have_one_key(one: str, other: str) -> None:
    assert title_key(one) == title_key(other)
    assert title_key(one) != title_key(one + "2")


@given(st.text(max_size=30))
def test_f09_what_is_shown_is_shown_again_as_it_is(text: str) -> None:
    shown = shown_title(text)
    assert shown_title(shown) == shown
    assert title_key(shown) == title_key(shown_title(unicodedata.normalize("NFD", text)))
    assert not any(0xE0000 <= ord(sign) <= 0xE0FFF for sign in visible(text))


@pytest.mark.parametrize("text", ["", " \n", "\u200b\ufeff", "\U000e0041", "\u3164\u2800"])
def test_f06_what_nobody_sees_is_blank(text: str) -> None:
    assert is_blank(text)
    assert not is_blank(text + ".")
