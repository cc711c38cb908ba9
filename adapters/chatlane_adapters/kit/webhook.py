"""Take the requests of a platform: store what they tell, then confirm it."""

import asyncio
import logging
from collections.abc import Awaitable, Iterable
from typing import Final

from aiohttp import web

from chatlane_client import ConnectionClosedError, RetryLaterError, UndeclaredAccountError

_log: Final = logging.getLogger(__name__)

# Slack waits three seconds, the least of all platforms.
_PATIENCE: Final = 2.7
_MAX_BODY: Final = 2**22
_LATER: Final = "2"


class Webhook:
    """Serves the requests of a platform.

    Args:
        patience: Seconds for which the platform waits for an answer.
        max_body: Most bytes of a request.
    """

    def __init__(self, patience: float = _PATIENCE, max_body: int = _MAX_BODY) -> None:
        self._patience = patience
        self._max_body = max_body
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, host: str, port: int, routes: Iterable[web.AbstractRouteDef]) -> None:
        """Serve until cancelled.

        Args:
            host: Address to listen on.
            port: Its port.
            routes: Handlers, which answer with `stored`.

        Raises:
            ConnectionClosedError: The connection to NATS is closed for good.
            UndeclaredAccountError: chatlane.toml does not declare the account.
        """
        application = web.Application(client_max_size=self._max_body)
        application.add_routes(routes)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_PATIENCE)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            _log.info("requests_served", extra={"port": runner.addresses[0][1]})
            await self._failure
        finally:
            await runner.cleanup()

    async def stored(self, storing: Awaitable[None]) -> web.Response:
        """Return 200 once the events of a request are stored, and 503 if they may not be.

        Args:
            storing: Stores them; an error means that the platform has to send the request again.
        """
        try:
            async with asyncio.timeout(self._patience):
                await storing
        except RetryLaterError as error:
            seconds = max(1, round(error.after.total_seconds()))
            return web.Response(status=503, headers={"Retry-After": str(seconds)})
        except (ConnectionClosedError, UndeclaredAccountError) as error:
            if not self._failure.done():
                self._failure.set_exception(error)
            return web.Response(status=503)
        except Exception as error:  # noqa: BLE001 - the platform sends it again
            _log.warning("event_not_stored", extra={"error": type(error).__name__})
        else:
            return web.Response()
        return web.Response(status=503, headers={"Retry-After": _LATER})
