"""Ids and phone numbers of people, replaced by what a prompt may show of them.

The digest is keyed: phone numbers are so few that whoever knows a plain hash finds the number
by trying. It is the same for one id as long as the key is, so a model can still tell people
apart.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MIN_KEY_BYTES: Final = 16
_DIGITS: Final = 12

# A shorter id is also a word or a number of its own, and hiding it would tell what it is.
_MIN_HIDDEN_ID: Final = 5
# From seven digits on, however they are written: brackets, dots and all kinds of dashes.
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

    def person(self, platform: str, one: str) -> str:
        """Return what stands for a person."""
        return f"user_{self._digest(platform, one)}"

    def chat(self, platform: str, one: str) -> str:
        """Return what stands for a chat; the name of a platform before its id is kept."""
        prefix, colon, rest = one.partition(":")
        if colon and prefix in self._platforms:
            return f"{prefix}:{self._digest(platform, rest)}"
        return self._digest(platform, one)

    def _digest(self, platform: str, one: str) -> str:
        # No platform's name has a NUL, so no two of these are the same text.
        said = f"{platform}\0{one}".encode()
        return hmac.digest(self._key, said, "sha256").hex()[:_DIGITS]


def without_numbers(text: str, ids: Collection[str]) -> str | None:
    """Return a name or topic without ids and phone numbers; None if it is nothing else.

    Args:
        text: What to show, cleaned.
        ids: Ids, in every form in which a name may show them.
    """
    if text in ids:
        return None
    for one in sorted(ids, key=len, reverse=True):
        if len(one) >= _MIN_HIDDEN_ID:
            text = text.replace(one, _ID_SHOWN)
    shown = _NUMBER.sub(_NUMBER_SHOWN, text)
    return None if shown in {_NUMBER_SHOWN, _ID_SHOWN} else shown
