"""The HTTP server of the endpoint."""

import socket
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import FastAPI

from chatlane_bridges.openai.application import create_app
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings

_KEEP_ALIVE_SECONDS: Final = 30
_GOODBYE_SECONDS: Final = 5
_MAX_CONNECTIONS: Final = 4000
_BACKLOG: Final = 2048


async def serve(
    settings: OpenAiSettings, declared: Declarations, tell: Callable[[str], None]
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: Settings of the endpoint.
        declared: Its models and keys.
        tell: Called with the address.

    Raises:
        OSError: The address cannot be listened on, or a file with a token cannot be read.
        ValueError: A token cannot be used.
    """
    app = create_app(settings, declared)
    with listening(settings) as taken:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        tell(f"openai: http://{host}:{taken.getsockname()[1]}/v1")
        await server_of(app).serve(sockets=[taken])


def listening(settings: OpenAiSettings) -> socket.socket:
    """Return a socket that listens on the address of the settings.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    return socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)


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
