"""The process that sends webhooks: one delivery for each endpoint."""

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final
from uuid import UUID

import httpx
from nats.aio.client import Client

from chatlane_bridges.http.server import server_of
from chatlane_bridges.webhooks.delivery import EndpointDelivery
from chatlane_bridges.webhooks.event_log import EventLog
from chatlane_bridges.webhooks.http_sender import STEP_WITHIN, HttpSender
from chatlane_bridges.webhooks.metrics import health_app
from chatlane_bridges.webhooks.settings import Declarations, WebhookSettings
from chatlane_client import SessionNotFoundError, TranscriptApi
from chatlane_client.transport.cursors import Cursors
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.topology.subjects import WEBHOOK_CURSORS

_log: Final = logging.getLogger("chatlane_bridges")

_PAGE_ROWS: Final = 100
_MAX_PAGES: Final = 10


async def serve(
    settings: WebhookSettings, declared: Declarations, tell: Callable[[str], None]
) -> None:
    """Send until SIGINT or SIGTERM.

    Args:
        settings: Settings of the process.
        declared: Its endpoints.
        tell: Called once the process sends.

    Raises:
        OSError: A file with a secret cannot be read.
        ValueError: A secret cannot be used.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    for endpoint in declared.endpoints.values():
        endpoint.keys()
    sending = asyncio.create_task(_send(settings, declared, tell))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    sending.cancel()
    results = await asyncio.gather(sending, stopping, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def _send(
    settings: WebhookSettings, declared: Declarations, tell: Callable[[str], None]
) -> None:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(settings.connection("webhooks"))
        if settings.port is not None:
            port = await stack.enter_async_context(_health(settings, client))
            _log.info("health_served", extra={"port": port})
        log = EventLog(client)
        await stack.enter_async_context(log.open())
        cursors = Cursors(client, platform=WEBHOOK_CURSORS, account=settings.principal)
        rows = TurnRows(client, settings.principal)
        deliveries = []
        for name, endpoint in declared.endpoints.items():
            http = await stack.enter_async_context(
                httpx.AsyncClient(trust_env=False, timeout=STEP_WITHIN)
            )
            sender = HttpSender(http, endpoint.url, allow_private=endpoint.allow_private)
            delivery = EndpointDelivery(
                name, endpoint, log=log, cursors=cursors, sender=sender, read_rows=rows.of
            )
            deliveries.append(delivery)
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for delivery in deliveries:
            group.create_task(delivery.run())
        tell(f"webhooks: {len(declared.endpoints)} endpoints")


@asynccontextmanager
async def _health(settings: WebhookSettings, client: Client) -> AsyncIterator[int]:
    """Serve the health of the process for the length of the block, and yield the port."""
    server = server_of(health_app(lambda: client.is_connected))
    with socket.create_server((settings.host, settings.port or 0)) as taken:
        # After a signal, the server ends and raises it again.
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            yield int(taken.getsockname()[1])
        finally:
            server.should_exit = True
            await asyncio.wait({serving})


class TurnRows:
    """Reads what was said in a turn, with the rights of the user of the process."""

    def __init__(self, client: Client, principal: str) -> None:
        self._transcripts = TranscriptApi(client, principal=principal)

    async def of(self, ended: Mapping[str, object]) -> list[dict[str, object]]:
        """Return the rows of the turn of an event, oldest first; none if the session is gone.

        Raises:
            ChatlaneClientError: They cannot be read.
        """
        session_id, turn_id = UUID(str(ended["session_id"])), UUID(str(ended["turn_id"]))
        found: list[dict[str, object]] = []
        pages = 0
        try:
            async for page in self._transcripts.pages(
                session_id, page_size=_PAGE_ROWS, as_stored=True
            ):
                pages += 1
                mine = [row for row in page if row.turn_id == turn_id]
                found = [*map(_shown, mine), *found]
                # The rows of a turn are together.
                if (found and len(mine) < len(page)) or pages >= _MAX_PAGES:
                    break
        except SessionNotFoundError:
            return []
        return found


def _shown(row: TranscriptEntry) -> dict[str, object]:
    return {"seq": row.seq, "role": row.role.value, "content": row.content}
