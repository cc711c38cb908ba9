"""The blocks of a prompt as the text of a message."""

from collections.abc import Sequence
from typing import Any, Final

from acp.schema import (
    EmbeddedResourceContentBlock,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from chatlane_bridges.acp.errors import invalid

_FENCE: Final = "```"


def prompt_text(blocks: Sequence[Any]) -> str:
    """Return the text of a prompt: what is written, links, and the content of embedded text.

    Raises:
        RequestError: The prompt is empty, or has sound, pictures or other bytes, which messages
            never carry.
    """
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextContentBlock():
                parts.append(block.text)
            case ResourceContentBlock():
                parts.append(f"[{block.title or block.name}]({block.uri})")
            case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                parts.append(_embedded(resource))
            case _:
                raise invalid("Prompts may have text, links to resources and embedded text only.")
    text = "".join(parts)
    if not text.strip():
        raise invalid("The prompt is empty.")
    return text


def _embedded(resource: TextResourceContents) -> str:
    fence = _FENCE
    while fence in resource.text:
        fence += "`"
    ending = "" if resource.text.endswith("\n") else "\n"
    return f"\n[{resource.uri}]({resource.uri})\n{fence}\n{resource.text}{ending}{fence}\n"
