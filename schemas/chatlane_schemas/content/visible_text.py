"""Find the characters of a text that are visible."""

import re
import unicodedata
from typing import Final

# Characters that Unicode calls default-ignorable, and marks of interlinear notes. They include tag
# characters, which can spell out invisible text.
INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]+")
# Characters that an emoji or a script may need: joiners, and the selector of the emoji form.
_JOINERS: Final = frozenset("\u200c\u200d")
_EMOJI_FORM: Final = "\ufe0f"
_SEEN: Final = re.compile(f"[^\\s\\x00-\\x1f\\x7f-\\x9f\u2800{INVISIBLE}]")


def is_blank(text: str) -> bool:
    """Return whether a text has no visible characters."""
    return _SEEN.search(text) is None


def first_visible(text: str) -> str:
    """Return the first visible character of a text besides combining marks, or nothing."""
    seen = (match[0] for match in _SEEN.finditer(text))
    return next((sign for sign in seen if unicodedata.category(sign)[0] != "M"), "")


def visible(text: str) -> str:
    """Return a text composed (NFC) and without invisible characters.

    Joiners and the selector of the emoji form stay where they can have an effect: after a character
    that is not a Latin letter, and a joiner only before another such character.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _INVISIBLE.sub(_needed, text))


def _needed(run: re.Match[str]) -> str:
    text, signs = run.string, run[0]
    before, after = text[: run.start()][-1:], text[run.end() :][:1]
    if not before or before.isspace() or (before.isascii() and before.isalpha()):
        return ""
    form = _EMOJI_FORM if signs.startswith(_EMOJI_FORM) else ""
    is_joined = signs[-1] in _JOINERS and after != "" and not after.isascii()
    return form + signs[-1] if is_joined else form


_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def shown_title(text: str) -> str:
    """Return a text as one line of visible text, composed (NFC).

    Removes terminal control characters, marks that change the direction of writing, and invisible
    characters. The title of a text without visible characters is empty.
    """
    return "" if is_blank(text) else " ".join(visible(_CONTROLS.sub(" ", text)).split())


def title_key(title: str) -> str:
    """Return a key that is equal for titles that look alike."""
    return unicodedata.normalize("NFC", _INVISIBLE.sub("", title))
