"""How much one chat and one person may write; pure, by the time at which messages were stored.

A limit is a bucket that holds so many messages and fills up evenly within its span: so many may
come at once, and so many per span in the long run. One time says how full a bucket is: that at
which it is full again. So the same messages are let in whoever decides about them, and when.
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
    """So many messages per span of time."""

    messages: int
    per: timedelta


class Limits(NamedTuple):
    """What holds on one platform; None does not count at all."""

    per_chat: Limit | None = None
    per_sender: Limit | None = None

    def __bool__(self) -> bool:
        return self != (None, None)


class Counter(NamedTuple):
    """One limit that a message counts towards; the key names the bucket and no person."""

    key: bytes
    scope: Scope
    limit: Limit


class Counted(NamedTuple):
    """What a message counts towards, and the message, for the case that it is over a limit."""

    counters: tuple[Counter, ...]
    message: LogMessage


@dataclass(slots=True)
class Bucket:
    """How full a bucket is.

    Attributes:
        full_at: When all of its messages may be written again; None when nothing ever was.
        told_until: Until when nobody is told again that it is empty.
    """

    key: bytes
    full_at: datetime | None = None
    told_until: datetime | None = None

    def has_room(self, limit: Limit, now: datetime) -> bool:
        """Tell whether one more message may be let in."""
        begin = now if self.full_at is None else max(now, self.full_at)
        return begin + limit.per // limit.messages - now <= limit.per

    def take(self, limit: Limit, now: datetime) -> None:
        """Let one message in."""
        begin = now if self.full_at is None else max(now, self.full_at)
        self.full_at = begin + limit.per // limit.messages

    def may_tell(self, limit: Limit, now: datetime) -> bool:
        """Tell whether it is time to say that the bucket is empty, and note that it is said."""
        if self.told_until is not None and now < self.told_until:
            return False
        self.told_until = now + limit.per
        return True


def counters(
    limits: Limits, platform: str, account: str, chat: str, person: str | None
) -> tuple[Counter, ...]:
    """Return what a message counts towards."""
    found: list[Counter] = []
    if limits.per_chat:
        found.append(Counter(_key("chat", platform, account, chat), "chat", limits.per_chat))
    if limits.per_sender and person:
        key = _key("sender", platform, account, person)
        found.append(Counter(key, "sender", limits.per_sender))
    return tuple(found)


def admit(counted: Counted, buckets: Mapping[bytes, Bucket], now: datetime) -> Counter | None:
    """Let a message in, or return the limit that it is over; what is refused counts nowhere."""
    for counter in counted.counters:
        if not buckets[counter.key].has_room(counter.limit, now):
            return counter
    for counter in counted.counters:
        buckets[counter.key].take(counter.limit, now)
    return None


def _key(*parts: str) -> bytes:
    # Length-prefixed, so that no two places share a bucket.
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).digest()[:16]
