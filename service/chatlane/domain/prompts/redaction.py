"""Replace ids and phone numbers of people by text that a prompt may show.

The digest is keyed: there are so few phone numbers that a plain hash could be reversed by trying
them all. Equal ids have equal digests as long as the key stays, so a model can still distinguish
people.
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

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
        text: The text to show, cleaned.
        ids: Ids, in every form that may occur in a name.
    """
    if text in ids:
        return None
    for known in sorted(ids, key=len, reverse=True):
        if len(known) >= _MIN_HIDDEN_ID:
            text = text.replace(known, _ID_SHOWN)
    shown = _NUMBER.sub(_NUMBER_SHOWN, text)
    return None if shown in {_NUMBER_SHOWN, _ID_SHOWN} else shown
