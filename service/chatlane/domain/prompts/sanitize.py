"""Neutralize text from strangers, so that a prompt can quote it and it has no other effect.

Without that, a name with a line break could pass for a heading, one with a direction override for
another name, and one with invisible characters for instructions.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final

MAX_CHARACTERS: Final = 240
_ELLIPSIS: Final = "..."

# Format characters (category Cf) and all others that Unicode calls ignorable by default: they show
# nothing, reorder the shown text, or carry text that people do not see.
_UNSEEN: Final = re.compile(
    "[\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# Controls except line feed and tab, which a literal escapes; line separators; surrogates, which
# have no UTF-8 bytes.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Characters that could close the brackets, tag or fence around a name.
_DELIMITERS: Final = str.maketrans("[]<>`", "()()'")
# The same characters inside a JSON string, where an escape can replace them.
_SPELLED: Final = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>`"})
_QUOTATION_MARKS: Final = str.maketrans(dict.fromkeys("\u201c\u201d\u201e", "'"))
# Characters that JSON keeps as they are, and that terminals or line readers act on.
_ACTING: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def cleaned(text: str) -> str:
    """Return text without invisible characters and without surrounding space.

    Line breaks become line feeds; controls become spaces.
    """
    if text.isascii() and text.isprintable():
        return text.strip()
    text = _UNSEEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub(" ", text).strip()


def shortened(text: str) -> str:
    """Return at most `MAX_CHARACTERS` of a text; a cut shows as three dots."""
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[: MAX_CHARACTERS - len(_ELLIPSIS)] + _ELLIPSIS


# Every turn quotes the same names again.
@lru_cache(maxsize=4096)
def quoted(text: str) -> str:
    """Return text as one JSON string literal on one line, without tags and fences."""
    return json.dumps(shortened(cleaned(text)), ensure_ascii=False).translate(_SPELLED)


def bracketed(text: str) -> str:
    """Return text on one line in square brackets, without brackets, tags and fences in it."""
    line = " ".join(cleaned(text).split())
    return f"[{shortened(line).translate(_DELIMITERS)}]"


def named(title: str) -> str:
    """Return a title on one line in quotation marks, without quotation marks inside."""
    return f"“{' '.join(cleaned(title).split()).translate(_QUOTATION_MARKS)}”"


def json_line(text: str) -> str:
    """Return a JSON text with every character escaped that a terminal or line reader acts on.

    Args:
        text: Serialized JSON on one line; its meaning does not change.
    """
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
