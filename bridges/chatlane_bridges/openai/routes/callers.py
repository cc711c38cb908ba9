"""The caller of a request, its body, and its answer if the client is still there."""

import asyncio
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from pydantic import BaseModel

from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_streams import AnswerStream
from chatlane_bridges.http.application import read_bytes
from chatlane_bridges.openai.bridge_state import EndpointState
from chatlane_bridges.openai.keys import Caller

BodyT = TypeVar("BodyT", bound=BaseModel)


def state_of(request: Request) -> EndpointState:
    """Return the state of the process."""
    state = request.app.state.bridge
    assert isinstance(state, EndpointState)  # noqa: S101 - `create_app` has set it
    return state


State = Annotated[EndpointState, Depends(state_of)]


def get_caller(request: Request, state: State) -> Caller:
    """Return the caller of a request.

    Raises:
        ApiProblem: The token is not known, or no person is named.
    """
    return state.keys.caller(request.headers)


KnownCaller = Annotated[Caller, Depends(get_caller)]


async def read_body(request: Request, state: EndpointState, model: type[BodyT]) -> BodyT:
    """Return the body of a request.

    Raises:
        ApiProblem: It is too large, or comes too slowly.
        ValidationError: It is not what the route takes.
    """
    body = await read_bytes(request, state.settings.max_body_bytes)
    return model.model_validate_json(body)


async def whole_answer(request: Request, stream: AnswerStream) -> Answer | None:
    """Return a whole answer; None if the client goes away before."""
    answering = asyncio.create_task(stream.whole())
    leaving = asyncio.create_task(_until_gone(request))
    try:
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        answering.cancel()
        leaving.cancel()
        stream.leave()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
