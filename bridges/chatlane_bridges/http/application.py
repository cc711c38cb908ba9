"""The parts of an application that all bridges over HTTP have."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from chatlane_bridges.http.bridge_state import BridgeState
from chatlane_bridges.http.problems import ApiProblem, add_problem_handlers

_BODY_WITHIN: Final = 30.0


def new_app(title: str, state: BridgeState) -> FastAPI:
    """Return an application that connects to NATS when it starts, and tells its health."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with state.open():
            yield

    app = FastAPI(title=title, openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.bridge = state
    add_problem_handlers(app)
    app.add_api_route("/livez", _livez, response_model=None)
    app.add_api_route("/readyz", _readyz, response_model=None)
    return app


async def _livez() -> Response:
    """Return whether the process runs."""
    return PlainTextResponse("ok")


async def _readyz(request: Request) -> Response:
    """Return whether the process is connected to NATS."""
    state = request.app.state.bridge
    is_ready = isinstance(state, BridgeState) and state.is_ready
    status = HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return PlainTextResponse(status.phrase, status)


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """Return the body of a request.

    Raises:
        ApiProblem: It is too large, or comes too slowly.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_WITHIN):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise ApiProblem(
                        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                        "too_large",
                        f"A body has at most {max_bytes} bytes.",
                    )
    except TimeoutError:
        raise ApiProblem(
            HTTPStatus.REQUEST_TIMEOUT, "too_slow", "The body took too long."
        ) from None
    return bytes(body)
