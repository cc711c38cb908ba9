"""Titles that people take for the same are the same."""

# ruff: noqa: RUF001 - characters that look alike are the subject

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlane.domain.sessions.titles import are_alike, best_match
from chatlane_schemas.content.visible_text import shown_title


@pytest.mark.parametrize(
    ("title", "other"),
    [
        pytest.param("Zürich", "Zu\u0308rich", id="decomposed"),
        pytest.param("Zürich", "zÜRICH", id="case"),
        pytest.param("straße", "STRASSE", id="sharp s"),
        pytest.param("İstanbul", "istanbul", id="turkish i"),
        pytest.param("ΟΔΟΣ", "οδος", id="final sigma"),
        pytest.param("plan", "р\u0430n".replace("р", "pl"), id="cyrillic a"),
        pytest.param("cope", "соре", id="all cyrillic"),
        pytest.param("KATE", "ΚΑΤΕ", id="greek capitals"),
        pytest.param("plan 10", "ＰＬＡＮ　１０", id="wide"),
        pytest.param("カラオケ", "ｶﾗｵｹ", id="narrow kana"),
        pytest.param("plan", "𝐩𝖑𝒶𝚗", id="mathematical"),
        pytest.param("office", "oﬃce", id="ligature"),
        pytest.param("Al", "AI", id="l and I"),
        pytest.param("Trip 1", "Trip l", id="1 and l"),
        pytest.param("Room O", "Room 0", id="O and 0"),
        pytest.param("modern", "modem", id="rn and m"),
        pytest.param("a-b", "a–b", id="dash"),
        pytest.param("Ann's", "Ann’s", id="quote"),
        pytest.param("a b", "a\u00a0 b", id="spaces"),
        pytest.param("p\u00adlan", "plan\u2064", id="invisible"),
        pytest.param("한글", unicodedata.normalize("NFD", "한글"), id="hangul"),
        pytest.param("हिंदी", "हिं\u200bदी", id="devanagari"),
    ],
)
def test_c81_titles_that_look_the_same_are_alike(title: str, other: str) -> None:
    assert are_alike(title, other)
    assert are_alike(other, title)


@pytest.mark.parametrize(
    ("title", "other"),
    [
        ("plan", "plane"),
        ("plan 1", "plan 2"),
        ("Zürich", "Zurich"),
        ("旅行", "旅程"),
        ("привет", "пpивeт!"),
        ("a b", "ab"),
        ("👍", "👎"),
        ("résumé", "resume"),
    ],
)
def test_c81_titles_that_look_different_are_not(title: str, other: str) -> None:
    assert not are_alike(title, other)


@given(st.text(max_size=30))
def test_c81_a_title_is_alike_in_every_form(text: str) -> None:
    title = shown_title(text)
    for form in ("NFC", "NFD"):
        assert are_alike(title, unicodedata.normalize(form, title))
    assert are_alike(title, f"\u2060{title}\ufeff")


def test_c81_the_very_title_is_meant_before_one_like_it() -> None:
    titles = ["PLAN", "plan", "рlan"]
    assert best_match("plan", titles) == "plan"
    assert best_match("Plan", titles) == "PLAN"
    assert best_match("рlan", titles) == "рlan"
    assert best_match("рLan", ["plan"]) == "plan"
    assert best_match("other", titles) is None
