"""List the platforms of this distribution, and what each of them can do."""

from collections.abc import Iterator
from importlib import import_module
from inspect import isclass
from pkgutil import iter_modules
from typing import Final

import chatlane_adapters
from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.platform import Platform

_KIT: Final = "kit"
_UNITS: Final = {"utf16": "UTF-16 units", "code_points": "characters", "bytes": "bytes"}


def known_capabilities() -> Iterator[Capabilities]:
    """Yield the capabilities of each platform whose library is installed, by name."""
    for package in sorted(iter_modules(chatlane_adapters.__path__), key=lambda it: it.name):
        if not package.ispkg or package.name == _KIT:
            continue
        try:
            module = import_module(f"chatlane_adapters.{package.name}.adapter")
        except ModuleNotFoundError:
            continue
        for value in vars(module).values():
            is_own = isclass(value) and value.__module__ == module.__name__
            if is_own and issubclass(value, Platform):
                yield value.capabilities


def capabilities_table() -> str:
    """Return a Markdown table of what the platforms can do."""
    head = (
        *("platform", "longest text", "messages per second", "per chat", "typing", "drafts"),
        *("buttons", "edits", "sends once", "members"),
    )
    rows = [
        (
            f"`{capabilities.platform}`",
            f"{capabilities.text_limit.size:,} {_UNITS[capabilities.text_limit.unit]}",
            _rate(capabilities.per_second),
            _rate(capabilities.per_chat_per_second),
            *(
                "yes" if able else "no"
                for able in (
                    capabilities.has_typing,
                    capabilities.has_drafts,
                    capabilities.has_buttons,
                    capabilities.has_edits,
                    capabilities.has_idempotent_sends,
                    capabilities.has_member_list,
                )
            ),
        )
        for capabilities in known_capabilities()
    ]
    lines = [f"| {' | '.join(line)} |" for line in (head, *rows)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def shown_capabilities() -> dict[str, dict[str, object]]:
    """Return the capabilities that agents see, by platform."""
    return {
        capabilities.platform: {
            "longest_text": capabilities.text_limit.size,
            "unit": capabilities.text_limit.unit,
            "has_buttons": capabilities.has_buttons,
            "has_edits": capabilities.has_edits,
            "has_member_list": capabilities.has_member_list,
        }
        for capabilities in known_capabilities()
    }


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second:g}"
