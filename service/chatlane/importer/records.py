"""What the files of the old gateway hold, as far as a conversation needs it, and what they do not."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

_EXAMPLES: Final = 3


class Origin(NamedTuple):
    """Where an old conversation was held; ids are None or not empty."""

    platform: str
    chat_type: str = "dm"
    chat_id: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    user_id_alt: str | None = None
    scope: str | None = None
    profile: str | None = None

    @property
    def participant(self) -> str | None:
        """The id of the person that stands in a key."""
        return self.user_id_alt or self.user_id


class OldEntry(NamedTuple):
    """A line of the routing index: which session an old key leads to."""

    key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: Origin | None
    is_suspended: bool


class OldSession(NamedTuple):
    """A conversation; `key` and `origin` are None where it was held nowhere in particular."""

    id: str
    source: str
    key: str | None
    origin: Origin | None
    started_at: datetime
    parent_id: str | None = None
    ended_at: datetime | None = None
    end_reason: str | None = None
    title: str | None = None
    model_config: str | None = None
    row_count: int = 0


class OldMessage(NamedTuple):
    """A row of a transcript; `details` is JSON text, `place` its number where it was read."""

    place: int
    role: str
    content: str | None
    created_at: datetime
    platform_message_id: str | None = None
    details: str | None = None


class Omission(NamedTuple):
    """What was left out and why, the same for all that share the two."""

    what: str
    reason: str


@dataclass(slots=True)
class Omissions:
    """Counts what was left out, with a few names of each for who wants to look."""

    counts: Counter[Omission] = field(default_factory=Counter)
    examples: dict[Omission, list[str]] = field(default_factory=dict)
    _damaged: dict[str, None] = field(default_factory=dict)

    def add(self, what: str, reason: str, name: str, count: int = 1) -> None:
        """Count something left out; `name` says where it is and holds no message text."""
        omission = Omission(what, reason)
        self.counts[omission] += count
        named = self.examples.setdefault(omission, [])
        if len(named) < _EXAMPLES and name not in named:
            named.append(name)

    def add_damaged(self, what: str, reason: str, name: str) -> None:
        """Count something that is damaged as a whole, such as a file."""
        self._damaged.setdefault(name)
        self.add(what, reason, name)

    def damaged(self) -> list[str]:
        """Return the names of damaged files and tables."""
        return list(self._damaged)

    def update(self, other: Omissions) -> None:
        """Count what somebody else left out."""
        for omission, count in other.counts.items():
            self.add(*omission, other.examples[omission][0], count)
