"""What a command may know of sessions, and whose sessions those are."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.addressing.keys import ParsedKey, key_text, parse_session_key
from chatlane.domain.addressing.owners import owner_of
from chatlane.domain.commands.shown_lists import ShownLists
from chatlane_schemas.visible_text import title_key

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.states import Session


# So many characters of what was said first are read; more may belong to one sign people see.
FIRST_WORDS_CHARACTERS: Final = 1000


class Reach(NamedTuple):
    """The sessions that can be named where a command is given.

    Those of the same person under the same profile: in a direct message what was said in direct
    messages, in a chat of many people what was said in that chat. Where several people share a
    conversation, what was said under its key. So nothing is shown to more people than wrote it
    or could read it.

    Attributes:
        owners: What sessions of the person name as their owner; none where several share.
        prefix: What the keys of their sessions begin with.
        key: Of the lane the command was given on.
    """

    owners: frozenset[str]
    prefix: str
    key: str

    def holds(self, session_key: str, owner: str | None) -> bool:
        """Return whether a session can be named from here."""
        if not self.owners:
            return session_key == self.key
        return owner in self.owners and session_key.startswith(self.prefix)

    @property
    def title_scopes(self) -> frozenset[str]:
        """Among whose titles one has to be the only one."""
        return self.owners | {self.key}


def reach_of(session_key: str, person: str | None, other_owners: Iterable[str] = ()) -> Reach:
    """Return what can be named by a person on a lane.

    Args:
        session_key: Of the lane.
        person: Name of their identity, if they have one.
        other_owners: What sessions of the person may name as their owner besides.
    """
    owner = owner_of(session_key, person)
    key = parse_session_key(session_key)
    chat = key.chat if key.chat_class == "group" else None
    place = ParsedKey(key.profile, key.platform, key.account, key.chat_class, chat)
    prefix = key_text(place) + (":" if chat is not None else "")
    owners = frozenset() if owner is None else frozenset({owner, *other_owners})
    return Reach(owners, prefix, session_key)


@dataclass(slots=True)
class Card:
    """What is shown of a session.

    Attributes:
        said: How many messages people have written.
        waiting: How many messages wait for their turn, up to 101.
        other_lanes: How many lanes lead to it besides those that the batch has loaded.
        first_words: The beginning of what was said first.
    """

    id: UUID
    session_key: str
    owner: str | None
    started_at: datetime
    ended_at: datetime | None = None
    title: str | None = None
    title_scope: str | None = None
    model: str | None = None
    said: int = 0
    waiting: int = 0
    other_lanes: int = 0
    first_words: str | None = None


def new_card(session: Session) -> Card:
    """Return the card of a session that was opened just now."""
    return Card(session.id, session.session_key, session.owner, session.started_at)


@dataclass(slots=True)
class Cards:
    """The cards of one batch; what its commands change is changed here as well.

    Attributes:
        by_id: Of the sessions that commands were given in, are listed or have a wanted title.
        reaches: By key and person of a command.
        loaded: The sessions that were there before the batch opened others.
        waiting: How many messages the batch has written since its cards were read, by session.
        tips: Where the conversations of these sessions go on by now.
        shown: The lists that people were shown, by which numbers are understood.
    """

    by_id: dict[UUID, Card] = field(default_factory=dict)
    reaches: dict[tuple[str, str | None], Reach] = field(default_factory=dict)
    tips: dict[UUID, UUID] = field(default_factory=dict)
    loaded: frozenset[UUID] = frozenset()
    waiting: Counter[UUID] = field(default_factory=Counter)
    shown: ShownLists = field(default_factory=ShownLists)

    def of(self, session: Session) -> Card:
        """Return the card of a session of the batch."""
        return self.by_id.get(session.id) or self.by_id.setdefault(session.id, new_card(session))

    def nothing_waits(self, session: Session) -> None:
        """Note that what waited in a session was dropped."""
        self.of(session).waiting = 0
        self.waiting.pop(session.id, None)

    def within(self, reach: Reach) -> list[Card]:
        """Return what can be named, the newest first."""
        found = (one for one in self.by_id.values() if reach.holds(one.session_key, one.owner))
        return sorted(found, key=lambda one: one.id, reverse=True)

    def titled(self, title: str, scopes: Iterable[str]) -> Card | None:
        """Return the newest session that has a title, as titles are compared, in these scopes."""
        known, key = frozenset(scopes), title_key(title)
        found = (
            one
            for one in self.by_id.values()
            if one.title is not None and title_key(one.title) == key and one.title_scope in known
        )
        return max(found, key=lambda one: one.id, default=None)
