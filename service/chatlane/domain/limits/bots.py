"""How much other bots may say; pure, by the time at which messages were stored.

Two bots that answer each other never end. So each bot has a budget in each chat: so many messages
within a span of time. Who spends more is not heard until it was quiet for as long, or until a
person speaks in the chat. What is not heard counts as noise all the same: a loop that goes on
stays unheard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

from chatlane.domain.addressing.keys import ParsedKey, key_text, parse_session_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.domain.limits.admission import Limit

Hearing = Literal["heard", "silenced", "unheard"]


class Pair(NamedTuple):
    """A bot that may speak and the chat where it does; the key names neither."""

    key: bytes
    bot: str
    limit: Limit


def pair_of(session_key: str, bot: str, limit: Limit) -> Pair:
    """Return the pair of a bot and the chat of a session key."""
    return Pair(sha256(f"{chat_of(session_key)}\0{bot}".encode()).digest()[:16], bot, limit)


def chat_of(session_key: str) -> str:
    """Return the chat of a session key as the key it would have without people and threads."""
    return key_text(parse_session_key(session_key)._replace(thread=None, user=None))


class ChatRange(NamedTuple):
    """Where the lanes of a chat are: keys that go on after a prefix, and end like this."""

    prefix: str
    suffix: str


def range_of(chat: str) -> ChatRange:
    """Return where the lanes of a chat are, its threads and people included."""
    whole = parse_session_key(chat)
    prefix = key_text(ParsedKey(*whole[:5]))
    return ChatRange(prefix, chat.removeprefix(prefix))


@dataclass(slots=True)
class Spent:
    """What a bot has spent of its budget in one chat.

    Attributes:
        opened_at: When the span began that `messages` counts.
        last_at: When it last said anything, heard or not.
    """

    key: bytes
    opened_at: datetime
    last_at: datetime
    messages: int = 0
    is_silenced: bool = False

    def hear(self, limit: Limit, at: datetime, person_at: datetime | None) -> Hearing:
        """Count one more message, and tell whether it is heard.

        Args:
            at: When it was stored.
            person_at: When a person last spoke in the chat.
        """
        now = max(at, self.last_at)
        was_quiet = now - self.last_at >= limit.per
        is_over = not self.is_silenced and now - self.opened_at >= limit.per
        # The clock of the log may give both one time; then the person came before.
        is_asked = person_at is not None and self.opened_at < person_at <= now
        if was_quiet or is_over or is_asked:
            self.opened_at, self.messages, self.is_silenced = now, 0, False
        self.last_at = now
        if self.messages < limit.messages:
            self.messages += 1
            return "heard"
        if self.is_silenced:
            return "unheard"
        self.is_silenced = True
        return "silenced"


@dataclass(slots=True)
class Bots:
    """The bots that speak in one batch.

    Attributes:
        spent: By key of their pairs; those that are not there have said nothing yet.
        people: By chat, when a person last spoke there.
    """

    spent: dict[bytes, Spent] = field(default_factory=dict)
    people: dict[str, datetime] = field(default_factory=dict)

    def hear_person(self, session_key: str, at: datetime) -> None:
        """Take note of what a person says."""
        chat = chat_of(session_key)
        self.people[chat] = max(at, self.people.get(chat, at))

    def hear(self, pair: Pair, session_key: str, at: datetime) -> Hearing:
        """Count what a bot says, and tell whether it is heard."""
        spent = self.spent.setdefault(pair.key, Spent(pair.key, at, at))
        return spent.hear(pair.limit, at, self.people.get(chat_of(session_key)))


def chats_to_ask_for(said: Iterable[tuple[Pair, str]], spent: Mapping[bytes, Spent]) -> set[str]:
    """Return the chats in which a bot might say too much: there it matters whether people speak.

    Args:
        said: Pair and session key of all that bots say in a batch.
        spent: What they have spent, by key.
    """
    counts: dict[bytes, int] = {}
    chats: set[str] = set()
    for pair, session_key in said:
        before = spent[pair.key].messages if pair.key in spent else 0
        counts[pair.key] = counts.get(pair.key, before) + 1
        if counts[pair.key] > pair.limit.messages:
            chats.add(chat_of(session_key))
    return chats
