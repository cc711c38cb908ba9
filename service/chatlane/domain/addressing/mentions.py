"""Finds a mention of our own bot at the beginning of a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# What ends a name within an id: "@bot:example.org", "4915550:12@s.whatsapp.net".
_LOCAL_PART_END = re.compile("[@:]")
# Some platforms put a name between marks of direction.
_ISOLATE = "[\N{LEFT-TO-RIGHT ISOLATE}\N{FIRST STRONG ISOLATE}]?"
_ISOLATE_END = "\N{POP DIRECTIONAL ISOLATE}?"


def own_mention(bot_name: str | None, own_ids: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for mentions of ours that open a text, with the white space behind them.

    The forms are those that platforms write: `@name`, `<@id>`, `<@!id>`, `<@id|name>`,
    `<users/id>`, `<at>name</at>`, `@**name**`, and `name:`.

    Args:
        bot_name: How commands are addressed to us.
        own_ids: Sender ids of our own messages.

    Returns:
        None where neither a name nor an id of ours is known.
    """
    names = _names(bot_name, own_ids)
    if not names:
        return None
    # The longest first: an id may begin with another one.
    ours = "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))
    forms = (
        rf"<(?:@!?|users/)(?:{ours})(?:\|[^<>]*)?>[:,]?\s*",
        rf"<at(?: [^<>]*)?>@?(?:{ours})</at>[:,]?\s*",
        rf"@\*\*(?:{ours})(?:\|[0-9]+)?\*\*[:,]?\s*",
        rf"@{_ISOLATE}(?:{ours}){_ISOLATE_END}[:,]?\s+",
        rf"(?:{ours})[:,]\s+",
    )
    return re.compile(f"(?:{'|'.join(forms)})+", re.IGNORECASE)


def _names(bot_name: str | None, own_ids: Iterable[str]) -> set[str]:
    names = {bot_name} if bot_name else set()
    for own_id in own_ids:
        name = own_id.removeprefix("@")
        names |= {name, _LOCAL_PART_END.split(name, maxsplit=1)[0]}
    return names - {""}
