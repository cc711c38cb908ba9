"""Where texts are cut."""

import pytest

from chatlane.domain.prompts.sanitize import beginning, between

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
FLAG = "\U0001f1e9\U0001f1ea"
ACCENTED = "e\u0301"
HANGUL = "\u1112\u1161\u11ab"


@pytest.mark.parametrize("sign", [FAMILY, FLAG, ACCENTED, HANGUL, "\u0915\u094d\u0937\u093f"])
def test_f09_a_cut_parts_no_sign(sign: str) -> None:
    assert beginning(sign * 5, 3) == sign * 3 + "…"
    assert beginning(sign * 3, 3) == sign * 3
    assert beginning("ab" + sign * 2, 3) == "ab" + sign + "…"


def test_f09_a_text_that_was_cut_before_ends_with_a_whole_sign() -> None:
    assert beginning(f"ab{FAMILY}"[:6], 10, is_whole=False) == "ab…"
    assert beginning(FAMILY * 20, 60, is_whole=False).endswith(FAMILY + "…")


def test_f09_marks_without_end_are_bounded() -> None:
    assert len(beginning("a" + "\u0301" * 10_000, 60)) < 1000


@pytest.mark.parametrize("place", range(len(FAMILY)))
def test_f09_a_piece_has_whole_signs(place: int) -> None:
    text = "x" * 30 + FAMILY + "y" * 30
    piece = between(text, 30 + place, 70)
    assert piece.strip("y") == (FAMILY if place == 0 else "")
    assert between(text, 0, 30 + place) == "x" * 30
