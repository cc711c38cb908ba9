"""Responses: requests that name what they follow, and can be read again by their id."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import JSONResponse

from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.http.problems import ApiProblem, problem_of
from chatlane_bridges.openai.asks import (
    ResponseBody,
    conversation_id,
    message_of,
    response_id,
    session_of,
)
from chatlane_bridges.openai.routes.callers import KnownCaller, State, read_body, whole_answer
from chatlane_bridges.openai.routes.chat_completions import (
    CLIENT_GONE,
    PING_SECONDS,
    SESSION_HEADER,
    check_outcome,
)
from chatlane_bridges.openai.settings import ORIGIN
from chatlane_client import Submission
from chatlane_client.api.submission import answered
from chatlane_schemas.live_turns import TurnOutcome
from chatlane_schemas.session_api.sessions import SessionView

router = APIRouter()

_UNKNOWN_MODEL: Final = "unknown"


class NewConversation(BaseModel):
    """Body of a request for a conversation."""

    metadata: dict[str, str] | None = None
    items: list[dict[str, Any]] | None = None


@router.post("/responses")
async def create_response(request: Request, caller: KnownCaller, state: State) -> Response:
    """Submit the words of an input, and return the response to them."""
    body = await read_body(request, state, ResponseBody)
    ask = body.ask().with_headers(request.headers, state.settings.conversation_header)
    stream = await state.answer(caller, ask)
    headers = {SESSION_HEADER: str(stream.submission.session.id)}
    shape = _Shape(stream.submission, body.model, body.previous_response_id)
    if body.stream:
        return EventSourceResponse(shape.events(stream.parts()), headers=headers, ping=PING_SECONDS)
    if body.background:
        stream.leave()
        return JSONResponse(shape.response("in_progress") | {"background": True}, headers=headers)
    answer = await whole_answer(request, stream)
    if answer is None:
        return Response(status_code=CLIENT_GONE)
    check_outcome(answer)
    return JSONResponse(shape.finished(answer), headers=headers)


@router.get("/responses/{found}")
async def get_response(found: str, caller: KnownCaller, state: State) -> Response:
    """Return a response, as far as it is there."""
    session_id, message_id = message_of(found)
    service = state.service_of(caller)
    session = await service.sessions.get(session_id)
    submission = Submission(session, message_id)
    rows = await service.rows_since(submission, 0)
    shape = _Shape(submission, _model_of(session))
    ended = answered(submission, rows, {}, is_busy=session.is_busy)
    if ended is None:
        is_known = session.waiting is not None or any(row.message_id == message_id for row in rows)
        if not is_known and not session.is_busy:
            raise _no_response()
        return JSONResponse(shape.response("in_progress"))
    answer = Answer(text=ended.answer or "", outcome=ended.outcome or TurnOutcome.OK)
    return JSONResponse(shape.finished(answer))


@router.post("/responses/{found}/cancel")
async def cancel_response(found: str, caller: KnownCaller, state: State) -> Response:
    """Stop the turn of a response, and return the response."""
    session_id, message_id = message_of(found)
    service = state.service_of(caller)
    session = await service.sessions.get(session_id)
    rows = await service.rows_since(Submission(session, message_id), 0)
    turn_id = next((row.turn_id for row in rows if row.message_id == message_id), None)
    if turn_id is not None:
        await service.sessions.cancel_turn(turn_id)
    elif session.waiting is not None and not session.is_busy:
        await service.sessions.stop(session_id)
    return await get_response(found, caller, state)


@router.post("/conversations")
async def create_conversation(request: Request, caller: KnownCaller, state: State) -> Response:
    """Open a session of the first model."""
    body = await read_body(request, state, NewConversation)
    if body.items:
        raise ApiProblem(
            HTTPStatus.BAD_REQUEST, "unsupported", "A conversation begins empty.", param="items"
        )
    metadata = body.metadata or {}
    model_id = metadata.get("model") or next(iter(caller.models))
    model = caller.model(model_id)
    session = await state.service_of(caller).sessions.create(
        origin=ORIGIN, profile=model.profile, model=model.model
    )
    return JSONResponse(_conversation(session, metadata))


@router.get("/conversations/{found}")
async def get_conversation(found: str, caller: KnownCaller, state: State) -> Response:
    """Return a conversation."""
    session = await state.service_of(caller).sessions.get(session_of(found))
    return JSONResponse(_conversation(session, {}))


@router.delete("/conversations/{found}")
async def delete_conversation(found: str, caller: KnownCaller, state: State) -> Response:
    """Delete a session with its transcript."""
    session_id = session_of(found)
    await state.service_of(caller).sessions.remove(session_id)
    deleted = {
        "id": conversation_id(session_id),
        "object": "conversation.deleted",
        "deleted": True,
    }
    return JSONResponse(deleted)


def _conversation(session: SessionView, metadata: dict[str, str]) -> dict[str, Any]:
    return {
        "id": conversation_id(session.id),
        "object": "conversation",
        "created_at": int(session.started_at.timestamp()),
        "metadata": metadata,
    }


def _model_of(session: SessionView) -> str:
    return session.model or session.agent


def _no_response() -> ApiProblem:
    return ApiProblem(HTTPStatus.NOT_FOUND, "not_found", "There is no such response.")


class _Shape:
    """The forms of one response."""

    def __init__(self, submission: Submission, model: str, previous: str | None = None) -> None:
        session_id, message_id = submission.session.id, submission.message_id
        self._item_id = f"msg_{message_id.hex}"
        self._sequence = 0
        self._common = {
            "id": response_id(session_id, message_id),
            "object": "response",
            "created_at": int(datetime.now(UTC).timestamp()),
            "model": model,
            "conversation": {"id": conversation_id(session_id)},
            "previous_response_id": previous,
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "instructions": None,
            "metadata": {},
            "temperature": None,
            "top_p": None,
            "error": None,
            "incomplete_details": None,
        }

    def response(
        self,
        status: str,
        output: tuple[dict[str, Any], ...] = (),
        usage: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the response."""
        return {**self._common, "status": status, "output": list(output), "usage": usage}

    def finished(self, answer: Answer) -> dict[str, Any]:
        """Return the response to a message whose turn is over."""
        output = (self._item(answer.text),) if answer.text else ()
        match answer.outcome:
            case TurnOutcome.CANCELLED:
                return self.response("cancelled", output, _usage(answer))
            case TurnOutcome.FAILED:
                error = {
                    "code": "server_error",
                    "message": answer.notice or "The agent could not answer.",
                }
                return self.response("failed", output, _usage(answer)) | {"error": error}
            case _:
                return self.response("completed", output, _usage(answer))

    async def events(self, parts: AsyncIterator[str | Answer]) -> AsyncIterator[ServerSentEvent]:
        """Yield the events of a streamed response."""
        yield self._event("response.created", response=self.response("in_progress"))
        yield self._event("response.in_progress", response=self.response("in_progress"))
        at = {"output_index": 0, "content_index": 0, "item_id": self._item_id}
        has_item = False
        try:
            async for part in parts:
                text = part if isinstance(part, str) else part.text
                if text and not has_item:
                    has_item = True
                    begun = {**self._item(""), "status": "in_progress", "content": []}
                    yield self._event("response.output_item.added", output_index=0, item=begun)
                    yield self._event("response.content_part.added", **at, part=_text(""))
                if isinstance(part, str):
                    yield self._event("response.output_text.delta", **at, delta=part, logprobs=[])
                    continue
                if has_item:
                    yield self._event(
                        "response.output_text.done", **at, text=part.text, logprobs=[]
                    )
                    yield self._event("response.content_part.done", **at, part=_text(part.text))
                    yield self._event(
                        "response.output_item.done", output_index=0, item=self._item(part.text)
                    )
                finished = self.finished(part)
                kind = "failed" if part.outcome is TurnOutcome.FAILED else "completed"
                yield self._event(f"response.{kind}", response=finished)
        except Exception as exc:  # noqa: BLE001 - the client gets it as the last event
            error = problem_of(exc).body["error"]
            yield self._event(
                "error", code=error["code"], message=error["message"], param=error["param"]
            )

    def _item(self, text: str) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [_text(text)],
        }

    def _event(self, kind: str, **fields: object) -> ServerSentEvent:
        event = {"type": kind, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return ServerSentEvent(json.dumps(event, ensure_ascii=False), event=kind)


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(answer: Answer) -> dict[str, Any] | None:
    if not answer.usage:
        return None
    taken = answer.usage.get("input_tokens", 0)
    made = answer.usage.get("output_tokens", 0)
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + made,
    }
