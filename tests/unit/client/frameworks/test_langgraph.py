"""Messages of LangChain and rows of a transcript; what a handler around a graph answers without any server."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from chatlane_client import AgentUnavailableError, Reply, TurnFailedError
from chatlane_client.control import Signals
from chatlane_client.frameworks.langgraph import messages_of, rows_of, turn_handler
from chatlane_schemas import LivePiece, PieceKind, Role, TranscriptRow
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import CancelReason
from tests.support.turns import NOW, entry_of, turn_of

CALL = AIMessage(
    content="", tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "call-1"}]
)


@tool
def weather(city: str) -> str:
    """Return the weather."""
    return f"rain in {city}"


def graph_of(
    respond: Callable[[Sequence[BaseMessage]], Any],
    *tools: BaseTool,
    saver: InMemorySaver | None = None,
) -> CompiledStateGraph[Any, Any, Any, Any]:
    """Return a graph of a model and its tools, as agents have it."""

    async def model(state: MessagesState) -> dict[str, Any]:
        answer = respond(state["messages"])
        return {"messages": [await answer if asyncio.iscoroutine(answer) else answer]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([*tools]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile(checkpointer=saver)


def fake(*answers: AIMessage) -> Callable[[Sequence[BaseMessage]], Any]:
    """Return what asks a fake model of LangChain."""
    model = FakeMessagesListChatModel(responses=[*answers])
    return lambda messages: model.ainvoke([*messages])


def texts(answer: object) -> list[str]:
    assert isinstance(answer, Reply)
    return [part.text or "" for part in answer.parts if not isinstance(part, str)]


def test_rows_and_messages_say_the_same() -> None:
    thought = {"type": "thinking", "thinking": "Which city?", "signature": "abc"}
    spoken = [
        AIMessage(
            content=[thought, {"type": "text", "text": "Let me look."}], tool_calls=CALL.tool_calls
        ),
        ToolMessage("rain", tool_call_id="call-1", name="weather"),
        AIMessage("It rains."),
    ]

    rows = rows_of(spoken)

    assert [row.role for row in rows] == [Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert rows[0].reasoning is not None
    assert rows[0].reasoning.text == "Which city?"
    again = messages_of(entry_of(row, seq) for seq, row in enumerate(rows))
    assert [(it.type, it.content) for it in again] == [(it.type, it.content) for it in spoken]
    assert rows == rows_of(again)


async def test_the_model_gets_the_history_and_the_answer_is_streamed() -> None:
    seen: list[BaseMessage] = []
    shown: list[LivePiece] = []
    # This one streams word by word.
    model = GenericFakeChatModel(messages=iter([AIMessage("Hello again")]))

    async def look(messages: Sequence[BaseMessage]) -> BaseMessage:
        seen.extend(messages)
        return await model.ainvoke([*messages])

    history = (
        TranscriptEntry(seq=1, role=Role.USER, content="My name is Ann.", created_at=NOW),
        TranscriptEntry(seq=2, role=Role.ASSISTANT, content="Hello Ann.", created_at=NOW),
    )
    turn = replace(turn_of("Who am I?", history=history, shown=shown), prompt_context="A chat.")
    reply = await turn_handler(graph_of(look))(turn)
    assert texts(reply) == ["Hello again"]
    assert [message.content for message in seen] == [
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
    graph = graph_of(fake(CALL, AIMessage("It rains.")), weather)
    reply = await turn_handler(graph)(turn_of("weather?", shown=shown))
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
    assert reply.usage == {"requests": 2, "tool_calls": 1}


async def test_an_interrupt_is_answered_and_the_graph_goes_on() -> None:
    @tool
    def book(room: str) -> str:
        """Book a room."""
        return f"{interrupt(f'Book {room}?')}: {room}"

    async def answered(_: object, value: str) -> str:
        return f"yes to {value}"

    call = AIMessage("", tool_calls=[{"name": "book", "args": {"room": "north"}, "id": "call-1"}])
    handler = turn_handler(graph_of(fake(call, AIMessage("done")), book), answer_interrupt=answered)
    reply = await handler(turn_of("book"))
    assert texts(reply) == ["done"]
    assert isinstance(reply, Reply)
    assert reply.transcript[1].content == "yes to Book north?: north"


async def test_messages_that_arrive_meanwhile_reach_the_model_after_its_tools() -> None:
    seen: list[list[str]] = []

    def respond(messages: Sequence[BaseMessage]) -> AIMessage:
        seen.append([str(it.content) for it in messages if isinstance(it, HumanMessage)])
        return CALL if len(seen) == 1 else AIMessage(f"answer {len(seen)}")

    turn = turn_of("weather?")
    news = [turn.messages[0].model_copy(update={"seq": 2, "text": "in Rome"})]

    async def take_in() -> tuple[Any, ...]:
        turn.signals.has_news.clear()
        return tuple(news)

    turn = replace(turn, take_in=take_in)
    turn.signals.has_news.set()
    assert texts(await turn_handler(graph_of(respond, weather))(turn)) == ["answer 2"]
    assert seen == [["weather?"], ["weather?", "in Rome"]]


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
    answers = iter([CALL])

    def respond(_: Sequence[BaseMessage]) -> AIMessage:
        for answer in answers:
            return answer
        raise StatusError(status)

    with pytest.raises(kind) as raised:
        await turn_handler(graph_of(respond, weather))(turn_of("weather?"))
    assert "secret words" not in str(raised.value)
    assert isinstance(raised.value, AgentUnavailableError | TurnFailedError)
    assert [row.content for row in raised.value.transcript] == [None, "rain in Oslo"]


async def test_a_tool_that_has_run_in_an_earlier_attempt_is_not_run_again() -> None:
    earlier = rows_of([CALL, ToolMessage("rain", tool_call_id="call-1", name="weather")])

    def respond(messages: Sequence[BaseMessage]) -> AIMessage:
        return AIMessage(f"It is {messages[-1].content}.")

    turn = replace(turn_of("weather?"), earlier_rows=tuple(earlier))
    assert texts(await turn_handler(graph_of(respond, weather))(turn)) == ["It is rain."]


async def test_with_a_checkpointer_another_attempt_goes_on_after_the_last_step() -> None:
    runs: list[str] = []

    @tool("weather")
    def counted(city: str) -> str:
        """Return the weather."""
        runs.append(city)
        return "rain"

    def failing() -> Iterator[AIMessage]:
        yield CALL
        raise StatusError(503)

    saver, first = InMemorySaver(), failing()
    turn = turn_of("weather?")
    with pytest.raises(AgentUnavailableError) as raised:
        await turn_handler(graph_of(lambda _: next(first), counted, saver=saver))(turn)
    again = replace(turn, attempt=2, earlier_rows=tuple(raised.value.transcript))
    handler = turn_handler(graph_of(lambda _: AIMessage("It rains."), counted, saver=saver))
    reply = await handler(again)
    assert texts(reply) == ["It rains."]
    assert runs == ["Oslo"]
    assert isinstance(reply, Reply)
    # The rows of the first attempt are stored already.
    assert reply.transcript == []


async def test_a_stopped_turn_is_answered_with_the_text_so_far() -> None:
    begun = asyncio.Event()
    model = GenericFakeChatModel(messages=iter([AIMessage("The beginning")]))

    async def slow(messages: Sequence[BaseMessage]) -> AIMessage:
        await model.ainvoke([*messages])
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    signals = Signals()
    turn = replace(turn_of("tell me"), signals=signals)
    working = asyncio.ensure_future(signals.obeyed_by(turn_handler(graph_of(slow))(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    assert texts(await working) == ["The beginning"]


async def test_a_turn_that_is_stopped_while_a_tool_runs_has_its_text_once() -> None:
    begun, signals = asyncio.Event(), Signals()

    @tool
    async def look() -> str:
        """Look at the sky."""
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    call = AIMessage("Let me look.", tool_calls=[{"name": "look", "args": {}, "id": "call-1"}])
    shown: list[LivePiece] = []
    turn = replace(turn_of("weather?", shown=shown), signals=signals)
    handler = turn_handler(graph_of(fake(call), look))
    working = asyncio.ensure_future(signals.obeyed_by(handler(turn)))
    await begun.wait()
    signals.tell(CancelReason.STOPPED, steer=False)
    answer = await working
    assert isinstance(answer, Reply)
    spoken = [row.content for row in answer.transcript if row.role is Role.ASSISTANT]
    assert (texts(answer), spoken) == (["Let me look."], ["Let me look."])
    assert "".join(it.text or "" for it in shown if it.kind is PieceKind.TEXT) == "Let me look."


def test_a_call_without_a_result_gets_one() -> None:
    assert [(row.role, row.tool_call_id) for row in rows_of([CALL])] == [
        (Role.ASSISTANT, None),
        (Role.TOOL, "call-1"),
    ]


def test_a_row_that_says_nothing_is_left_out() -> None:
    assert messages_of([TranscriptRow(role=Role.ASSISTANT, content=None)]) == []
