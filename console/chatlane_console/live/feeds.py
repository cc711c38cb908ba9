"""All event feeds of a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from http import HTTPStatus
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client import SessionNotFoundError
from chatlane_client.transport.connection import open_subscription
from chatlane_console.conversations import Conversations
from chatlane_console.http.problems import ProblemError
from chatlane_console.live.event_feed import EventFeed
from chatlane_schemas import DecodeError, SessionEnded, SessionUpdated, decode
from chatlane_schemas.topology import subjects

# Longer than a browser takes to connect again.
_KEPT_WITHOUT_READER: Final = timedelta(seconds=60)
_LOOK_AGAIN: Final = timedelta(seconds=1)
_OPENED_WITHIN: Final = timedelta(seconds=15)
_MAX_FEEDS: Final = 2000


class Attached(NamedTuple):
    """A feed, and where in it to begin.

    Attributes:
        is_resumed: Whether the events follow those that the browser has.
    """

    feed: EventFeed
    after: int
    is_resumed: bool


class Feeds:
    """Opens feeds, lets browsers resume them, and drops unread ones."""

    def __init__(self, *, most_of_a_person: int) -> None:
        """Create it; `open` starts it.

        Args:
            most_of_a_person: How many feeds a caller may have.
        """
        self._most_of_a_person = most_of_a_person
        self._feeds: dict[str, tuple[EventFeed, asyncio.Task[None]]] = {}

    @asynccontextmanager
    async def open(self, client: Client, observer: Client | None) -> AsyncIterator[None]:
        """Look after the feeds for the length of the block.

        Args:
            client: The connection that feeds read from.
            observer: A connection that hears of all changed sessions, if there is one.
        """
        look_after = asyncio.create_task(self._look_after(client))
        try:
            if observer is None:
                yield
                return
            changed = subjects.filled(subjects.EVENT, noun="session", verb="updated")
            ended = subjects.filled(subjects.EVENT, noun="session", verb="ended")
            async with (
                open_subscription(observer, changed, self._hear_changed),
                open_subscription(observer, ended, self._hear_ended),
            ):
                yield
        finally:
            look_after.cancel()
            tasks = [look_after, *(task for _, task in self._feeds.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def attach(
        self, conversations: Conversations, session_id: UUID, last_event_id: str | None
    ) -> Attached:
        """Return the feed that a browser had, or another one.

        Raises:
            SessionNotFoundError: There is no such session, or it is of another person.
            ProblemError: The caller has too many feeds.
        """
        # Also before a feed is resumed: the session may have become another person's.
        _ = await conversations.sessions.get(session_id)
        feed_id, _, number = (last_event_id or "").rpartition("-")
        found = self._feeds.get(feed_id)
        if found is not None and number.isascii() and number.isdigit():
            feed = found[0]
            is_own = (feed.caller, feed.session_id) == (conversations.caller, session_id)
            if is_own and not feed.is_over and feed.has_all_after(int(number)):
                return Attached(feed, int(number), is_resumed=True)
        return Attached(await self._opened(conversations, session_id), 0, is_resumed=False)

    async def _opened(self, conversations: Conversations, session_id: UUID) -> EventFeed:
        self._drop_abandoned(conversations.caller)
        own = [feed for feed, _ in self._feeds.values() if feed.caller == conversations.caller]
        if len(own) >= self._most_of_a_person or len(self._feeds) >= _MAX_FEEDS:
            raise ProblemError(
                HTTPStatus.TOO_MANY_REQUESTS,
                "too_many_streams",
                "too many event streams are open",
                headers={"Retry-After": "10"},
            )
        feed = EventFeed(conversations, session_id)
        is_open = asyncio.Event()
        self._feeds[feed.id] = feed, asyncio.create_task(feed.run(is_open))
        # What happens from now on must not be missed.
        with suppress(TimeoutError):
            async with asyncio.timeout(_OPENED_WITHIN.total_seconds()):
                await is_open.wait()
        if feed.is_over:
            raise SessionNotFoundError("", "no such session")
        return feed

    def _drop_abandoned(self, caller: str) -> None:
        """Drop the unread feeds of a caller, if there are too many."""
        own = [feed for feed, _ in self._feeds.values() if feed.caller == caller]
        abandoned = sorted(
            (feed for feed in own if feed.left_at is not None), key=lambda feed: feed.left_at or 0.0
        )
        for feed in abandoned[: max(0, len(own) + 1 - self._most_of_a_person)]:
            self._drop(feed)

    def _drop(self, feed: EventFeed) -> None:
        _, task = self._feeds.pop(feed.id)
        task.cancel()

    async def tell(self, session_id: UUID, name: str) -> None:
        """Add an event to all feeds of a session."""
        for feed, _ in list(self._feeds.values()):
            if feed.session_id == session_id:
                await feed.add(name)

    async def _hear_changed(self, message: Msg) -> None:
        with suppress(DecodeError):
            await self.tell(decode(SessionUpdated, message.data).session_id, "session.changed")

    async def _hear_ended(self, message: Msg) -> None:
        with suppress(DecodeError):
            await self.tell(decode(SessionEnded, message.data).session_id, "session.ended")

    async def _look_after(self, client: Client) -> None:
        """Drop unread feeds, and make all browsers begin again after a lost connection."""
        reconnects = client.stats["reconnects"]
        while True:
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
            latest = monotonic() - _KEPT_WITHOUT_READER.total_seconds()
            for feed, _ in list(self._feeds.values()):
                if feed.is_over or (feed.left_at is not None and feed.left_at < latest):
                    self._drop(feed)
            if client.is_connected and client.stats["reconnects"] != reconnects:
                reconnects = client.stats["reconnects"]
                for feed, _ in list(self._feeds.values()):
                    await feed.add("resync")
