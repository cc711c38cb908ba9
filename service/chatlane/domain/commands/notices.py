"""Recognize notices of bots, so that a notice is never answered as a question."""

from __future__ import annotations

import re
from typing import Final

from chatlane.domain.commands import replies
from chatlane.domain.sessions import session_handoff
from chatlane.domain.turns import lifecycle
from chatlane_schemas.session_api.session_changes import shown_title

RATE_LIMITED: Final = (
    "Too many messages: this one was not accepted. At most {messages} in {per} are; "
    "please write again in a while."
)

_RATE_LIMITED_BEGIN: Final = RATE_LIMITED.partition("{")[0].strip()
_FIXED: Final = frozenset(
    {
        *(text for name, text in vars(replies).items() if name.isupper() and type(text) is str),
        *session_handoff.NOTICES,
        *lifecycle.NOTICES,
    }
)
# Signs that bots put before a notice; an emoji form may follow each of them.
_SIGNS: Final = re.compile("[⚠❌❎⛔🚫🛑\N{INFORMATION SOURCE}⏳⌛✋🔇]")


def is_notice(text: str) -> bool:
    """Return whether a text looks like a notice of this bot or another one."""
    first_line = shown_title(text.strip().partition("\n")[0])
    if _SIGNS.match(first_line):
        return True
    return first_line in _FIXED or first_line.startswith(_RATE_LIMITED_BEGIN)
