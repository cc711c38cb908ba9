"""Deliver the messages of each chat in order, without one chat holding up the others.

The server hands out only so many unacknowledged messages, and this process has only so much memory.
So a chat that has to wait gives its messages back to the server, and keeps their places.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Final, TypeAlias, assert_never

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.delivery.message_sender import (
    Delivered,
    Delivery,
    GivenUp,
    MessageSender,
    Outcome,
    Retry,
    Stopped,
)
from chatlane_client.errors import ConnectionClosedError
from chatlane_client.transport.retry import CancellationGuard, was_set_within
from chatlane_schemas import OutboundMessage

_log = logging.getLogger("chatlane_client")

# Until the durable has been read.
_ACK_WAIT: Final = 5.0
# However many messages wait, the server delivers only so many of them again in a second.
_RETURNS_PER_SECOND: Final = 500
_LONGEST_SET_BACK: Final = 60.0
# A chat that pauses longer than this gives its messages back.
PARKED_FROM: Final = 2.0
# Messages of one chat that are in memory while its first one is sent.
_AT_HAND: Final = 32
# A message that was called back and does not come is called back again.
_COMES_WITHIN: Final = timedelta(seconds=2)
_NAK: Final = b"-NAK"
_NAK_LATER: Final = b'-NAK {"delay": %d}'


def set_back_seconds(ack_wait: float, count: int) -> float:
    """Return how long the server keeps a message that is given back, if it keeps so many.

    A process that follows a killed one waits as long for messages that it does not have.
    """
    return min(max(ack_wait, count / _RETURNS_PER_SECOND), _LONGEST_SET_BACK)


@dataclass(slots=True)
class _Queue:
    """The messages of one chat in their order; those without a body are with the server."""

    entries: deque[Delivery] = field(default_factory=deque)
    paused_until: float = 0.0
    bodies: int = 0

    @property
    def pause(self) -> float:
        return max(0.0, self.paused_until - monotonic())

    def has_room_for(self, delivery: Delivery) -> bool:
        """Return whether the body of a message is wanted now."""
        if self.pause > PARKED_FROM:
            return False
        return self.bodies < _AT_HAND or not self.entries or self.entries[0] is delivery


ShowPause: TypeAlias = Callable[[OutboundMessage], AbstractAsyncContextManager[None]]
"""Shows in the chat of a message, for the length of a block, that the message is to come."""


class ChatQueues:
    """The messages that this process has and has not acknowledged.

    Attributes:
        held: By message id, in order of arrival.
        bodies: How many of them are in memory.
        ack_wait: Seconds after which the server delivers an unacknowledged message again.
    """

    def __init__(
        self,
        client: Client,
        sender: MessageSender,
        stopping: asyncio.Event,
        show_pause: ShowPause,
    ) -> None:
        self._client = client
        self._sender = sender
        self._stopping = stopping
        self._show_pause = show_pause
        self._queues: dict[str, _Queue] = {}
        self.held: dict[str, Delivery] = {}
        self.bodies = 0
        self.ack_wait = _ACK_WAIT

    @property
    def set_back(self) -> int:
        """Return how many messages the server keeps for this process."""
        return len(self.held) - self.bodies

    def hold(self, delivery: Delivery) -> None:
        """Keep a message that arrived; it is not in the queue of its chat yet."""
        self.held[delivery.id] = delivery
        self.bodies += 1

    async def put(self, delivery: Delivery, tasks: asyncio.TaskGroup) -> None:
        """Append a held message to the queue of its chat."""
        chat = delivery.raw.subject
        queue = self._queues.get(chat)
        if queue is None:
            queue = self._queues[chat] = _Queue()
            tasks.create_task(self._serve(chat, queue))
        queue.entries.append(delivery)
        queue.bodies += 1
        if not queue.has_room_for(delivery):
            await self._set_back(delivery, queue)

    async def take_copy(self, delivery: Delivery, message: OutboundMessage, raw: Msg) -> None:
        """Take another copy of a held message, which the server has delivered again."""
        delivery.raw = raw
        if delivery.message is not None:
            return
        queue = self._queues.get(raw.subject)
        if queue is None:
            return
        delivery.message = message
        self.bodies += 1
        queue.bodies += 1
        if queue.has_room_for(delivery):
            delivery.came.set()
        else:
            await self._set_back(delivery, queue)

    async def set_back_all(self) -> None:
        """Give all messages back to the server for the next process, in order."""
        held = sorted(self.held.values(), key=lambda delivery: delivery.sequence)
        for delivery in held:
            await self._nak(delivery)

    async def acknowledge(self, delivery: Delivery) -> None:
        """Tell the server that the message is done with."""
        if self.held.get(delivery.id) is delivery:
            del self.held[delivery.id]
            self.bodies -= delivery.message is not None
        try:
            await delivery.raw.ack()
        except nats.errors.ConnectionClosedError as exc:
            raise ConnectionClosedError from exc
        except nats.errors.Error as exc:
            # The server redelivers the message, and the reader drops it as a duplicate.
            _log.warning("outbound_unacknowledged", extra={"error": str(exc)})

    async def _serve(self, chat: str, queue: _Queue) -> None:
        """Deliver the queued messages of a chat until the queue is empty."""
        guard = CancellationGuard()
        while queue.entries and not self._stopping.is_set():
            guard.check()
            head = queue.entries[0]
            if head.message is None:
                await self._call_back(queue)
                continue
            if head.message.pause_before_ms and not head.has_paused and head.given_up is None:
                head.has_paused = True
                async with self._show_pause(head.message):
                    await self._pause(queue, head.message.pause_before_ms / 1000)
                continue
            outcome = await self._sender.attempt(head, head.message)
            if isinstance(outcome, Stopped):
                break
            await self._apply(outcome, head, queue)
        del self._queues[chat]

    async def _apply(self, outcome: Outcome, head: Delivery, queue: _Queue) -> None:
        match outcome:
            case Retry(seconds, _):
                await self._pause(queue, seconds)
            case Delivered() | GivenUp():
                if isinstance(outcome, GivenUp) and outcome.is_chat_gone:
                    for delivery in queue.entries:
                        delivery.given_up = outcome.failure
                queue.entries.popleft()
                if head.message is not None:
                    queue.bodies -= 1
                await self.acknowledge(head)
            case Stopped():
                pass
            case _:
                assert_never(outcome)

    async def _pause(self, queue: _Queue, seconds: float) -> None:
        """Let a chat wait; if that takes long, the server keeps its messages meanwhile."""
        queue.paused_until = monotonic() + seconds
        if seconds > PARKED_FROM:
            for delivery in list(queue.entries):
                await self._set_back(delivery, queue)
        await was_set_within(self._stopping, seconds)

    async def _set_back(self, delivery: Delivery, queue: _Queue) -> None:
        """Give the body of a message back to the server; it keeps its place in the queue."""
        if delivery.message is None:
            return
        delivery.message = None
        delivery.raw.data = b""
        delivery.came.clear()
        self.bodies -= 1
        queue.bodies -= 1
        delay = set_back_seconds(self.ack_wait, self.set_back)
        if queue.pause > PARKED_FROM:
            delay = min(delay, queue.pause)
        await self._nak(delivery, delay)

    async def _call_back(self, queue: _Queue) -> None:
        """Ask the server for the next messages of a chat, and wait for the first one."""
        head = queue.entries[0]
        for delivery in _first(queue.entries, _AT_HAND):
            if delivery.message is None:
                await self._nak(delivery)
        came = asyncio.create_task(head.came.wait())
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            within = _COMES_WITHIN.total_seconds()
            await asyncio.wait({came, stopped}, timeout=within, return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
            stopped.cancel()

    async def _nak(self, delivery: Delivery, delay: float | None = None) -> None:
        """Ask the server to deliver a message again, at once or after a delay.

        Not with `Msg.nak`, which refuses a second one: a message whose delay is over sooner than
        was thought is called back.
        """
        body = _NAK if delay is None else _NAK_LATER % round(delay * 1e9)
        try:
            await self._client.publish(delivery.raw.reply, body)
        except nats.errors.ConnectionClosedError as exc:
            raise ConnectionClosedError from exc
        except nats.errors.Error as exc:
            # The server delivers the message again after `ack_wait`.
            _log.warning("outbound_not_set_back", extra={"error": str(exc)})


def _first(entries: deque[Delivery], count: int) -> Iterator[Delivery]:
    for place, delivery in enumerate(entries):
        if place == count:
            return
        yield delivery
