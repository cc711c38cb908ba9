"""The ASGI application: routes, pages, and what guards both."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from chatlane_console.console_state import ConsoleState
from chatlane_console.http.guard import Guard
from chatlane_console.http.problems import add_problem_handlers
from chatlane_console.openapi import openapi_document
from chatlane_console.routes import (
    dead_letters,
    explanations,
    files,
    imports,
    operators,
    people,
    person_state,
    projects,
    sign_in,
    takeovers,
)
from chatlane_console.routes.callers import State, all_conversations, own_conversations
from chatlane_console.routes.event_streams import event_routes
from chatlane_console.routes.session_changes import change_routes
from chatlane_console.routes.sessions import every_list_router, own_list_router, session_routes
from chatlane_console.routes.transcripts import transcript_routes
from chatlane_console.settings import ConsoleSettings

API_PATH: Final = "/api/v1"
OPERATOR_PATH: Final = f"{API_PATH}/operator"
PAGES: Final = Path(__file__).parent / "pages"


def create_app(settings: ConsoleSettings) -> FastAPI:
    """Return the application; it connects to NATS when it starts."""
    state = ConsoleState(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with state.open():
            yield

    app = FastAPI(
        title="chatlane console",
        version="1",
        summary="Conversations of people with agents.",
        openapi_url=f"{API_PATH}/openapi.json",
        # Their pages load scripts of third parties.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.console = state
    add_problem_handlers(app)
    app.include_router(_health_routes())
    app.include_router(sign_in.page_router)
    app.include_router(sign_in.api_router, prefix=API_PATH, tags=["person"])
    for path, reach, lists, tag in (
        (API_PATH, own_conversations, own_list_router, "person"),
        (OPERATOR_PATH, all_conversations, every_list_router, "operator"),
    ):
        app.include_router(lists, prefix=path, tags=[tag])
        for routes in (
            session_routes,
            change_routes,
            transcript_routes,
            files.file_routes,
            event_routes,
        ):
            app.include_router(routes(reach), prefix=path, tags=[tag])
    for routed in (operators, dead_letters, explanations, takeovers):
        app.include_router(routed.router, prefix=OPERATOR_PATH, tags=["operator"])
    app.include_router(people.operator_router, prefix=OPERATOR_PATH, tags=["operator"])
    for own in (projects, person_state, people, files, imports):
        app.include_router(own.router, prefix=API_PATH, tags=["person"])
    app.openapi = partial(_document_once, app)  # type: ignore[method-assign]
    if PAGES.is_dir():
        # Answers of the API stay as they are: compressed, their length could tell what a secret is.
        app.mount("/", GZipMiddleware(StaticFiles(directory=PAGES, html=True)), name="pages")
    app.add_middleware(
        Guard,
        hosts=settings.hosts,
        max_body_bytes=settings.max_body_bytes,
        larger_bodies={f"{API_PATH}{imports.IMPORT_PATH}": imports.MAX_IMPORT_BODY_BYTES},
        streamed_bodies={f"{API_PATH}{files.FILE_PATH}": settings.media.max_bytes},
        is_encrypted=settings.is_encrypted,
    )
    return app


def api_document() -> dict[str, Any]:
    """Return the OpenAPI document; needs no server and no settings."""
    return create_app(ConsoleSettings.model_construct()).openapi()


def _document_once(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = openapi_document(app)
    return app.openapi_schema


def link_token_of(app: FastAPI) -> str:
    """Return the token of the local link of an application."""
    state: ConsoleState = app.state.console
    return state.link_token


def _health_routes() -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/livez")
    async def livez() -> Response:
        """Return whether the process runs."""
        return PlainTextResponse("ok")

    @router.get("/readyz")
    async def readyz(state: State) -> Response:
        """Return whether the console is connected to NATS."""
        status = HTTPStatus.OK if state.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return PlainTextResponse(status.phrase, status)

    return router
