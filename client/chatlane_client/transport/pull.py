"""Fetch messages from a durable, several per request and never more than there is room for.

The `fetch` of nats-py requests one message at a time, or waits for the last of several until the
publisher writes it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from time import monotonic
from typing import Final

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

# A request that is outstanding when the server restarts is lost, so none lasts longer.
_ASKED_FOR: Final = timedelta(seconds=1)
# The server reports the end of a request; if the report gets lost, the request is over after this
# time.
_SAID_WITHIN: Final = timedelta(milliseconds=250)
# A request that was filled within this many seconds had more messages behind it.
_SOON: Final = 0.05
_STATUS: Final = "Status"
# Statuses that mean no message in time.
_OVER: Final = frozenset({"404", "408"})


class Pull:
    """Messages that arrived and were not taken, and the request for more.

    One request is open at a time and its replies are counted, so the sum never exceeds the room at
    the time of the request. A hanging process keeps the messages it requested from other readers
    until `ack_wait` is over. Therefore a request is for one message, and for twice as many as the
    last request only while they arrive fast.
    """

    def __init__(self, client: Client, stream: str, durable: str) -> None:
        """Create a pull; `open_pull` opens it."""
        self._client = client
        self._subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}"
        self._inbox = client.new_inbox()
        self._numbers = count(1)
        self._came = asyncio.Event()
        self._arrived: deque[Msg] = deque()
        self._failure: nats.errors.Error | None = None
        self._request = ""
        self._size = 1
        self._outstanding = 0
        self._asked_at = 0.0
        self._over_at = 0.0
        self._connects = -1

    async def take(self, room: int, within: timedelta) -> Msg:
        """Return the next message.

        Args:
            room: For how many messages there is room now.
            within: How long to wait.

        Raises:
            nats.errors.TimeoutError: No message arrived.
            nats.errors.Error: The durable does not reply.
        """
        until = monotonic() + within.total_seconds()
        while not self._arrived:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            now = monotonic()
            if now >= until:
                raise nats.errors.TimeoutError
            if not self._is_open(now):
                await self._ask(room)
            await self._wait(min(until, self._over_at) - now)
        return self._arrived.popleft()

    @property
    def arrived(self) -> tuple[Msg, ...]:
        """Messages that arrived and were not taken."""
        return tuple(self._arrived)

    async def give_back(self) -> None:
        """Return messages that were requested and not taken to other readers."""
        while self._is_open(now := monotonic()):
            await self._wait(self._over_at - now)
        with suppress(nats.errors.Error):
            while self._arrived:
                await self._arrived.popleft().nak()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Subscribe for the length of the block."""
        subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._received)
        try:
            yield
        finally:
            with suppress(nats.errors.Error):
                await subscription.unsubscribe()

    def _is_open(self, now: float) -> bool:
        # The server drops the requests of a lost connection.
        is_same = self._connects == self._client.stats["reconnects"]
        return self._outstanding > 0 and is_same and now < self._over_at

    async def _ask(self, room: int) -> None:
        self._connects = self._client.stats["reconnects"]
        self._request = f"{self._inbox}.{next(self._numbers)}"
        self._size = self._outstanding = min(room, self._size)
        self._asked_at = monotonic()
        self._over_at = self._asked_at + (_ASKED_FOR + _SAID_WITHIN).total_seconds()
        expires = round(_ASKED_FOR.total_seconds() * 1e9)
        body = b'{"batch":%d,"expires":%d}' % (self._size, expires)
        await self._client.publish(self._subject, body, reply=self._request)

    async def _wait(self, seconds: float) -> None:
        self._came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._came.wait()

    async def _received(self, message: Msg) -> None:
        status = message.headers.get(_STATUS) if message.headers else None
        if status is None:
            self._arrived.append(message)
            self._outstanding -= 1
            if self._outstanding == 0:
                was_soon = monotonic() - self._asked_at < _SOON
                self._size = 2 * self._size if was_soon else 1
        elif message.subject == self._request:
            self._outstanding = 0
            self._size = 1
            if status not in _OVER:
                self._failure = _failure_of(message)
        self._came.set()


@asynccontextmanager
async def open_pull(client: Client, stream: str, durable: str) -> AsyncIterator[Pull]:
    """Open a pull on an existing durable, and close it at the end."""
    pull = Pull(client, stream, durable)
    async with pull.open():
        yield pull


def _failure_of(status: Msg) -> nats.errors.Error:
    try:
        nats.js.errors.APIError.from_msg(status)
    except nats.errors.Error as exc:
        return exc
