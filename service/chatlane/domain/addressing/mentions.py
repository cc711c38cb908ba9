"""Recognize a mention of this bot at the beginning of a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Characters that end the name within an id: "@bot:example.org", "4915550:12@s.whatsapp.net".
_LOCAL_PART_END = re.compile("[@:]")
# Some platforms put a name between directional marks.
_ISOLATE = "[\N{LEFT-TO-RIGHT ISOLATE}\N{FIRST STRONG ISOLATE}]?"
_ISOLATE_END = "\N{POP DIRECTIONAL ISOLATE}?"


def own_mention(bot_name: str | None, own_ids: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for mentions of this bot at the start of a text, with trailing white space.

    The forms are those that platforms write: `@name`, `<@id>`, `<@!id>`, `<@id|name>`,
    `<users/id>`, `<at>name</at>`, `@**name**`, and `name:`.

    Args:
        bot_name: The name by which commands address this bot.
        own_ids: Sender ids of this bot's messages.

    Returns:
        None if neither a name nor an id of this bot is known.
    """
    names = _names(bot_name, own_ids)
    if not names:
        return None
    # The longest first: an id may begin with another one.
    own_names = "|".join(map(re.escape, sorted(names, key=lambda name: (-len(name), name))))
    forms = (
        rf"<(?:@!?|users/)(?:{own_names})(?:\|[^<>]*)?>[:,]?\s*",
        rf"<at(?: [^<>]*)?>@?(?:{own_names})</at>[:,]?\s*",
        rf"@\*\*(?:{own_names})(?:\|[0-9]+)?\*\*[:,]?\s*",
        rf"@{_ISOLATE}(?:{own_names}){_ISOLATE_END}[:,]?\s+",
        rf"(?:{own_names})[:,]\s+",
    )
    return re.compile(f"(?:{'|'.join(forms)})+", re.IGNORECASE)


def _names(bot_name: str | None, own_ids: Iterable[str]) -> set[str]:
    names = {bot_name} if bot_name else set()
    for own_id in own_ids:
        name = own_id.removeprefix("@")
        names |= {name, _LOCAL_PART_END.split(name, maxsplit=1)[0]}
    return names - {""}
