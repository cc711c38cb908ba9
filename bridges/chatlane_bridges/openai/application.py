"""The ASGI application of the endpoint."""

from typing import Any

from fastapi import APIRouter, FastAPI

from chatlane_bridges.http.application import new_app
from chatlane_bridges.openai.bridge_state import EndpointState
from chatlane_bridges.openai.routes import chat_completions, responses
from chatlane_bridges.openai.routes.callers import KnownCaller
from chatlane_bridges.openai.settings import Declarations, OpenAiSettings

_models = APIRouter()


def create_app(settings: OpenAiSettings, declared: Declarations) -> FastAPI:
    """Return the application; it connects to NATS when it starts.

    Raises:
        OSError: A file with a token cannot be read.
        ValueError: A token cannot be used.
    """
    app = new_app("chatlane openai", EndpointState(settings, declared))
    for router in (_models, chat_completions.router, responses.router):
        app.include_router(router, prefix="/v1")
    return app


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
