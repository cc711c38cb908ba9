"""Records of the old gateway's files that an import needs, and the omissions of an import."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_EXAMPLES: Final = 3


class Origin(NamedTuple):
    """The address of an old conversation; ids are None or not empty."""

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
        """The id of the user that stands in a key."""
        return self.user_id_alt or self.user_id


class OldEntry(NamedTuple):
    """An entry of the routing index: the session that an old key leads to."""

    key: str
    session_id: str
    created_at: datetime
    updated_at: datetime
    origin: Origin | None
    is_suspended: bool


class OldUse(NamedTuple):
    """Settings and usage of a conversation; all but the model and directory are JSON text."""

    cwd: str | None = None
    model: str | None = None
    config: str | None = None
    usage: str | None = None
    costs: str | None = None


class OldSession(NamedTuple):
    """A conversation; `key` and `origin` are None if it belongs to no chat."""

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
    use: OldUse = OldUse()
    is_archived: bool = False


class OldMessage(NamedTuple):
    """A transcript row; `details` is JSON text, `place` the row's number in its source.

    `reasoning` is what the model thought, and `left_out` why a part of it cannot be kept.
    """

    place: int
    role: str
    content: str | None
    created_at: datetime
    platform_message_id: str | None = None
    details: str | None = None
    reasoning: Mapping[str, object] | None = None
    left_out: str | None = None


class Omission(NamedTuple):
    """The kind of an omitted record and the reason."""

    what: str
    reason: str


@dataclass(slots=True)
class Omissions:
    """Counts omitted records by kind and reason, with a few example names."""

    counts: Counter[Omission] = field(default_factory=Counter)
    examples: dict[Omission, list[str]] = field(default_factory=dict)
    _damaged: dict[str, None] = field(default_factory=dict)

    def add(self, what: str, reason: str, name: str, count: int = 1) -> None:
        """Count an omitted record; `name` gives its location and holds no message text."""
        omission = Omission(what, reason)
        self.counts[omission] += count
        named = self.examples.setdefault(omission, [])
        if len(named) < _EXAMPLES and name not in named:
            named.append(name)

    def add_damaged(self, what: str, reason: str, name: str) -> None:
        """Count something that is damaged as a whole, such as a file."""
        self._damaged.setdefault(name)
        self.add(what, reason, name)

    def mark_damaged(self, name: str) -> None:
        """Remember the name of a file that is damaged in some places, which are counted apart."""
        self._damaged.setdefault(name)

    def damaged(self) -> list[str]:
        """Return the names of damaged files and tables."""
        return list(self._damaged)

    def update(self, other: Omissions) -> None:
        """Add the counts of another collection."""
        self._damaged.update(other._damaged)
        for omission, count in other.counts.items():
            self.add(*omission, other.examples[omission][0], count)


@dataclass(slots=True)
class Report:
    """Counts of imported and omitted records of one run."""

    done: Counter[str] = field(default_factory=Counter)
    omitted: Omissions = field(default_factory=Omissions)
