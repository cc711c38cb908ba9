"""Neutralize text from strangers, so that a prompt can quote it and it has no other effect.

Without that, a name with a line break could pass for a heading, one with a direction override for
another name, and one with invisible characters for instructions.

Ids and phone numbers of people are shown as keyed digests. There are so few phone numbers that a
plain hash could be reversed by trying them all. Equal ids have equal digests as long as the key
stays, so a model can still distinguish people.
"""

from __future__ import annotations

import hmac
import re
from itertools import islice
from typing import TYPE_CHECKING, Final

import regex

from chatlane_schemas.content.quotation import cleaned

if TYPE_CHECKING:
    from collections.abc import Collection

_QUOTATION_MARKS: Final = str.maketrans(dict.fromkeys("\u201c\u201d\u201e", "'"))
# Characters that JSON keeps as they are, and that terminals or line readers act on.
_ACTING: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def named(title: str) -> str:
    """Return a title on one line in quotation marks, without quotation marks inside."""
    return f"“{' '.join(cleaned(title).split()).translate(_QUOTATION_MARKS)}”"


def json_line(text: str) -> str:
    """Return a JSON text with every character escaped that a terminal or line reader acts on.

    Args:
        text: Serialized JSON on one line; its meaning does not change.
    """
    return _ACTING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


MIN_KEY_BYTES: Final = 16
_DIGITS: Final = 12

# A shorter id is also a word or a number by itself, and hiding it would reveal it.
_MIN_HIDDEN_ID: Final = 5
# Seven digits or more in any notation: with brackets, dots and all kinds of dashes.
_NUMBER: Final = re.compile(r"[+(]{0,2}\d(?:[\s().\-/\u2010-\u2015]{0,3}\d){6,}\)?")
_NUMBER_SHOWN: Final = "(number)"
_ID_SHOWN: Final = "(id)"


class Redaction:
    """Shows ids as keyed digests.

    Args:
        key: Secret of at least `MIN_KEY_BYTES`.
        platforms: Declared names, which may stay before the colon of a chat id.
    """

    def __init__(self, key: bytes, platforms: Collection[str]) -> None:
        self._key = key
        self._platforms = frozenset(platforms)

    def person(self, platform: str, raw: str) -> str:
        """Return the digest of a person."""
        return f"user_{self._digest(platform, raw)}"

    def chat(self, platform: str, raw: str) -> str:
        """Return the digest of a chat; the name of a platform before its id is kept."""
        prefix, colon, rest = raw.partition(":")
        if colon and prefix in self._platforms:
            return f"{prefix}:{self._digest(platform, rest)}"
        return self._digest(platform, raw)

    def _digest(self, platform: str, raw: str) -> str:
        # Names of platforms contain no NUL, so no two of these texts are equal.
        text = f"{platform}\0{raw}".encode()
        return hmac.digest(self._key, text, "sha256").hex()[:_DIGITS]


def without_numbers(text: str, ids: Collection[str]) -> str | None:
    """Return a name or topic without ids and phone numbers; None if nothing else is left.

    Args:
        ids: Ids, in every form that may occur in a name.
    """
    if text in ids:
        return None
    for known in sorted(ids, key=len, reverse=True):
        if len(known) >= _MIN_HIDDEN_ID:
            text = text.replace(known, _ID_SHOWN)
    shown = _NUMBER.sub(_NUMBER_SHOWN, text)
    return None if shown in {_NUMBER_SHOWN, _ID_SHOWN} else shown


_CLUSTER: Final = regex.compile(r"\X")
# The number of marks on one sign is unlimited.
_MOST_FOR_EACH: Final = 16
# The search for clusters around a place starts so far before it.
_LOOK_BEHIND: Final = 64


def beginning(text: str, most: int, *, is_whole: bool = True) -> str:
    """Return at most `most` grapheme clusters of a text; a cut shows as an ellipsis.

    Args:
        text: On one line.
        most: How many clusters.
        is_whole: False where `text` was cut already, perhaps within its last cluster.
    """
    if is_whole and len(text) <= most:
        return text
    piece = text[: most * _MOST_FOR_EACH]
    is_cut = len(piece) < len(text) or not is_whole
    # One more shows whether any follow.
    clusters = [found[0] for found in islice(_CLUSTER.finditer(piece), most + 1)]
    if len(clusters) <= most:
        if not is_cut:
            return text
        clusters.pop()
    return "".join(clusters[:most]).rstrip() + "…"


def between(text: str, start: int, end: int) -> str:
    """Return the complete grapheme clusters of a text between two places."""
    near = _CLUSTER.finditer(text, max(0, start - _LOOK_BEHIND), end + _LOOK_BEHIND)
    return "".join(found[0] for found in near if found.start() >= start and found.end() <= end)
