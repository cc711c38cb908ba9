"""Limit how much a chat and a person may write. Pure: time is the storage time of messages.

A limit is a token bucket that holds a number of messages and refills evenly within its span: that
many messages may come at once, and that many per span in the long run. One timestamp describes the
fill level of a bucket: the time at which it is full again. So every router admits the same
messages, whenever it decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from chatlane.domain.log import LogMessage

Scope = Literal["chat", "sender"]


class Limit(NamedTuple):
    """A number of messages per span of time."""

    messages: int
    per: timedelta


class Limits(NamedTuple):
    """Limits of one platform; None means no limit."""

    per_chat: Limit | None = None
    per_sender: Limit | None = None

    def __bool__(self) -> bool:
        return self != (None, None)


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
