"""Messages of a model and rows of a transcript; what a handler answers without any server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import (
    ModelAuthenticationError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelUnavailableError,
)
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from chatlane_client import AgentUnavailableError, NoReply, Reply, TurnFailedError
from chatlane_client.control import Signals
from chatlane_client.frameworks.pydantic_ai import messages_of, rows_of, turn_handler
from chatlane_schemas import Attachment, LivePiece, PieceKind, Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import CancelReason
from tests.support.turns import NOW, entry_of, turn_of

Chunks = AsyncIterator[str | dict[int, DeltaToolCall]]
Streaming = Callable[[list[ModelMessage], AgentInfo], Chunks]


def agent_of(stream: Streaming, *tools: Callable[..., str]) -> Agent[None, str]:
    return Agent(FunctionModel(stream_function=stream), tools=tools)


async def hello(_: list[ModelMessage], __: AgentInfo) -> Chunks:
    yield "Hel"
    yield "lo"


def test_rows_and_messages_say_the_same() -> None:
    spoken: list[ModelMessage] = [
        ModelResponse(
            parts=[
                ThinkingPart("Which city?", signature="abc", provider_name="anthropic"),
                TextPart("Let me look."),
                ToolCallPart("weather", {"city": "Oslo"}, "call-1"),
            ]
        ),
        ModelRequest(parts=[ToolReturnPart("weather", "rain", "call-1")]),
        ModelResponse(parts=[TextPart("It rains.")]),
    ]

    rows = rows_of(spoken)

    assert [row.role for row in rows] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    again = messages_of(entry_of(row, seq) for seq, row in enumerate(rows))
    thought, said, call = again[0].parts
    assert isinstance(thought, ThinkingPart)
    assert (
        thought.content,
        thought.signature,
        thought.provider_name,
    ) == ("Which city?", "abc", "anthropic")
    assert isinstance(said, TextPart)
    assert isinstance(call, ToolCallPart)
    assert call.args_as_dict() == {"city": "Oslo"}
    [result] = again[1].parts
    assert isinstance(result, ToolReturnPart)
    assert (result.content, result.tool_call_id, result.tool_name) == ("rain", "call-1", "weather")
    assert rows == rows_of(again)


def test_a_prompt_is_no_row_and_a_call_without_a_result_gets_one() -> None:
    rows = rows_of(
        [
            ModelRequest(parts=[UserPromptPart("hi")]),
            ModelResponse(parts=[ToolCallPart("mail", {}, "call-1")]),
        ]
    )
    assert [(row.role, row.tool_call_id) for row in rows] == [
        (Role.ASSISTANT, None),
        (Role.TOOL, "call-1"),
    ]


def test_large_results_of_tools_are_shortened() -> None:
    calls = [ToolCallPart("read", {}, f"call-{number}") for number in range(40)]
    results = [ToolReturnPart("read", "x" * 40_000, call.tool_call_id) for call in calls]
    rows = rows_of([ModelResponse(parts=calls), ModelRequest(parts=results)])
    assert len(rows) == 41
    assert sum(len(row.content or "") for row in rows) < 300_000


async def test_the_answer_of_a_model_is_streamed_and_returned_as_markdown() -> None:
    shown: list[LivePiece] = []
    reply = await turn_handler(agent_of(hello))(turn_of("hi", shown=shown))
    assert isinstance(reply, Reply)
    [part] = reply.parts
    assert not isinstance(part, str)
    assert (part.text, part.format) == ("Hello", "markdown")
    assert [piece.text for piece in shown] == ["Hel", "lo"]
    # The service makes the row of a plain answer from its part.
    assert reply.transcript == []
    assert reply.usage["requests"] == 1


async def test_the_model_gets_the_history_and_the_prompt() -> None:
    seen: list[ModelMessage] = []

    async def look(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        seen.extend(messages)
        yield "fine"

    history = (
        TranscriptEntry(seq=1, role=Role.USER, content="My name is Ann.", created_at=NOW),
        TranscriptEntry(seq=2, role=Role.ASSISTANT, content="Hello Ann.", created_at=NOW),
    )
    await turn_handler(agent_of(look))(turn_of("Who am I?", history=history))
    assert [
        part.content for message in seen for part in message.parts if hasattr(part, "content")
    ] == [
        "My name is Ann.",
        "Hello Ann.",
        "Who am I?",
    ]


async def call_then_tell(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
    if isinstance(messages[-1].parts[-1], ToolReturnPart):
        yield f"It is {messages[-1].parts[-1].content}."
    else:
        yield {0: DeltaToolCall("weather", '{"city": "Oslo"}', tool_call_id="call-1")}


def weather(city: str) -> str:
    return f"rain in {city}"


async def test_tool_calls_are_rows_and_are_shown_while_they_run() -> None:
    shown: list[LivePiece] = []
    reply = await turn_handler(agent_of(call_then_tell, weather))(turn_of("weather?", shown=shown))
    assert isinstance(reply, Reply)
    assert [(row.role, row.content) for row in reply.transcript] == [
        (Role.ASSISTANT, None),
        (Role.TOOL, "rain in Oslo"),
        (Role.ASSISTANT, "It is rain in Oslo."),
    ]
    assert [piece.kind for piece in shown if piece.kind is not PieceKind.TEXT] == [
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_RESULT,
    ]
    assert reply.usage["tool_calls"] == 1


async def test_a_tool_that_has_run_in_an_earlier_attempt_is_not_run_again() -> None:
    runs: list[str] = []

    def counted(city: str) -> str:
        runs.append(city)
        return "rain"

    counted.__name__ = "weather"
    earlier = rows_of(
        [
            ModelResponse(parts=[ToolCallPart("weather", {"city": "Oslo"}, "call-1")]),
            ModelRequest(parts=[ToolReturnPart("weather", "rain", "call-1")]),
        ]
    )
    turn = replace(turn_of("weather?"), earlier_rows=tuple(earlier))
    reply = await turn_handler(agent_of(call_then_tell, counted))(turn)
    assert isinstance(reply, Reply)
    assert runs == []
    assert [part.text for part in reply.parts if not isinstance(part, str)] == ["It is rain."]


def failing(error: Exception) -> Streaming:
    async def stream(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        if messages:
            raise error
        yield "never"

    return stream


CATEGORIES: Final[dict[int, Any]] = {
    400: ModelRequestRejectedError,
    401: ModelAuthenticationError,
    404: ModelNotFoundError,
    413: ModelContextWindowExceededError,
    429: ModelRateLimitError,
    503: ModelUnavailableError,
}


def refusal(status: int, *, retry_after: float | None = None) -> ModelHTTPError:
    return ModelHTTPError.for_category(
        CATEGORIES[status],
        status_code=status,
        model_name="some-model",
        body={"error": "secret words"},
        retry_after=retry_after,
    )


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (refusal(503), AgentUnavailableError),
        (refusal(429), AgentUnavailableError),
        (refusal(401), AgentUnavailableError),
        (refusal(404), AgentUnavailableError),
        (refusal(400), TurnFailedError),
    ],
)
async def test_a_model_that_is_away_lets_the_turn_wait_and_a_refusal_fails_it(
    error: ModelHTTPError, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised:
        await turn_handler(agent_of(failing(error)))(turn_of("hi"))
    assert "secret words" not in str(raised.value)


async def test_the_pause_that_a_provider_asks_for_is_passed_on() -> None:
    error = refusal(429, retry_after=7)
    with pytest.raises(AgentUnavailableError) as raised:
        await turn_handler(agent_of(failing(error)))(turn_of("hi"))
    assert raised.value.again_in is not None
    assert raised.value.again_in.total_seconds() == 7


async def test_what_tools_did_before_the_model_was_away_goes_to_the_next_attempt() -> None:
    async def call_then_fail(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            raise refusal(503)
        yield {0: DeltaToolCall("weather", '{"city": "Oslo"}', tool_call_id="call-1")}

    with pytest.raises(AgentUnavailableError) as raised:
        await turn_handler(agent_of(call_then_fail, weather))(turn_of("weather?"))
    assert [row.content for row in raised.value.transcript] == [None, "rain in Oslo"]


async def test_a_conversation_that_is_too_long_is_shortened() -> None:
    lengths: list[int] = []

    async def narrow(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        lengths.append(len(messages))
        if len(messages) > 10:
            raise refusal(413)
        yield "short"

    history = tuple(
        TranscriptEntry(
            seq=seq, role=(Role.USER, Role.ASSISTANT)[seq % 2], content="word", created_at=NOW
        )
        for seq in range(40)
    )
    reply = await turn_handler(agent_of(narrow))(turn_of("hi", history=history))
    assert isinstance(reply, Reply)
    assert lengths == sorted(lengths, reverse=True)
    assert len(lengths) > 1


async def test_a_stopped_turn_is_answered_with_the_text_so_far() -> None:
    begun = asyncio.Event()

    async def slow(_: list[ModelMessage], __: AgentInfo) -> Chunks:
        yield "The beginning"
        begun.set()
        await asyncio.Event().wait()

    signals = Signals()
    turn = replace(turn_of("tell me"), signals=signals)
    working = asyncio.ensure_future(signals.obeyed_by(turn_handler(agent_of(slow))(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    reply = await working
    assert isinstance(reply, Reply)
    assert [part.text for part in reply.parts if not isinstance(part, str)] == ["The beginning"]


async def test_a_worker_that_stops_hands_on_what_tools_did() -> None:
    begun = asyncio.Event()

    async def call_then_wait(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        if isinstance(messages[-1].parts[-1], ToolReturnPart):
            begun.set()
            await asyncio.Event().wait()
        yield {0: DeltaToolCall("weather", '{"city": "Oslo"}', tool_call_id="call-1")}

    signals = Signals()
    turn = replace(turn_of("weather?"), signals=signals)
    handler = turn_handler(agent_of(call_then_wait, weather))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await begun.wait()
    signals.hand_back()
    answer = await working
    assert isinstance(answer, NoReply)
    assert [row.content for row in answer.transcript] == [None, "rain in Oslo"]


async def test_a_file_that_cannot_be_fetched_leaves_the_message_answered() -> None:
    turn = turn_of("look")
    file = Attachment(url="http://127.0.0.1:9/photo.png", media_type="image/png", kind="photo")
    message = turn.messages[0].model_copy(update={"attachments": (file,)})
    reply = await turn_handler(agent_of(hello))(replace(turn, messages=(message,)))
    assert isinstance(reply, Reply)
