"""Quote text from strangers in a prompt, so that it has no other effect there.

Without that, a name with a line break could pass for a heading, one with a direction override for
another name, and one with invisible characters for instructions.
"""

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
# Characters that could close the brackets, tag or fence around a name, or end its part of a header.
_DELIMITERS: Final = str.maketrans(
    "[]<>`|;\uff3b\uff3d\uff1c\uff1e\uff40\uff5c\uff1b\u3010\u3011",
    "()()'/,()()'/,()",
)
# The same characters inside a JSON string, where an escape can replace them.
_SPELLED: Final = str.maketrans({sign: f"\\u{ord(sign):04x}" for sign in "<>`"})


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


def undelimited(text: str) -> str:
    """Return text on one line, without brackets, tags, fences and vertical bars in it."""
    line = " ".join(cleaned(text).split())
    return shortened(line).translate(_DELIMITERS)
