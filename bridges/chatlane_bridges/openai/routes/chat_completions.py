"""Chat completions: requests that have the whole conversation, and get its next message."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.responses import JSONResponse

from chatlane_bridges.answers.answer_follower import Answer
from chatlane_bridges.answers.answer_streams import AnswerStream
from chatlane_bridges.http.problems import ApiProblem, problem_of
from chatlane_bridges.openai.asks import ChatBody
from chatlane_bridges.openai.routes.callers import KnownCaller, State, read_body, whole_answer
from chatlane_schemas.live_turns import TurnOutcome

PING_SECONDS: Final = 15
SESSION_HEADER: Final = "X-Chatlane-Session"
CLIENT_GONE: Final = 499

router = APIRouter()


@router.post("/chat/completions")
async def create_completion(request: Request, caller: KnownCaller, state: State) -> Response:
    """Submit the words after the last answer of a list, and return the answer to them."""
    body = await read_body(request, state, ChatBody)
    ask = body.ask().with_headers(request.headers, state.settings.conversation_header)
    stream = await state.answer(caller, ask)
    headers = {SESSION_HEADER: str(stream.submission.session.id)}
    shape = _Shape(stream, body.model)
    if body.stream:
        with_usage = body.stream_options is not None and body.stream_options.include_usage
        events = shape.events(with_usage=with_usage)
        return EventSourceResponse(events, headers=headers, ping=PING_SECONDS)
    answer = await whole_answer(request, stream)
    if answer is None:
        return Response(status_code=CLIENT_GONE)
    return JSONResponse(shape.completion(answer), headers=headers)


class _Shape:
    """The forms of one completion."""

    def __init__(self, stream: AnswerStream, model: str) -> None:
        self._stream = stream
        self._common = {
            "id": f"chatcmpl-{stream.submission.message_id.hex}",
            "created": int(datetime.now(UTC).timestamp()),
            "model": model,
        }

    def completion(self, answer: Answer) -> dict[str, Any]:
        """Return the whole completion.

        Raises:
            ApiProblem: The turn has failed.
        """
        check_outcome(answer)
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        return {
            **self._common,
            "object": "chat.completion",
            "choices": [choice],
            "usage": _usage(answer),
        }

    async def events(self, *, with_usage: bool) -> AsyncIterator[ServerSentEvent]:
        """Yield the chunks of a streamed completion."""
        yield self._chunk({"role": "assistant", "content": ""})
        try:
            async for part in self._stream.parts():
                if isinstance(part, str):
                    yield self._chunk({"content": part})
                    continue
                check_outcome(part)
                yield self._chunk({}, "stop")
                if with_usage:
                    yield self._event(choices=[], usage=_usage(part))
        except Exception as exc:  # noqa: BLE001 - the client gets it as the last event
            yield ServerSentEvent(json.dumps(problem_of(exc).body))
        yield ServerSentEvent("[DONE]")

    def _chunk(self, delta: dict[str, str], reason: str | None = None) -> ServerSentEvent:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return self._event(choices=[choice])

    def _event(self, **fields: object) -> ServerSentEvent:
        chunk = {**self._common, "object": "chat.completion.chunk", **fields}
        return ServerSentEvent(json.dumps(chunk, ensure_ascii=False))


def check_outcome(answer: Answer) -> None:
    """Check that a turn has not failed.

    Raises:
        ApiProblem: It has.
    """
    if answer.outcome is TurnOutcome.FAILED:
        raise ApiProblem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "turn_failed",
            answer.notice or "The agent could not answer.",
        )


def _usage(answer: Answer) -> dict[str, int]:
    taken = answer.usage.get("input_tokens", 0)
    made = answer.usage.get("output_tokens", 0)
    return {"prompt_tokens": taken, "completion_tokens": made, "total_tokens": taken + made}
