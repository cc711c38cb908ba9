"""Which characters of a text people see."""

import re
from typing import Final

# What Unicode calls default-ignorable, and marks of interlinear notes. Tag characters, which spell
# out text that nobody sees, are among them.
INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)

_UNSEEN: Final = re.compile(f"[\\s\\x00-\\x1f\\x7f-\\x9f\u2800{INVISIBLE}]+")


def is_blank(text: str) -> bool:
    """Return whether people see nothing of a text."""
    return _UNSEEN.sub("", text) == ""
