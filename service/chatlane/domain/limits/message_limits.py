"""Limit how much chats, people and other bots may write. Pure: time is the storage time.

A limit of a chat or a person is a token bucket that holds a number of messages and refills evenly within its span: that
many messages may come at once, and that many per span in the long run. One timestamp describes the
fill level of a bucket: the time at which it is full again. So every router admits the same
messages, whenever it decides.

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

    from chatlane.domain.catalog import Limit, Limits
    from chatlane.domain.log import LogMessage


Scope = Literal["chat", "sender"]


class Counter(NamedTuple):
    """A limit that a message counts towards; the key names no person."""

    key: bytes
    scope: Scope
    limit: Limit


class Counted(NamedTuple):
    """The limits that a message counts towards, and the message itself."""

    counters: tuple[Counter, ...]
    message: LogMessage


@dataclass(slots=True)
class Bucket:
    """The fill level of one bucket.

    Attributes:
        full_at: When the bucket is full again; None if nothing was ever taken from it.
        told_until: Until when the notice that it is empty is not repeated.
    """

    key: bytes
    full_at: datetime | None = None
    told_until: datetime | None = None

    def has_room(self, limit: Limit, now: datetime) -> bool:
        """Return whether one more message may be admitted."""
        begin = now if self.full_at is None else max(now, self.full_at)
        return begin + limit.per // limit.messages - now <= limit.per

    def take(self, limit: Limit, now: datetime) -> None:
        """Take one message out of the bucket."""
        begin = now if self.full_at is None else max(now, self.full_at)
        self.full_at = begin + limit.per // limit.messages

    def may_tell(self, limit: Limit, now: datetime) -> bool:
        """Return whether the notice that the bucket is empty is due, and record it as sent."""
        if self.told_until is not None and now < self.told_until:
            return False
        self.told_until = now + limit.per
        return True


def counters(
    limits: Limits, platform: str, account: str, chat: str, person: str | None
) -> tuple[Counter, ...]:
    """Return the limits that a message counts towards."""
    found: list[Counter] = []
    if limits.per_chat:
        found.append(Counter(_key("chat", platform, account, chat), "chat", limits.per_chat))
    if limits.per_sender and person:
        key = _key("sender", platform, account, person)
        found.append(Counter(key, "sender", limits.per_sender))
    return tuple(found)


def admit(counted: Counted, buckets: Mapping[bytes, Bucket], now: datetime) -> Counter | None:
    """Admit a message, or return the limit that it exceeds; a refused message counts nowhere."""
    for counter in counted.counters:
        if not buckets[counter.key].has_room(counter.limit, now):
            return counter
    for counter in counted.counters:
        buckets[counter.key].take(counter.limit, now)
    return None


def _key(*parts: str) -> bytes:
    # Length-prefixed, so that no two places share a bucket.
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).digest()[:16]


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
        """Count one more message, and return whether it is accepted or ignored."""
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
