"""The HTTP server of a bridge."""

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import FastAPI

from chatlane_bridges.http.settings import HttpSettings

_KEEP_ALIVE_SECONDS: Final = 30
_GOODBYE_SECONDS: Final = 5
_MAX_CONNECTIONS: Final = 4000
_BACKLOG: Final = 2048


async def serve(
    app: FastAPI, settings: HttpSettings, tell: Callable[[str], None], shown: str
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        app: The application.
        settings: The address.
        tell: Called with the address.
        shown: How it is shown, with `{}` for the address.

    Raises:
        OSError: The address cannot be listened on.
    """
    with listening(settings) as taken:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        tell(shown.format(f"http://{host}:{taken.getsockname()[1]}"))
        await server_of(app).serve(sockets=[taken])


def listening(settings: HttpSettings) -> socket.socket:
    """Return a socket that listens on the address of the settings.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    taken = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    # Connections inherit it. asyncio sets it only for sockets that name their protocol, and without it
    # the body of a response waits 40 ms for the acknowledgement of its headers.
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return taken


def server_of(app: FastAPI) -> uvicorn.Server:
    """Return the server of an application."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
            limit_concurrency=_MAX_CONNECTIONS,
        )
    )
