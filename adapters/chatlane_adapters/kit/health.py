"""Health of an adapter over HTTP: `/livez`, `/readyz` and `/metrics`."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest


@asynccontextmanager
async def serve_health(
    host: str, port: int, complaints: Callable[[], Collection[str]]
) -> AsyncIterator[int]:
    """Serve the health of this process for the length of the block.

    Args:
        host: Address to listen on.
        port: Its port; 0 takes a free port.
        complaints: Returns why the process cannot do all of its work; none if it can.

    Yields:
        The port.
    """

    async def live(_: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(_: web.Request) -> web.Response:
        found = list(complaints())
        return web.json_response(
            {"ready": not found, "complaints": found}, status=503 if found else 200
        )

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    application = web.Application()
    application.add_routes(
        [web.get("/livez", live), web.get("/readyz", ready), web.get("/metrics", metrics)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
