"""The ASGI application of the endpoint."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import PlainTextResponse, Response

from chatlane_bridges.openai.bridge_state import BridgeState
from chatlane_bridges.openai.problems import add_problem_handlers
from chatlane_bridges.openai.routes import chat_completions, responses
from chatlane_bridges.openai.routes.callers import KnownCaller, State
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings

_health = APIRouter()
_models = APIRouter()


def create_app(settings: OpenAiSettings, declared: Declarations) -> FastAPI:
    """Return the application; it connects to NATS when it starts.

    Raises:
        OSError: A file with a token cannot be read.
        ValueError: A token cannot be used.
    """
    state = BridgeState(settings, declared)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with state.open():
            yield

    app = FastAPI(
        title="chatlane openai", openapi_url=None, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.state.bridge = state
    add_problem_handlers(app)
    app.include_router(_health)
    for router in (_models, chat_completions.router, responses.router):
        app.include_router(router, prefix="/v1")
    return app


@_health.get("/livez")
async def livez() -> Response:
    """Return whether the process runs."""
    return PlainTextResponse("ok")


@_health.get("/readyz")
async def readyz(state: State) -> Response:
    """Return whether the process is connected to NATS."""
    status = HTTPStatus.OK if state.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
    return PlainTextResponse(status.phrase, status)


@_models.get("/models")
async def list_models(caller: KnownCaller) -> dict[str, Any]:
    """Return the models that the key may use."""
    return {"object": "list", "data": [_model(model_id) for model_id in caller.models]}


@_models.get("/models/{model_id:path}")
async def get_model(model_id: str, caller: KnownCaller) -> dict[str, Any]:
    """Return a model that the key may use."""
    caller.model(model_id)
    return _model(model_id)


def _model(model_id: str) -> dict[str, Any]:
    return {"id": model_id, "object": "model", "created": 0, "owned_by": "chatlane"}
