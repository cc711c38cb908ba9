"""State what the platforms of our adapters can show.

`platforms.toml` is part of the package and read on import. `make contract` writes it from the
capabilities that the adapters declare, as the service does not depend on them.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS: Final = {"utf16": "characters", "code_points": "characters", "bytes": "bytes"}


class ShownCapabilities(NamedTuple):
    """The capabilities of a platform that an answer uses.

    Attributes:
        longest_text: The longest text of one message, in `unit`.
        unit: UTF-16 code units (`utf16`), code points (`code_points`), or `bytes` of UTF-8.
        has_buttons: Whether a message can have buttons; without, they are numbered lines.
        has_edits: Whether a message can be replaced.
        has_member_list: Whether the adapter reports the members of its rooms.
    """

    longest_text: int
    unit: str
    has_buttons: bool
    has_edits: bool
    has_member_list: bool

    def described(self) -> str:
        """Return the facts that an agent should know before it writes an answer."""
        choices = "buttons" if self.has_buttons else "numbered lines"
        changes = "can be edited" if self.has_edits else "cannot be changed"
        return (
            f"A message holds {self.longest_text:,} {_UNITS[self.unit]}, and a longer answer becomes "
            f"several messages. Choices are shown as {choices}. A sent message {changes}."
        )


def _declared() -> dict[str, ShownCapabilities]:
    tables = tomllib.loads((files(__package__ or "") / "platforms.toml").read_text("utf-8"))
    return {name: ShownCapabilities(**table) for name, table in tables.items()}


CAPABILITIES: Final[Mapping[str, ShownCapabilities]] = _declared()
