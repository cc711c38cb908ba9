"""Find the place at which a text may be cut."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_JOINER: Final = "\u200d"
_SELECTORS: Final = range(0xFE00, 0xFE10)
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS: Final = range(0x1F1E6, 0x1F200)
_TAGS: Final = range(0xE0020, 0xE0080)
# Characters that are no marks and still belong to the one before: vowels and final consonants of
# decomposed Korean, a vowel each of Thai and Lao, voiced marks of narrow kana, the non-joiner.
_FOLLOWERS: Final = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb\u0e33\u0eb3\uff9e\uff9f\u200c]")
# A cut at a better place may leave this share of a piece unused.
_SPARE: Final = 0.5


def place_to_cut(text: str, fitting: int, whole: Sequence[tuple[int, int]] = ()) -> int:
    """Return where to cut a text: between paragraphs, else lines, else words.

    Characters that are seen as one stay together if they fit.

    Args:
        text: The text.
        fitting: How many of its characters fit, at least 1.
        whole: Begin and end of parts that a cut would break.
    """
    least = int(fitting * _SPARE)
    for separator in ("\n\n", "\n", " "):
        end = fitting
        while (place := text.rfind(separator, least, end)) >= 0:
            cut = place + len(separator)
            if not any(begin < cut < stop for begin, stop in whole):
                return cut
            end = cut - 1
    # No good place: before a link that is in the way, else between two characters.
    cut = next((begin for begin, stop in whole if 0 < begin < fitting < stop), fitting)
    place = cut
    while place > 1 and _belongs_together(text, place):
        place -= 1
    return cut if _belongs_together(text, place) else place


def _belongs_together(text: str, place: int) -> bool:
    """Return whether the characters before and behind a place are seen as one."""
    if place >= len(text):
        return False
    before, behind = text[place - 1], text[place]
    code = ord(behind)
    if _JOINER in (before, behind) or code in _SELECTORS or code in _SKIN_TONES or code in _TAGS:
        return True
    if unicodedata.category(behind) in {"Mn", "Me", "Mc"} or _FOLLOWERS.match(behind):
        return True
    if before == "\r" and behind == "\n":
        return True
    if ord(before) in _FLAG_LETTERS and code in _FLAG_LETTERS:
        begin = place
        while begin > 0 and ord(text[begin - 1]) in _FLAG_LETTERS:
            begin -= 1
        return (place - begin) % 2 == 1
    return False
