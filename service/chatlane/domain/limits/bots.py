"""Limit how much other bots may write. Pure: time is the storage time of messages.

Two bots that answer each other never stop. So each bot has a budget in each chat: a number of
messages within a span of time. Messages of a bot over its budget are ignored until the bot was
silent for that span or a person writes in the chat. Ignored messages also count as activity of the
bot, so a loop that continues stays ignored.
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
    """A bot and a chat in which it may write; the key names neither."""

    key: bytes
    bot: str
    limit: Limit


def pair_of(session_key: str, bot: str, limit: Limit) -> Pair:
    """Return the pair of a bot and the chat of a session key."""
    return Pair(sha256(f"{chat_of(session_key)}\0{bot}".encode()).digest()[:16], bot, limit)


def chat_of(session_key: str) -> str:
    """Return the chat of a session key: the key without its user and thread."""
    return key_text(parse_session_key(session_key)._replace(thread=None, user=None))


class ChatRange(NamedTuple):
    """The lane keys of a chat: they start with the prefix and end with the suffix."""

    prefix: str
    suffix: str


def range_of(chat: str) -> ChatRange:
    """Return the range of lane keys of a chat, those of its threads and people included."""
    whole = parse_session_key(chat)
    prefix = key_text(ParsedKey(*whole[:5]))
    return ChatRange(prefix, chat.removeprefix(prefix))


@dataclass(slots=True)
class Spent:
    """The part of its budget that a bot has spent in one chat.

    Attributes:
        opened_at: Begin of the span that `messages` counts.
        last_at: When the bot last wrote, ignored or not.
    """

    key: bytes
    opened_at: datetime
    last_at: datetime
    messages: int = 0
    is_silenced: bool = False

    def hear(self, limit: Limit, at: datetime, person_at: datetime | None) -> Hearing:
        """Count one more message, and return whether it is accepted or ignored.

        Args:
            at: When it was stored.
            person_at: When a person last wrote in the chat.
        """
        now = max(at, self.last_at)
        was_quiet = now - self.last_at >= limit.per
        is_over = not self.is_silenced and now - self.opened_at >= limit.per
        # The log may give both messages the same time; then the person's counts as the earlier one.
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
    """The bots that write in one batch.

    Attributes:
        spent: Spent budgets by key of the pair; a missing pair has not written yet.
        people: By chat, when a person last wrote there.
    """

    spent: dict[bytes, Spent] = field(default_factory=dict)
    people: dict[str, datetime] = field(default_factory=dict)

    def hear_person(self, session_key: str, at: datetime) -> None:
        """Record a message of a person."""
        chat = chat_of(session_key)
        self.people[chat] = max(at, self.people.get(chat, at))

    def hear(self, pair: Pair, session_key: str, at: datetime) -> Hearing:
        """Count a message of a bot, and return whether it is accepted or ignored."""
        spent = self.spent.setdefault(pair.key, Spent(pair.key, at, at))
        return spent.hear(pair.limit, at, self.people.get(chat_of(session_key)))


def chats_to_ask_for(said: Iterable[tuple[Pair, str]], spent: Mapping[bytes, Spent]) -> set[str]:
    """Return the chats in which a bot may exceed its budget.

    Only for those does the caller have to look up when a person last wrote.

    Args:
        said: Pair and session key of each message of a bot in the batch.
        spent: Spent budgets, by key of the pair.
    """
    counts: dict[bytes, int] = {}
    chats: set[str] = set()
    for pair, session_key in said:
        before = spent[pair.key].messages if pair.key in spent else 0
        counts[pair.key] = counts.get(pair.key, before) + 1
        if counts[pair.key] > pair.limit.messages:
            chats.add(chat_of(session_key))
    return chats
