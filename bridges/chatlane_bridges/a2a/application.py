"""The ASGI application of the A2A server: a card and an address for each agent."""

from typing import Final

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.constants import (
    AGENT_CARD_WELL_KNOWN_PATH,
    PROTOCOL_VERSION_0_3,
    PROTOCOL_VERSION_1_0,
)
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message
from typing_extensions import override

from chatlane_bridges.a2a.request_handler import CALLER, AgentRequests
from chatlane_bridges.a2a.settings import A2aSettings
from chatlane_bridges.http.application import new_app, read_bytes
from chatlane_bridges.http.bridge_state import BridgeState
from chatlane_bridges.http.declared_agents import (
    AgentCallers,
    AgentDeclarations,
    DeclaredAgent,
    no_agent,
)

_TEXT: Final = "text/plain"
_BEARER: Final = "bearer"
_VERSION: Final = "1"


class _ContextBuilder(DefaultServerCallContextBuilder):
    @override
    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[CALLER] = request.state.caller
        return context


def create_app(settings: A2aSettings, declared: AgentDeclarations) -> FastAPI:
    """Return the application; it connects to NATS when it starts.

    Raises:
        OSError: A file with a token cannot be read.
        ValueError: A token cannot be used.
    """
    state = BridgeState(settings, has_questions=False)
    callers = AgentCallers(declared, settings)
    app = new_app("chatlane a2a", state)
    dispatcher = JsonRpcDispatcher(
        AgentRequests(state), context_builder=_ContextBuilder(), enable_v0_3_compat=True
    )

    async def ask(name: str, request: Request) -> Response:
        request.state.caller = callers.find(request.headers, name)
        body = await read_bytes(request, settings.max_body_bytes)
        return await dispatcher.handle_requests(_again(request, body))

    async def show_card(name: str, request: Request) -> Response:
        agent = declared.agents.get(name)
        if agent is None:
            raise no_agent()
        base = settings.public_url or str(request.base_url)
        card = _card(name, agent, f"{base.rstrip('/')}/agents/{name}")
        return JSONResponse(agent_card_to_dict(card))

    app.add_api_route("/agents/{name}", ask, methods=["POST"], response_model=None)
    app.add_api_route(
        f"/agents/{{name}}{AGENT_CARD_WELL_KNOWN_PATH}", show_card, response_model=None
    )
    return app


def _again(request: Request, body: bytes) -> Request:
    """Return a request whose body was read."""
    is_read = False

    async def receive() -> Message:
        nonlocal is_read
        if is_read:
            return await request.receive()
        is_read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(request.scope, receive)


def _card(name: str, agent: DeclaredAgent, url: str) -> AgentCard:
    title = agent.title or name
    skill = AgentSkill(id="conversation", name=title, description=agent.description, tags=["chat"])
    bearer = SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="Bearer"))
    return AgentCard(
        name=title,
        description=agent.description,
        version=_VERSION,
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            for version in (PROTOCOL_VERSION_1_0, PROTOCOL_VERSION_0_3)
        ],
        capabilities=AgentCapabilities(streaming=True),
        security_schemes={_BEARER: bearer},
        security_requirements=[SecurityRequirement(schemes={_BEARER: StringList()})],
        default_input_modes=[_TEXT],
        default_output_modes=[_TEXT],
        skills=[skill],
    )
