"""Summarize sessions for commands, limit which ones a command may name, remember shown lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.keys import ParsedKey, key_text, parse_session_key
from chatlane.domain.addressing.owners import owner_of
from chatlane.domain.sessions.titles import are_alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.states import Session

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


# How many characters of the first message are read; one visible sign may consist of several.
FIRST_WORDS_CHARACTERS: Final = 1000


class SessionScope(NamedTuple):
    """The sessions that a command may name.

    In a direct message: sessions of the same person and profile in direct messages. In a chat of
    many people: those of the same person in that chat. Where several people share a conversation:
    the sessions under its key. So nothing is shown to more people than wrote it or could read it.

    Attributes:
        owners: Owner names of the person's sessions; empty where several people share.
        prefix: Prefix of the keys of their sessions.
        key: Of the lane on which the command came.
    """

    owners: frozenset[str]
    prefix: str
    key: str

    def holds(self, session_key: str, owner: str | None) -> bool:
        """Return whether a command may name a session."""
        if not self.owners:
            return session_key == self.key
        return owner in self.owners and session_key.startswith(self.prefix)

    @property
    def title_scopes(self) -> frozenset[str]:
        """Return the scopes in which a title has to be unique."""
        return self.owners | {self.key}


def scope_of(
    session_key: str, person: str | None, other_owners: Iterable[str] = ()
) -> SessionScope:
    """Return the sessions that a person on a lane may name.

    Args:
        other_owners: Further owner names of the person's sessions.
    """
    owner = owner_of(session_key, person)
    key = parse_session_key(session_key)
    chat = key.chat if key.chat_class == "group" else None
    place = ParsedKey(key.profile, key.platform, key.account, key.chat_class, chat)
    prefix = key_text(place) + (":" if chat is not None else "")
    owners = frozenset() if owner is None else frozenset({owner, *other_owners})
    return SessionScope(owners, prefix, session_key)


@dataclass(slots=True)
class SessionSummary:
    """A summary of a session.

    Attributes:
        said: How many messages people have written.
        waiting: How many messages wait for a turn, up to 101.
        other_lanes: How many lanes point to it besides those that the batch has loaded.
        first_words: The beginning of the first message.
    """

    id: UUID
    session_key: str
    owner: str | None
    started_at: datetime
    ended_at: datetime | None = None
    title: str | None = None
    title_scope: str | None = None
    model: str | None = None
    user_messages: int = 0
    waiting: int = 0
    other_lanes: int = 0
    first_words: str | None = None


def new_card(session: Session) -> SessionSummary:
    """Return the summary of a session that was just opened."""
    return SessionSummary(session.id, session.session_key, session.owner, session.started_at)


@dataclass(slots=True)
class SessionSummaries:
    """The summaries of one batch, updated with the changes of its commands.

    Attributes:
        by_id: Of the sessions that commands came in, list, or name by title.
        reaches: By key and person of a command.
        loaded: The sessions that existed before the batch opened others.
        waiting: How many messages the batch has written since the summaries were read, by session.
        tips: The current continuation of each of these sessions.
        shown: The lists that people have seen, to which numbers refer.
    """

    by_id: dict[UUID, SessionSummary] = field(default_factory=dict)
    scopes: dict[tuple[str, str | None], SessionScope] = field(default_factory=dict)
    tips: dict[UUID, UUID] = field(default_factory=dict)
    loaded: frozenset[UUID] = frozenset()
    waiting: Counter[UUID] = field(default_factory=Counter)
    shown: ShownLists = field(default_factory=ShownLists)

    def of(self, session: Session) -> SessionSummary:
        """Return the summary of a session of the batch."""
        return self.by_id.get(session.id) or self.by_id.setdefault(session.id, new_card(session))

    def nothing_waits(self, session: Session) -> None:
        """Record that the waiting messages of a session were dropped."""
        self.of(session).waiting = 0
        self.waiting.pop(session.id, None)

    def within(self, scope: SessionScope) -> list[SessionSummary]:
        """Return the sessions in scope, newest first."""
        found = (card for card in self.by_id.values() if scope.holds(card.session_key, card.owner))
        return sorted(found, key=lambda card: card.id, reverse=True)

    def titled(self, title: str, scopes: Iterable[str]) -> SessionSummary | None:
        """Return the newest session in these scopes whose title looks like this one."""
        known = frozenset(scopes)
        found = (
            card
            for card in self.by_id.values()
            if card.title is not None
            and not known.isdisjoint((card.title_scope, card.owner, card.session_key))
            and are_alike(card.title, title)
        )
        return max(found, key=lambda card: card.id, default=None)
