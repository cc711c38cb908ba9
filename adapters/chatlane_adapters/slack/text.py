"""Translate between the text of Slack messages and plain text or Markdown."""

import re
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

_CONTROL: Final = re.compile(r"<([^<>]*)>")
_BROADCAST: Final = re.compile(r"<!(?=channel|here|everyone|subteam)")
_UNSEEN: Final = "\u2060"
_ENTITIES: Final = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


def plain_text(text: str, bot_user: str) -> str:
    """Return the text of a message as people read it.

    Mentions of people stay as they are (`<@U123>`): an agent that writes one mentions the person. A
    mention of the bot at the begin is left out, so that a command can follow it.
    """
    text = text.strip().removeprefix(f"<@{bot_user}>").lstrip(" :,") if bot_user else text
    text = _CONTROL.sub(_shown, text)
    for entity, sign in _ENTITIES:
        text = text.replace(entity, sign)
    return text


def _shown(found: re.Match[str]) -> str:
    target, _, label = found[1].partition("|")
    if target.startswith("@"):
        return found[0] if not label else f"<{target}>"
    if target.startswith("#"):
        return f"#{label or target[1:]}"
    if target.startswith("!"):
        return label or "@" + target[1:].partition("^")[0]
    address = target.removeprefix("mailto:").removeprefix("tel:")
    return address if not label or label == address else f"{label} ({target})"


def mentions(text: str | None, user: str) -> bool:
    """Return whether a text of Slack mentions a user."""
    return text is not None and re.search(rf"<@{re.escape(user)}(\|[^<>]*)?>", text) is not None


def escaped(text: str) -> str:
    """Return a text as Slack writes it."""
    for entity, sign in reversed(_ENTITIES):
        text = text.replace(sign, entity)
    return text


def without_broadcasts(markdown: str) -> str:
    """Return Markdown in which no word notifies everybody of a channel.

    What an agent repeats may come from a stranger, who must not wake a whole company.
    """
    return _BROADCAST.sub(f"<{_UNSEEN}!", markdown)


def text_of(message: Json) -> str | None:
    """Return the text of a message: its own, else that of its blocks and attachments."""
    text: str | None = message.get("text") or None
    if text is None:
        parts = [part for block in message.get("blocks") or () for part in _texts(block)]
        for attachment in message.get("attachments") or ():
            parts += [attachment.get("text") or attachment.get("fallback") or ""]
        text = "\n".join(filter(None, parts)) or None
    return text


def _texts(block: Any) -> list[str]:  # noqa: ANN401 - any part of a block
    """Return the texts in a block, in order."""
    if isinstance(block, dict):
        inner = block.get("text")
        if isinstance(inner, str):
            return [inner]
        return [text for part in block.values() for text in _texts(part)]
    if isinstance(block, list):
        return [text for part in block for text in _texts(part)]
    return []
