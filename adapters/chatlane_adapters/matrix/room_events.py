"""Publish the events of rooms, with what has to be known of earlier ones."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from chatlane_adapters.matrix.client import MatrixClient, RawEvent
from chatlane_adapters.matrix.decode import Decoder, Dropped, Reaction, Room
from chatlane_adapters.matrix.files import mapping, text
from chatlane_adapters.matrix.refusals import UNREACHABLE
from chatlane_client import RetryAfter
from chatlane_client.errors import OversizedMessageError, RefusedPublishError, UndeliverableError
from chatlane_schemas import InboundEvent

_log: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 2.0
_REMEMBERED: Final = 10_000

V = TypeVar("V")


class _Recent(Generic[V]):
    """The newest entries of a mapping of event ids."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, V] = OrderedDict()

    def add(self, event_id: str, value: V) -> None:
        self._values[event_id] = value
        self._values.move_to_end(event_id)
        if len(self._values) > _REMEMBERED:
            self._values.popitem(last=False)

    def find(self, event_id: str) -> V | None:
        return self._values.get(event_id)


@dataclass(kw_only=True)
class RoomEvents:
    """Publishes the events of the rooms of one account.

    Attributes:
        client: Its calls.
        decoder: Reads its events.
        publish: Returns once an event is stored.
    """

    client: MatrixClient
    decoder: Decoder
    publish: Callable[[InboundEvent], Awaitable[object]]
    _authors: _Recent[str] = field(default_factory=_Recent)
    _reactions: _Recent[Reaction] = field(default_factory=_Recent)

    async def store(self, event: RawEvent, room: Room) -> None:
        """Publish an event and return once it is stored, unless it says nothing to an agent."""
        event_id = text(event, "event_id")
        if event_id is None:
            return
        content, kind = mapping(event, "content"), event.get("type")
        relation = mapping(content, "m.relates_to")
        author = reaction = None
        if kind == "m.reaction":
            target, key = text(relation, "event_id"), text(relation, "key")
            if target is not None and key is not None:
                self._reactions.add(event_id, Reaction(target, key))
        elif kind == "m.room.redaction":
            target = text(event, "redacts") or text(content, "redacts")
            reaction = None if target is None else self._reactions.find(target)
        elif relation.get("rel_type") == "m.replace":
            author = await self._author_of(room.id, text(relation, "event_id"))
        else:
            self._authors.add(event_id, text(event, "sender") or "")
        decoded = self.decoder.decode(event, room, author=author, reaction=reaction)
        if isinstance(decoded, Dropped):
            if decoded not in {Dropped.OWN, Dropped.STATE}:
                _log.info("event_dropped", extra={"reason": decoded.value, "event_id": event_id})
            return
        try:
            await self.publish(decoded)
        except (RefusedPublishError, OversizedMessageError) as error:
            # A second try would fail as well, and hold up all rooms.
            _log.error("event_refused", extra={"event_id": event_id, "error": type(error).__name__})

    async def _author_of(self, room_id: str, event_id: str | None) -> str | None:
        """Return the author of a message, or None if the homeserver does not say."""
        if event_id is None:
            return None
        author = self._authors.find(event_id)
        while author is None:
            try:
                author = text(await self.client.event(room_id, event_id), "sender") or ""
            except UndeliverableError:
                return None
            except RetryAfter as refusal:
                await asyncio.sleep(refusal.after.total_seconds())
            except UNREACHABLE:
                await asyncio.sleep(_PAUSE_SECONDS)
        self._authors.add(event_id, author)
        return author


def since_invitation(events: Sequence[RawEvent], user_id: str) -> Sequence[RawEvent]:
    """Return the events from the invitation of a user on; without one, from its first join on.

    A person who opens a room with an account may write before the account has joined.
    """
    begins = next(
        (at for at, it in enumerate(events) if membership_of(it, user_id) == "invite"), None
    )
    if begins is None:
        begins = next((at for at, it in enumerate(events) if is_join_of(it, user_id)), len(events))
    return events[begins:]


def is_join_of(event: RawEvent, user_id: str) -> bool:
    """Return whether a user joins by an event."""
    before = mapping(mapping(event, "unsigned"), "prev_content")
    return membership_of(event, user_id) == "join" and before.get("membership") != "join"


def membership_of(event: RawEvent, user_id: str) -> str | None:
    """Return the membership that an event gives a user, such as `join`; None if it is about others."""
    if event.get("type") != "m.room.member" or event.get("state_key") != user_id:
        return None
    return text(mapping(event, "content"), "membership")


def changes_members(event: RawEvent) -> bool:
    """Return whether an event may change who is in its room."""
    return event.get("type") == "m.room.member"
