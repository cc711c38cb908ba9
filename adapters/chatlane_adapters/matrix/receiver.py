"""Publish what happens in the rooms of an account, and keep the position behind it."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time
from typing import Final

from chatlane_adapters.matrix.client import MatrixClient, News, RawEvent, RoomNews
from chatlane_adapters.matrix.cursor import MAX_KEPT, Cursor, Unread
from chatlane_adapters.matrix.decode import Decoder, Room
from chatlane_adapters.matrix.files import text
from chatlane_adapters.matrix.invitations import Invitations
from chatlane_adapters.matrix.members import MemberReports
from chatlane_adapters.matrix.refusals import UNREACHABLE, HomeserverError
from chatlane_adapters.matrix.room_events import (
    RoomEvents,
    changes_members,
    is_join_of,
    membership_of,
    since_invitation,
)
from chatlane_client import RetryAfter
from chatlane_client.errors import UndeliverableError
from chatlane_schemas import InboundEvent

_log: Final = logging.getLogger(__name__)

_WAIT_SECONDS: Final = 30
_PAUSE_SECONDS: Final = 2.0
_MOST_PAUSE_SECONDS: Final = 60.0
# Rooms whose events are published at the same time.
_ROOMS_AT_ONCE: Final = 32
# Messages before the acceptance of an invitation that are read.
_MOST_BEFORE_JOIN: Final = 50
_REMEMBERED: Final = 10_000
_KEY_PATIENCE_SECONDS: Final = 3600.0
_JOIN_TRIES: Final = 5


@dataclass(kw_only=True)
class Receiver:
    """Reads the homeserver for one account.

    Attributes:
        client: The device of the account.
        decoder: Reads its events.
        publish: Returns once an event is stored.
        save: Keeps the cursor as text.
        invitations_from: Patterns of users whose invitations are accepted.
        on_ready: Called when all rooms are known.
        reports: Reports the members of the rooms; None reports none.
    """

    client: MatrixClient
    decoder: Decoder
    publish: Callable[[InboundEvent], Awaitable[object]]
    save: Callable[[str], Awaitable[None]]
    invitations_from: Sequence[str]
    on_ready: Callable[[], None] = lambda: None
    reports: MemberReports | None = None
    _unread: dict[str, Unread] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._events = RoomEvents(client=self.client, decoder=self.decoder, publish=self.publish)

    async def run(self, kept: str | None) -> None:
        """Publish everything behind a kept cursor, until cancelled.

        Args:
            kept: The text that `save` was called with last.

        Raises:
            RevokedTokenError: The homeserver does not accept the account any more.
        """
        cursor = Cursor.load(kept)
        self._unread = {it.event_id: it for it in cursor.unread}
        invitations = Invitations(self.client, self.invitations_from, cursor.invitations)
        is_first = True
        async with asyncio.TaskGroup() as joins:
            while True:
                invitations.accept(joins)
                news = await self._sync(cursor.since, with_state=is_first)
                self._note_members(news)
                if cursor.since is None:
                    # The account is new here: what was said before is not for us.
                    news = replace(news, rooms=())
                invitations.note(news.invitations)
                await self._publish_news(news, cursor.since)
                await self._read_again(news)
                reached = Cursor(news.next_batch, invitations.pending, tuple(self._unread.values()))
                if reached != cursor:
                    await self.save(reached.dump())
                    cursor = reached
                if is_first:
                    is_first = False
                    self.on_ready()
                    if self.reports is not None:
                        self.reports.begin(self.client.rooms())

    def _note_members(self, news: News) -> None:
        """Note the rooms whose members may have changed, before their events are published."""
        if self.reports is None:
            return
        for room in news.rooms:
            # What the server left out may be a change, too.
            if room.gap_ends_at is not None or any(map(changes_members, room.events)):
                self.reports.note(room.room_id)
        for room_id in news.left:
            self.reports.note(room_id)

    async def _sync(self, since: str | None, *, with_state: bool) -> News:
        """Return the next sync, as soon as the homeserver answers."""
        pause = _PAUSE_SECONDS
        while True:
            try:
                # A first sync returns at once, so that the rooms are known.
                seconds = 0 if with_state or since is None else _WAIT_SECONDS
                news = await self.client.sync(since, wait_seconds=seconds, with_state=with_state)
                await self.client.exchange_keys()
                return news
            except RetryAfter as refusal:
                pause = refusal.after.total_seconds()
                _log.warning("sync_limited", extra={"seconds": pause})
            except UNREACHABLE as error:
                code = error.code if isinstance(error, HomeserverError) else type(error).__name__
                _log.warning("sync_failed", extra={"code": code, "seconds": pause})
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MOST_PAUSE_SECONDS)

    async def _publish_news(self, news: News, since: str | None) -> None:
        """Publish the events of all rooms; those of a room in their order."""
        room_for = asyncio.Semaphore(_ROOMS_AT_ONCE)

        async def publish(room: RoomNews) -> None:
            async with room_for:
                async for events in self._pages(room, since):
                    senders = {text(event, "sender") or "" for event in events}
                    place = self.client.room(room.room_id, tuple(senders))
                    for event in events:
                        await self._publish(event, place)

        async with asyncio.TaskGroup() as rooms:
            for room in news.rooms:
                rooms.create_task(publish(room))

    async def _pages(self, news: RoomNews, since: str | None) -> AsyncIterator[Sequence[RawEvent]]:
        """Yield all events of a room since the last sync, in their order."""
        if any(is_join_of(event, self.client.user_id) for event in news.events):
            yield await self._since_invitation(news)
            return
        if news.gap_ends_at is not None and since is not None:
            async for page in self._with_patience(news, since, news.gap_ends_at):
                yield page
        yield news.events

    async def _with_patience(
        self, news: RoomNews, since: str, end: str
    ) -> AsyncIterator[Sequence[RawEvent]]:
        """Yield the events that a sync left out; ask until the homeserver tells all of them."""
        _log.info("gap_read", extra={"chat": news.room_id})
        position: str | None = since
        while position is not None:
            try:
                page, position = await self.client.history(news.room_id, position, end)
            except RetryAfter as refusal:
                await asyncio.sleep(refusal.after.total_seconds())
            except UndeliverableError as refusal:
                _log.warning(
                    "gap_unreadable", extra={"chat": news.room_id, "reason": refusal.reason}
                )
                return
            except UNREACHABLE:
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                yield page

    async def _since_invitation(self, news: RoomNews) -> Sequence[RawEvent]:
        """Return the events of a room that the account has just joined, from its invitation on."""
        events = list(news.events)
        is_invited = any(membership_of(it, self.client.user_id) == "invite" for it in events)
        if news.gap_ends_at is not None and not is_invited:
            with suppress(RetryAfter, UndeliverableError, *UNREACHABLE):
                before = await self.client.before(news.room_id, news.gap_ends_at, _MOST_BEFORE_JOIN)
                events = [*before, *events]
        return since_invitation(events, self.client.user_id)

    async def _publish(self, event: RawEvent, room: Room) -> None:
        """Publish an event, unless it says nothing to an agent."""
        event_id = text(event, "event_id")
        if event_id is None:
            return
        if event.get("type") == "m.room.encrypted":
            self._unread.setdefault(event_id, Unread(room.id, event_id, time()))
            self._bound_unread()
            return
        await self._events.store(event, room)

    def _bound_unread(self) -> None:
        while len(self._unread) > MAX_KEPT:
            oldest = next(iter(self._unread))
            del self._unread[oldest]
            _log.warning("event_undecryptable", extra={"event_id": oldest})

    async def _read_again(self, news: News) -> None:
        """Publish encrypted events whose keys have come; give up those that have waited long."""
        for unread in tuple(self._unread.values()):
            event: RawEvent | None = None
            if news.has_keys:
                with suppress(RetryAfter, *UNREACHABLE):
                    try:
                        event = await self.client.event(unread.room_id, unread.event_id)
                    except UndeliverableError:
                        event = {}
            is_late = time() - unread.since > _KEY_PATIENCE_SECONDS
            if event is not None and event.get("type") != "m.room.encrypted":
                del self._unread[unread.event_id]
                sender = text(event, "sender")
                room = self.client.room(unread.room_id, (sender,) if sender else ())
                await self._publish(event, room)
            elif is_late:
                del self._unread[unread.event_id]
                _log.warning("event_undecryptable", extra={"event_id": unread.event_id})
