"""Compare titles as people see and type them. Pure."""

# ruff: noqa: RUF001 - characters that look alike are the subject

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from chatlane_schemas.content.visible_text import title_key

if TYPE_CHECKING:
    from collections.abc import Iterable

# Words of a character of ASCII and the characters that look like it: those of Unicode TR 39 in the
# Latin, Greek, Cyrillic and Armenian scripts. NFKC has replaced wide and mathematical letters.
_ALIKE: Final = (
    "aɑαа bƄЬ cсᴄ dԁ eеҽꬲ fꞙꬵ gƍɡցᶃ hһհ iıɩɪιіӏꙇ jϳј l1IƖ|ǀΙІӀ nոռ oοσоօᴏᴑꬽ pρр qԛգզ rгᴦꭇꭈ sƽѕꜱ "
    "uʋυսᴜꞟꭎꭒ vνѵᴠ wɯѡԝաᴡ xх yɣʏγуүᶌỿꭚ zᴢ AΑА BΒВꞴ CС EΕЕ FϜꞘ GԌ HΗН JͿЈꞲ KΚК MΜϺМ NΝ O0ΟОՕ PΡР "
    "RƦ SЅՏ TΤТ UՍ VѴ WԜ XΧХꞳ YΥУҮ ZΖ 2ƧꙄꝚ 3ƷȜЗӠꝪꞫ 5Ƽ 6б 8Ȣȣ -‐‒–—―−⁃ '‘’‛`ʹʼ \"“”„‟"
)
_SHAPES: Final = {ord(like): word[0] for word in _ALIKE.split() for like in word[1:]} | {
    ord("m"): "rn"
}
# What is left of a Turkish capital I with a dot in lower case.
_DOTTED_I: Final = "i\N{COMBINING DOT ABOVE}"


def folded_title(title: str) -> str:
    """Return a title in the form that is equal for every way to type it: case, width, spaces."""
    wide = unicodedata.normalize("NFKC", title_key(title))
    return " ".join(unicodedata.normalize("NFKC", wide.casefold()).replace(_DOTTED_I, "i").split())


def _shape(title: str) -> str:
    """Return a title in the form that is equal for titles that look alike."""
    seen = unicodedata.normalize("NFKC", title_key(title)).translate(_SHAPES)
    return " ".join(seen.casefold().replace(_DOTTED_I, "i").split())


def are_alike(title: str, other: str) -> bool:
    """Return whether people may take two titles for the same."""
    return folded_title(title) == folded_title(other) or _shape(title) == _shape(other)


def best_match(wanted: str, titles: Iterable[str]) -> str | None:
    """Return the first of these titles that is meant: the very title, else one like it."""
    alike = [title for title in titles if are_alike(wanted, title)]
    for form in (title_key, folded_title):
        for title in alike:
            if form(title) == form(wanted):
                return title
    return alike[0] if alike else None
