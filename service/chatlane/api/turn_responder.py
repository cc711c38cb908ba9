"""Answer turn requests of workers, on plain subscriptions of the API's connection.

Every turn needs a claim, and the work of FastStream around a handler costs several times the work
of the handler itself (docs/adr/0025-answer-claims-without-faststream.md).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from nats.errors import Error as NatsError

from chatlane.api.endpoint import ApiRequest
from chatlane.api.routes import (
    CONCURRENT,
    PENDING_BYTES,
    PENDING_REQUESTS,
    PRINCIPAL_TOKEN,
    QUEUE,
    REPLIES,
)
from chatlane.observability.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from chatlane.api.endpoint import Handle
    from chatlane.api.turns import TurnHandlers

# Requests in progress when the process stops are answered; a worker repeats the others.
_GRACEFUL_SECONDS: Final = 5.0
# One round trip; without a server, waiting longer is useless.
_DRAINING_SECONDS: Final = 1.0

_log = get_logger("api")


@asynccontextmanager
async def answering_turns(client: Client, turns: Iterable[TurnHandlers]) -> AsyncIterator[None]:
    """Answer claims, renewals and takes for the length of the block, then finish those in progress.

    Args:
        client: An open connection.
        turns: The handlers of each agent.
    """
    responders = [
        Responder(client, f"turn.{verb}.{agent_turns.agent}", handle)
        for agent_turns in turns
        for verb, handle in agent_turns.requests().items()
    ]
    for responder in responders:
        await responder.begin()
    try:
        yield
    finally:
        await asyncio.gather(*(responder.end() for responder in responders))


class Responder:
    """Answers the requests of one method concurrently, since claims share a transaction.

    Excess requests wait in the subscription, within its limits. NATS drops the rest, and the caller
    repeats them with the same id.
    """

    def __init__(self, client: Client, method: str, handle: Handle) -> None:
        self._client = client
        self._subject = f"chat.v1.api.*.{method}"
        self._handle = handle
        self._room = asyncio.Semaphore(CONCURRENT)
        self._working: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Subscribe."""
        self._subscription = await self._client.subscribe(
            self._subject,
            queue=QUEUE,
            cb=self._received,
            pending_msgs_limit=PENDING_REQUESTS,
            pending_bytes_limit=PENDING_BYTES,
        )

    async def end(self) -> None:
        """Unsubscribe, and answer the requests that have been received or are on their way."""
        try:
            async with asyncio.timeout(_DRAINING_SECONDS):
                await self._subscription.drain()  # type: ignore[no-untyped-call]
        except (NatsError, TimeoutError) as error:
            _log.debug("unsubscribe_failed", error=type(error).__name__)
        if self._working:
            _, late = await asyncio.wait(self._working, timeout=_GRACEFUL_SECONDS)
            for task in late:
                task.cancel()

    async def _received(self, message: Msg) -> None:
        # A router may publish where its callers may not, so it answers only to reply inboxes.
        if not message.reply.startswith(REPLIES):
            return
        await self._room.acquire()
        task = asyncio.create_task(self._answer(message))
        self._working.add(task)
        task.add_done_callback(self._answered)

    async def _answer(self, message: Msg) -> None:
        principal = message.subject.split(".", PRINCIPAL_TOKEN + 1)[PRINCIPAL_TOKEN]
        body = await self._handle(ApiRequest(principal, message.data))
        try:
            await self._client.publish(message.reply, body)
        except NatsError as error:
            # The connection is gone; the worker repeats the request.
            _log.warning("answer_unsent", error=type(error).__name__)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._room.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("answer_failed", error=type(error).__name__)
