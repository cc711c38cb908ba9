"""Remember which list of conversations a person saw on a lane. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

# How long a number refers to a shown list.
VALID_FOR: Final = timedelta(days=1)


class ShownList(NamedTuple):
    """A list as it was shown; `key` is of `list_key`, `shown_at` is log time."""

    key: bytes
    shown_at: datetime
    session_ids: Sequence[UUID]

    def is_valid(self, at: datetime) -> bool:
        """Return whether a number still refers to this list."""
        return at - self.shown_at <= VALID_FOR


def list_key(session_key: str, person: str | None) -> bytes:
    """Return the key of the list of a person on a lane."""
    return sha256(f"{len(session_key)}:{session_key}{person or ''}".encode()).digest()


@dataclass(slots=True)
class ShownLists:
    """The lists that the commands of one batch refer to.

    Attributes:
        by_key: Lists shown before or in this batch.
        changed: Keys of the lists that the batch showed, to be written.
    """

    by_key: dict[bytes, ShownList] = field(default_factory=dict)
    changed: set[bytes] = field(default_factory=set)

    def show(self, key: bytes, at: datetime, session_ids: Sequence[UUID]) -> None:
        """Make numbers refer to a new list."""
        self.by_key[key] = ShownList(key, at, session_ids)
        self.changed.add(key)

    def take_changes(self) -> list[ShownList]:
        """Return the lists to write, and mark them as written."""
        changes = [self.by_key[key] for key in sorted(self.changed)]
        self.changed.clear()
        return changes
