"""Items of a response and rows of a transcript; what a handler around an agent of the OpenAI Agents SDK answers without any server."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from agents import Agent, Model, Usage, function_tool
from agents.items import TResponseStreamEvent
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseTextDeltaEvent

from chatlane_client import AgentUnavailableError, NoReply, Reply, TurnFailedError
from chatlane_client.control import Signals
from chatlane_client.frameworks.openai_agents import items_of, rows_of, turn_handler
from chatlane_schemas import LivePiece, PieceKind, Role
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import CancelReason
from tests.support.turns import NOW, entry_of, turn_of

CALL = function_call("weather", {"city": "Oslo"}, call_id="call-1")


@function_tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"rain in {city}"


def agent_of(model: Model) -> Agent[None]:
    return Agent("Desk", model=model, tools=[weather])


def texts(answer: object) -> list[str]:
    assert isinstance(answer, Reply)
    return [part.text or "" for part in answer.parts if not isinstance(part, str)]


def test_rows_and_items_say_the_same() -> None:
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Which city?"}],
        "encrypted_content": "abc",
    }
    call = {
        "type": "function_call",
        "call_id": "call-1",
        "name": "weather",
        "arguments": '{"city":"Oslo"}',
    }
    spoken: list[dict[str, Any]] = [
        thought,
        {"role": "assistant", "content": "Let me look."},
        call,
        {"type": "function_call_output", "call_id": "call-1", "output": "rain"},
        {"role": "assistant", "content": "It rains."},
    ]

    rows = rows_of(spoken)

    assert [row.role for row in rows] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert rows[0].reasoning is not None
    assert rows[0].reasoning.text == "Which city?"
    assert rows[1].tool_name == "weather"
    assert items_of(entry_of(row, seq) for seq, row in enumerate(rows)) == spoken


async def test_the_model_gets_the_history_and_the_answer_is_streamed() -> None:
    shown: list[LivePiece] = []
    model = ScriptedModel([[assistant_message("Hello again")]], default_usage=Usage(requests=1))
    history = (
        TranscriptEntry(seq=1, role=Role.USER, content="My name is Ann.", created_at=NOW),
        TranscriptEntry(seq=2, role=Role.ASSISTANT, content="Hello Ann.", created_at=NOW),
    )
    turn = replace(turn_of("Who am I?", history=history, shown=shown), prompt_context="A chat.")
    reply = await turn_handler(agent_of(model))(turn)
    assert texts(reply) == ["Hello again"]
    assert model.last_call is not None
    assert [item["content"] for item in model.last_call.input] == [
        "A chat.",
        "My name is Ann.",
        "Hello Ann.",
        "Who am I?",
    ]
    assert "".join(piece.text or "" for piece in shown) == "Hello again"
    assert isinstance(reply, Reply)
    assert reply.transcript == []


async def test_tool_calls_are_rows_and_are_shown_while_they_run() -> None:
    shown: list[LivePiece] = []
    usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
    model = ScriptedModel([[CALL], [assistant_message("It rains.")]], default_usage=usage)
    reply = await turn_handler(agent_of(model))(turn_of("weather?", shown=shown))
    assert isinstance(reply, Reply)
    assert [(row.role, row.content) for row in reply.transcript] == [
        (Role.ASSISTANT, None),
        (Role.TOOL, "rain in Oslo"),
        (Role.ASSISTANT, "It rains."),
    ]
    assert [piece.kind for piece in shown if piece.kind is not PieceKind.TEXT] == [
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_CALL,
        PieceKind.TOOL_RESULT,
    ]
    assert reply.usage["requests"] == 2
    assert reply.usage["tool_calls"] == 1
    assert reply.usage["input_tokens"] == 20


async def test_messages_that_arrive_meanwhile_enter_the_next_request() -> None:
    model = ScriptedModel([[CALL], [assistant_message("It rains.")]])
    turn = turn_of("weather?")
    news = [turn.messages[0].model_copy(update={"seq": 2, "text": "in Rome"})]

    async def take_in() -> tuple[Any, ...]:
        turn.signals.has_news.clear()
        return tuple(news)

    turn = replace(turn, take_in=take_in)
    turn.signals.has_news.set()
    await turn_handler(agent_of(model))(turn)
    assert model.last_call is not None
    said = [item["content"] for item in model.last_call.input if item.get("role") == "user"]
    assert said == ["weather?", "in Rome"]


class StatusError(Exception):
    def __init__(self, status_code: int) -> None:
        self.status_code = status_code
        super().__init__("secret words")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(503, AgentUnavailableError), (401, AgentUnavailableError), (400, TurnFailedError)],
)
async def test_a_model_that_is_away_lets_the_turn_wait_and_a_refusal_fails_it(
    status: int, kind: type[Exception]
) -> None:
    model = ScriptedModel([[CALL], StatusError(status)])
    with pytest.raises(kind) as raised:
        await turn_handler(agent_of(model))(turn_of("weather?"))
    assert "secret words" not in str(raised.value)
    assert isinstance(raised.value, AgentUnavailableError | TurnFailedError)
    assert [row.content for row in raised.value.transcript] == [None, "rain in Oslo"]


async def test_a_tool_that_has_run_in_an_earlier_attempt_is_not_run_again() -> None:
    earlier = rows_of(
        [
            CALL.model_dump(),
            {"type": "function_call_output", "call_id": "call-1", "output": "rain"},
        ]
    )
    model = ScriptedModel([[assistant_message("It rains.")]])
    turn = replace(turn_of("weather?"), earlier_rows=tuple(earlier))
    assert texts(await turn_handler(agent_of(model))(turn)) == ["It rains."]
    assert model.last_call is not None
    assert [item.get("type") for item in model.last_call.input] == [
        None,
        "function_call",
        "function_call_output",
    ]


def delta(text: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(
        type="response.output_text.delta",
        content_index=0,
        delta=text,
        item_id="message-1",
        logprobs=[],
        output_index=0,
        sequence_number=1,
    )


async def test_a_stopped_turn_is_answered_with_the_text_so_far() -> None:
    begun = asyncio.Event()

    async def slow(_: ModelCall) -> AsyncIterator[TResponseStreamEvent]:
        yield delta("The beginning")
        yield delta(" of it")
        begun.set()
        await asyncio.Event().wait()

    signals = Signals()
    turn = replace(turn_of("tell me"), signals=signals)
    handler = turn_handler(agent_of(ScriptedModel([ModelStep.stream(slow)])))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    [text] = texts(await working)
    assert text.startswith("The beginning")


async def test_a_turn_that_is_stopped_while_a_tool_runs_has_its_text_once() -> None:
    begun, signals = asyncio.Event(), Signals()

    @function_tool
    async def look() -> str:
        """Look at the sky."""
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    model = ScriptedModel(
        [[assistant_message("Let me look."), function_call("look", {}, call_id="call-1")]]
    )
    handler = turn_handler(Agent("Desk", model=model, tools=[look]))
    turn = replace(turn_of("weather?"), signals=signals)
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    answer = await working
    assert isinstance(answer, Reply)
    said = [row.content for row in answer.transcript if row.role is Role.ASSISTANT]
    assert (texts(answer), said) == (["Let me look."], ["Let me look."])


async def test_a_worker_that_stops_hands_on_what_tools_did() -> None:
    begun = asyncio.Event()

    async def slow(_: ModelCall) -> AsyncIterator[TResponseStreamEvent]:
        begun.set()
        await asyncio.Event().wait()
        yield delta("never")

    signals = Signals()
    turn = replace(turn_of("weather?"), signals=signals)
    handler = turn_handler(agent_of(ScriptedModel([[CALL], ModelStep.stream(slow)])))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await begun.wait()
    signals.hand_back()
    answer = await working
    assert isinstance(answer, NoReply)
    assert [row.content for row in answer.transcript] == [None, "rain in Oslo"]


async def test_agents_that_hand_off_in_a_circle_keep_their_tools() -> None:
    called: list[str] = []

    @function_tool
    def look(city: str) -> str:
        """Look at the sky."""
        called.append(city)
        return "rain"

    look_at = function_call("look", {"city": "Oslo"}, call_id="call-2")
    model = ScriptedModel(
        [
            [function_call("transfer_to_sky", {}, call_id="call-1")],
            [look_at],
            [assistant_message("It rains.")],
        ]
    )
    desk = Agent[Any]("Desk", model=model)
    sky = Agent[Any]("Sky", model=model, tools=[look], handoffs=[desk])
    desk.handoffs = [sky]
    assert texts(await turn_handler(desk)(turn_of("weather?"))) == ["It rains."]
    assert called == ["Oslo"]
    # The agents of the caller stay as they were.
    assert desk.handoffs == [sky]
    assert sky.tools == [look]
