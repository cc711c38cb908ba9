"""Routes for operators that are about the whole service."""

import json
from http import HTTPStatus
from typing import Annotated, Any, Final

import nats.errors
from fastapi import APIRouter, Depends
from nats.aio.client import Client

from chatlane_client import ServiceApi
from chatlane_console.console_state import ConsoleState
from chatlane_console.conversations import PATIENCE, Conversations
from chatlane_console.http.problems import ProblemError
from chatlane_console.routes.bodies import Declarations, Overview, StreamState
from chatlane_console.routes.callers import Operator, State, all_conversations
from chatlane_schemas.topology.streams import StreamName

router = APIRouter()

_API: Final = "$JS.API"
_PATIENCE_SECONDS: Final = 5.0


@router.get("/overview", summary="Look at the whole service")
async def get_overview(
    _: Operator, state: State, conversations: Annotated[Conversations, Depends(all_conversations)]
) -> Overview:
    """Return the backlog and age of each queue, and the numbers of sessions."""
    streams = [await _stream_state(state.operator_client, name) for name in StreamName]
    found = await _service_api(state).overview()
    return Overview(
        at=found.at,
        sessions=await conversations.sessions.count(),
        streams=[stream for stream in streams if stream is not None],
        routers=found.routers,
        partitions=found.partitions,
        has_lags=found.has_lags,
        agents=found.agents,
        accounts=found.accounts,
        letters=found.letters,
        outbox_oldest_at=found.outbox_oldest_at,
        is_complete=found.is_complete,
    )


@router.get("/declarations", summary="Look at the declared platforms and agents")
async def get_declarations(_: Operator, state: State) -> Declarations:
    """Return the declarations as a router has read them, without secrets."""
    found = await _service_api(state).catalog()
    return Declarations(
        at=found.at, platforms=found.platforms, agents=found.agents, resets=found.resets
    )


def _service_api(state: ConsoleState) -> ServiceApi:
    return ServiceApi(
        state.operator_client,
        principal=state.operator_principal,
        is_operator=True,
        patience=PATIENCE,
    )


async def _stream_state(client: Client, name: StreamName) -> StreamState | None:
    info = await _ask(client, f"STREAM.INFO.{name}", {})
    if info is None:
        return None
    found = info["state"]
    has_messages = found["messages"] > 0
    return StreamState(
        name=name,
        messages=found["messages"],
        size_bytes=found["bytes"],
        last_sequence=found["last_seq"],
        oldest_at=found["first_ts"] if has_messages else None,
        newest_at=found["last_ts"] if has_messages else None,
        consumers=found["consumer_count"],
    )


async def _ask(client: Client, verb: str, request: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer of JetStream; None if there is no such stream.

    Raises:
        ProblemError: It did not answer.
    """
    try:
        message = await client.request(
            f"{_API}.{verb}", json.dumps(request).encode(), timeout=_PATIENCE_SECONDS
        )
    except (nats.errors.Error, TimeoutError):
        raise _unavailable() from None
    answer: dict[str, Any] = json.loads(message.data)
    return None if "error" in answer else answer


def _unavailable() -> ProblemError:
    return ProblemError(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "unavailable",
        "NATS did not answer",
        headers={"Retry-After": "2"},
    )
