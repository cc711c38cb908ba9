"""Tools of the front end: an agent calls them, and the front end brings the results."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import agents
import pydantic_ai
import pytest
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from claude_agent_sdk import ClaudeAgentOptions
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from nats.aio.client import Client
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from chatlane_client import (
    FrontEndCallError,
    FrontEndTools,
    Handler,
    SessionApi,
    Turn,
    open_connection,
)
from chatlane_client.frameworks import claude, langgraph, openai_agents
from chatlane_client.frameworks import pydantic_ai as pydantic_ai_turns
from chatlane_schemas.content.front_end import FrontEnd, FrontEndTool
from chatlane_schemas.questions import OpenQuestionView
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, working
from tests.support.eventually import eventually
from tests.support.fake_claude import FakeClaude, Frames, assistant, result, tool_result

pytestmark = pytest.mark.integration

Chunks = AsyncIterator[str | dict[int, DeltaToolCall]]

FRONT_END: Final = FrontEnd(
    tools=(
        FrontEndTool(
            name="set_colour",
            description="Set the colour.",
            parameters='{"type": "object", "properties": {"colour": {"type": "string"}}}',
        ),
    ),
    state='{"colour": "white", "size": 1}',
)
BLUE: Final = '{"colour": "blue"}'
# The request to the model after the first result.
FAILING: Final = 2
COLOURS: Final = ("blue", "red")


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url, retry_pause=timedelta(seconds=0.2)),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


class Page:
    """A front end with one session."""

    def __init__(self, client: Client) -> None:
        self._api = SessionApi(client, principal=PRINCIPAL)
        self.calls: list[str] = []
        self.states: list[dict[str, Any]] = []

    async def answer_to(self, text: str, calls: int) -> str | None:
        """Submit a message, run the calls of its turn, and return the answer."""
        session = await self._api.create()
        submitting = self._api.submit(session.id, text, front_end=FRONT_END, wait=True)
        answering = asyncio.create_task(submitting)
        for _ in range(calls):
            question = await eventually(lambda: self._next(session.id))
            assert question is not None
            assert question.front_end_call is not None
            if question.front_end_call.is_state:
                self.states.append(json.loads(question.front_end_call.arguments))
                await self._api.reply(session.id, question.question_id, "")
                continue
            self.calls.append(question.front_end_call.arguments)
            result = f"run {len(self.calls)}"
            await self._api.reply(session.id, question.question_id, result)
        return (await answering).answer

    async def _next(self, session_id: UUID) -> OpenQuestionView | None:
        assert await self._api.question(session_id, calls=True) is None
        return await self._api.question(session_id, front_end_calls=True)


async def call_both(messages: list[ModelMessage], info: AgentInfo) -> Chunks:
    results = [part for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    if results:
        yield " ".join(str(part.content) for part in results)
        return
    [tool] = info.function_tools
    yield {
        place: DeltaToolCall(tool.name, f'{{"colour": "{colour}"}}', tool_call_id=colour)
        for place, colour in enumerate(COLOURS)
    }


def pydantic_ai_handler() -> Handler:
    agent = pydantic_ai.Agent(FunctionModel(stream_function=call_both))
    return pydantic_ai_turns.turn_handler(agent, has_front_end_tools=True)


def openai_handler() -> Handler:
    def respond(call: ModelCall) -> ModelStep:
        results = [it["output"] for it in call.input if it.get("type") == "function_call_output"]
        if results:
            return ModelStep([assistant_message(" ".join(results))])
        [tool] = call.tools
        calls = [function_call(tool.name, {"colour": it}, call_id=it) for it in COLOURS]
        return ModelStep(calls)

    model = ScriptedModel([ModelStep.respond(respond) for _ in range(4)])
    return openai_agents.turn_handler(agents.Agent("Desk", model=model), has_front_end_tools=True)


def graph_of(turn: Turn, respond: Callable[[Sequence[BaseMessage]], AIMessage]) -> langgraph.Graph:
    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [respond(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode(langgraph.front_end_tools(turn)))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


def langgraph_handler() -> Handler:
    def respond(messages: Sequence[BaseMessage]) -> AIMessage:
        results = [str(it.content) for it in messages if isinstance(it, ToolMessage)]
        if results:
            return AIMessage(" ".join(results))
        calls = [{"name": "set_colour", "args": {"colour": it}, "id": it} for it in COLOURS]
        return AIMessage("", tool_calls=calls)

    return langgraph.turn_handler(lambda turn: graph_of(turn, respond))


def claude_call(colour: str, number: int) -> dict[str, Any]:
    name = "mcp__front_end__set_colour"
    return {"type": "tool_use", "id": f"{number}", "name": name, "input": {"colour": colour}}


def claude_handler() -> Handler:
    async def act(fake: FakeClaude) -> Frames:
        name = "mcp__front_end__set_colour"
        allowed = await fake.request("can_use_tool", tool_name=name, input={}, tool_use_id="0")
        assert allowed["behavior"] == "allow"
        yield assistant(*(claude_call(it, place) for place, it in enumerate(COLOURS)))
        results = [
            await fake.call_tool("front_end", "set_colour", {"colour": it}) for it in COLOURS
        ]
        for place, text in enumerate(results):
            yield tool_result(f"{place}", text)
        yield result(" ".join(results))

    return claude.turn_handler(
        ClaudeAgentOptions(),
        transport_of=lambda options: FakeClaude(act, options),
        has_front_end_tools=True,
    )


@pytest.mark.parametrize(
    "handler_of", [pydantic_ai_handler, openai_handler, langgraph_handler, claude_handler]
)
async def test_a_model_calls_the_tools_of_the_front_end(
    client: Client, handler_of: Callable[[], Handler]
) -> None:
    page = Page(client)
    async with working(client, handler_of()):
        assert await page.answer_to("paint", calls=2) == "run 1 run 2"
    assert page.calls == ['{"colour": "blue"}', '{"colour": "red"}']


def pydantic_ai_handler_that_fails() -> Handler:
    requests = 0

    async def respond(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        nonlocal requests
        requests += 1
        if requests == FAILING:
            raise RuntimeError
        parts = (part for message in messages for part in message.parts)
        results = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
        if len(results) == 2:
            yield " ".join(results)
            return
        yield {0: DeltaToolCall("set_colour", BLUE, tool_call_id=f"call-{requests}")}

    agent = pydantic_ai.Agent(FunctionModel(stream_function=respond))
    return pydantic_ai_turns.turn_handler(agent, has_front_end_tools=True)


def openai_handler_that_fails() -> Handler:
    requests = 0

    def respond(call: ModelCall) -> ModelStep:
        nonlocal requests
        requests += 1
        if requests == FAILING:
            raise RuntimeError
        results = [it["output"] for it in call.input if it.get("type") == "function_call_output"]
        if len(results) == 2:
            return ModelStep([assistant_message(" ".join(results))])
        arguments = {"colour": "blue"}
        return ModelStep([function_call("set_colour", arguments, call_id=f"call-{requests}")])

    model = ScriptedModel([ModelStep.respond(respond) for _ in range(9)])
    return openai_agents.turn_handler(agents.Agent("Desk", model=model), has_front_end_tools=True)


def langgraph_handler_that_fails() -> Handler:
    requests = 0

    def respond(messages: Sequence[BaseMessage]) -> AIMessage:
        nonlocal requests
        requests += 1
        if requests == FAILING:
            raise RuntimeError
        results = [str(it.content) for it in messages if isinstance(it, ToolMessage)]
        if len(results) == 2:
            return AIMessage(" ".join(results))
        call = {"name": "set_colour", "args": {"colour": "blue"}, "id": f"call-{requests}"}
        return AIMessage("", tool_calls=[call])

    return langgraph.turn_handler(lambda turn: graph_of(turn, respond))


def claude_handler_that_fails() -> Handler:
    attempts = 0

    async def act(fake: FakeClaude) -> Frames:
        nonlocal attempts
        attempts += 1
        results: list[str] = []
        for number in range(attempts):
            yield assistant(claude_call("blue", number))
            results.append(await fake.call_tool("front_end", "set_colour", {"colour": "blue"}))
            yield tool_result(f"{number}", results[-1])
        if attempts == 1:
            # The CLI dies.
            await fake.end()
            return
        yield result(" ".join(results))

    return claude.turn_handler(
        transport_of=lambda options: FakeClaude(act, options), has_front_end_tools=True
    )


@pytest.mark.parametrize(
    "handler_of",
    [
        pydantic_ai_handler_that_fails,
        openai_handler_that_fails,
        langgraph_handler_that_fails,
        claude_handler_that_fails,
    ],
)
async def test_the_same_call_twice_is_two_calls_over_two_attempts(
    client: Client, handler_of: Callable[[], Handler]
) -> None:
    page = Page(client)
    async with working(client, handler_of()):
        assert await page.answer_to("paint", calls=2) == "run 1 run 2"
    assert page.calls == [BLUE, BLUE]


async def test_another_attempt_gets_the_results_that_are_there(client: Client) -> None:
    async def paint(turn: Turn) -> str:
        tools = FrontEndTools(turn)
        results = [await tools.call("set_colour", {"colour": "blue"}) for _ in COLOURS]
        if turn.attempt == 1:
            raise RuntimeError
        return " ".join(results)

    page = Page(client)
    async with working(client, paint):
        assert await page.answer_to("paint", calls=2) == "run 1 run 2"


async def test_a_call_without_a_result_says_why(client: Client) -> None:
    async def paint(turn: Turn) -> str:
        reasons = []
        for name, arguments in (
            ("unknown", {}),
            ("set_colour", {"colour": object()}),
            ("set_colour", {"colour": "x" * 70_000}),
            ("set_colour", {"colour": "blue"}),
        ):
            try:
                await FrontEndTools(turn, within=timedelta(seconds=0.3)).call(name, arguments)
            except FrontEndCallError as exc:
                reasons.append(str(exc))
        return ", ".join(reasons)

    async with working(client, paint):
        assert await Page(client).answer_to("paint", calls=0) == (
            "the front end has no such tool, the arguments are no JSON, or too large, "
            "the arguments are no JSON, or too large, the front end has not answered in time"
        )


async def test_the_front_end_gets_each_new_state(client: Client) -> None:
    async def paint(turn: Turn) -> str:
        tools = FrontEndTools(turn)
        begun = tools.state["colour"]
        for colour in ("blue", "red", "blue"):
            assert await tools.set_state({**tools.state, "colour": colour})
        # Both wait for each other.
        other = FrontEndTools(turn)
        await asyncio.gather(tools.call("set_colour"), other.set_state({"colour": "green"}))
        return f"{begun} {tools.state['colour']} {other.state}"

    page = Page(client)
    async with working(client, paint):
        assert await page.answer_to("paint", calls=5) == "white blue {'colour': 'green'}"
    painted = [{"colour": colour, "size": 1} for colour in ("blue", "red", "blue")]
    assert page.states == [*painted, {"colour": "green"}]


async def test_a_state_that_cannot_be_sent_says_why(client: Client) -> None:
    async def paint(turn: Turn) -> str:
        tools, results = FrontEndTools(turn), list[str]()
        for values in ({"colour": object()}, {"colour": "x" * 33_000}):
            with pytest.raises(FrontEndCallError) as caught:
                await tools.set_state(values)
            results.append(str(caught.value))
        # Nobody follows the turn.
        has_it = await tools.set_state({"colour": "blue"}, within=timedelta(seconds=0.3))
        return f"{results} {has_it} {tools.state['colour']}"

    reason = "the state is no JSON object, or too large"
    async with working(client, paint):
        answer = await Page(client).answer_to("paint", calls=0)
    assert answer == f"{[reason, reason]} False white"


class Painting(MessagesState):
    colour: str
    size: int


async def test_a_graph_shares_channels_with_the_front_end(client: Client) -> None:
    async def mix(state: Painting) -> dict[str, Any]:
        return {"colour": f"light {state['colour']}"}

    async def answer(state: Painting) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['colour']} of size {state.get('size')}")]}

    builder = StateGraph(Painting)
    builder.add_sequence([("mix", mix), ("answer", answer)])
    builder.add_edge(START, "mix")
    handler = langgraph.turn_handler(builder.compile(), shared_channels=["colour"])
    page = Page(client)
    async with working(client, handler):
        assert await page.answer_to("paint", calls=1) == "light white of size None"
    assert page.states == [{"colour": "light white", "size": 1}]
