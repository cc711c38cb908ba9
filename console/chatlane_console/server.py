"""The HTTP server of the console."""

import socket
from collections.abc import Callable

import uvicorn
from fastapi import FastAPI

from chatlane_console.application import create_app, link_token_of
from chatlane_console.settings import ConsoleSettings, SignInKind

_KEEP_ALIVE_SECONDS = 30
_GOODBYE_SECONDS = 5
_MAX_CONNECTIONS = 4000
_BACKLOG = 2048


async def serve(settings: ConsoleSettings, tell: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: Settings of the console.
        tell: Called with the address, and with the link to sign in.

    Raises:
        OSError: The address cannot be listened on.
    """
    app = create_app(settings)
    with listening(settings) as taken:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = settings.public_url or f"http://{host}:{taken.getsockname()[1]}"
        tell(f"console: {address}")
        # A token that was given is known, and this output may be a log.
        if settings.sign_in is SignInKind.LINK and settings.link_token is None:
            tell(f"sign in: {address}/sign-in/link?token={link_token_of(app)}")
        await server_of(app).serve(sockets=[taken])


def listening(settings: ConsoleSettings) -> socket.socket:
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
            # The address of the peer decides whether a proxy is trusted.
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_GOODBYE_SECONDS,
            limit_concurrency=_MAX_CONNECTIONS,
        )
    )
