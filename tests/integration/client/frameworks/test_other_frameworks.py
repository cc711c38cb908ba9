"""Agents of LangGraph, the OpenAI Agents SDK and Claude behind a real router: memory, approvals, stops."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool
from agents.mcp import MCPServerStdio
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from claude_agent_sdk import ClaudeAgentOptions
from claude_agent_sdk import tool as claude_tool
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt
from nats.aio.client import Client

from chatlane_client import (
    Answer,
    Handler,
    SessionApi,
    TranscriptApi,
    Turn,
    TurnFailedError,
    open_connection,
)
from chatlane_client.frameworks import claude, langgraph, openai_agents
from chatlane_schemas import Person, Role, TurnEnded, TurnOutcome
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import (
    ACCOUNT,
    PLATFORM,
    PRINCIPAL,
    Chats,
    delivering,
    said,
    working,
)
from tests.support import mail_server
from tests.support.fake_claude import FakeClaude, Frames, assistant, result, streamed, tool_result

pytestmark = pytest.mark.integration

ARGUMENTS = {"to": "Ben"}
LOOKS = "Let me look."


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    async with (
        real_router(tmp_path, nats_url, database_url, retry_pause=timedelta(seconds=0.2)),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


def langgraph_handler(sent: list[str]) -> Handler:
    @tool
    def send_mail(to: str) -> str:
        """Send a mail."""
        if interrupt(f"Mail {to}?") == "Allow":
            sent.append(to)
        return "sent"

    def respond(messages: Sequence[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage(f"result: {messages[-1].content}")
        prompts = [str(it.content) for it in messages if isinstance(it, HumanMessage)]
        if prompts[-1] == "mail":
            call = {"name": "send_mail", "args": ARGUMENTS, "id": f"call-{len(messages)}"}
            return AIMessage("", tool_calls=[call])
        return AIMessage(" | ".join(prompts))

    def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [respond(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([send_mail]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return langgraph.turn_handler(builder.compile())


def openai_handler(sent: list[str]) -> Handler:
    @function_tool(needs_approval=True)
    def send_mail(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    def respond(call: ModelCall) -> ModelStep:
        last = call.input[-1]
        if last.get("type") == "function_call_output":
            return ModelStep([assistant_message(f"result: {last['output']}")])
        prompts = [item["content"] for item in call.input if item.get("role") == "user"]
        if prompts[-1] == "mail":
            return ModelStep([function_call("send_mail", ARGUMENTS, call_id="call-1")])
        return ModelStep([assistant_message(" | ".join(prompts))])

    model = ScriptedModel([ModelStep.respond(respond) for _ in range(20)])
    return openai_agents.turn_handler(Agent("Desk", model=model, tools=[send_mail]))


def claude_handler(sent: list[str]) -> Handler:
    async def act(fake: FakeClaude) -> Frames:
        [[block]] = fake.prompts
        if not block["text"].endswith("mail"):
            yield result(block["text"].replace("\n", " "))
            return
        call = {"type": "tool_use", "id": "call-1", "name": "send_mail", "input": ARGUMENTS}
        yield assistant(call)
        decided = await fake.request(
            "can_use_tool",
            tool_name="send_mail",
            input=ARGUMENTS,
            tool_use_id="call-1",
            permission_suggestions=[],
        )
        if decided["behavior"] == "allow":
            sent.append("Ben")
        yield tool_result("call-1", "sent")
        yield result("result: sent")

    def started(options: ClaudeAgentOptions) -> FakeClaude:
        return FakeClaude(act, options)

    return claude.turn_handler(transport_of=started)


def counting_openai_handler(sent: list[str]) -> Handler:
    """Return a handler whose tool fails at first, and whose model fails after it twice."""
    calls: list[str] = []

    @function_tool
    async def send_mail(to: str) -> str:
        """Send a mail."""
        calls.append(to)
        if len(calls) == 1:
            raise RuntimeError
        sent.append(to)
        return f"sent, number {len(sent)}"

    return openai_agents.turn_handler(
        Agent[Any]("Mail", model=failing_twice_after_a_tool(), tools=[send_mail])
    )


def failing_twice_after_a_tool() -> ScriptedModel:
    results: list[str] = []

    def respond(call: ModelCall) -> ModelStep:
        last = call.input[-1]
        if last.get("type") != "function_call_output":
            # Another attempt gives the call another id.
            call_id = f"call-{len(results)}"
            return ModelStep([function_call("send_mail", ARGUMENTS, call_id=call_id)])
        output = last["output"]
        results.append(output if isinstance(output, str) else output[0]["text"])
        if len(results) < 3:
            raise RuntimeError
        return ModelStep([assistant_message(f"result: {results[-1]}")])

    return ScriptedModel([ModelStep.respond(respond) for _ in range(20)])


def counting_claude_handler(sent: list[str]) -> Handler:
    """Return a handler whose model fails once after a tool."""
    attempts: list[str] = []

    @claude_tool("send_mail", "Send a mail.", {"to": str})
    async def send_mail(arguments: dict[str, Any]) -> dict[str, Any]:
        sent.append(arguments["to"])
        return {"content": [{"type": "text", "text": f"sent, number {len(sent)}"}]}

    async def act(fake: FakeClaude) -> Frames:
        attempts.append("begun")
        text = await fake.call_tool("turn", "send_mail", ARGUMENTS)
        if len(attempts) == 1:
            yield result("", is_error=True, subtype="error_during_execution", api_error_status=None)
            raise AssertionError
        yield result(f"result: {text}")

    def started(options: ClaudeAgentOptions) -> FakeClaude:
        return FakeClaude(act, options)

    return claude.turn_handler(tools=[send_mail], transport_of=started)


@pytest.mark.parametrize(
    "handler_of",
    [
        # This library waits for seconds before it calls a model again.
        pytest.param(counting_openai_handler, id="openai-agents", marks=pytest.mark.slow),
        pytest.param(counting_claude_handler, id="claude"),
    ],
)
async def test_another_attempt_does_not_call_a_tool_again(
    client: Client, handler_of: Callable[[list[str]], Handler]
) -> None:
    sent: list[str] = []
    await answer_without_a_second_mail(client, handler_of(sent), number=1)
    assert sent == ["Ben"]


async def test_another_attempt_does_not_call_a_tool_of_an_mcp_server_again(
    client: Client, tmp_path: Path
) -> None:
    outbox = tmp_path / "outbox"
    command = {"command": sys.executable, "args": [mail_server.__file__, str(outbox)]}
    async with MCPServerStdio(params=command) as server:  # type: ignore[arg-type] # without its optional keys
        agent = Agent[Any]("Mail", model=failing_twice_after_a_tool(), mcp_servers=[server])
        # The first call returns an error, which is not kept.
        handler = openai_agents.turn_handler(agent)
        await answer_without_a_second_mail(client, handler, number=2)
        assert agent.mcp_servers == [server]
    assert outbox.read_text("utf-8") == "Ben\nBen\n"


async def answer_without_a_second_mail(client: Client, handler: Handler, number: int) -> None:
    chats = Chats()

    async def killed_once(turn: Turn) -> Answer:
        try:
            return await handler(turn)
        except TurnFailedError as exc:
            # As if its worker had been killed: nothing goes to the next attempt but steps.
            raise RuntimeError from exc

    async with working(client, killed_once), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("mail"))
        await chats.until_said(f"result: sent, number {number}")


def looking_langgraph_handler(begun: asyncio.Event) -> Handler:
    """Return a handler whose tool never ends, as the two below."""

    @tool
    async def look() -> str:
        """Look at the sky."""
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    calls = [{"name": "look", "args": {}, "id": "call-1"}]
    model = FakeMessagesListChatModel(responses=[AIMessage(LOOKS, tool_calls=calls)])

    async def respond(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", respond)
    builder.add_node("tools", ToolNode([look]))
    builder.add_edge(START, "model")
    builder.add_edge("model", "tools")
    return langgraph.turn_handler(builder.compile())


def looking_openai_handler(begun: asyncio.Event) -> Handler:
    @function_tool
    async def look() -> str:
        """Look at the sky."""
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    step = [assistant_message(LOOKS), function_call("look", {}, call_id="call-1")]
    return openai_agents.turn_handler(Agent("Desk", model=ScriptedModel([step]), tools=[look]))


def looking_claude_handler(begun: asyncio.Event) -> Handler:
    @claude_tool("look", "Look at the sky.", {})
    async def look(_: dict[str, Any]) -> dict[str, Any]:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def act(fake: FakeClaude) -> Frames:
        for frame in streamed([LOOKS]):
            yield frame
        call = {"type": "tool_use", "id": "call-1", "name": "look", "input": {}}
        yield assistant({"type": "text", "text": LOOKS}, call)
        await fake.call_tool("turn", "look", {})
        raise AssertionError

    def started(options: ClaudeAgentOptions) -> FakeClaude:
        return FakeClaude(act, options)

    return claude.turn_handler(tools=[look], transport_of=started)


@pytest.mark.parametrize(
    "handler_of",
    [looking_langgraph_handler, looking_openai_handler, looking_claude_handler],
    ids=["langgraph", "openai-agents", "claude"],
)
async def test_a_stopped_turn_keeps_what_was_said_and_says_it_once(
    client: Client, handler_of: Callable[[asyncio.Event], Handler]
) -> None:
    chats, begun = Chats(), asyncio.Event()
    person = Person(platform=PLATFORM, account=ACCOUNT, id="person-1")
    sessions = SessionApi(client, principal=PRINCIPAL, acting_for=person)
    transcripts = TranscriptApi(client, principal=PRINCIPAL, acting_for=person)
    async with (
        working(client, handler_of(begun)),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("weather?"))
        await begun.wait()
        session = await sessions.peek(f"agent:main:{PLATFORM}:{ACCOUNT}:dm:1")
        assert session is not None
        async with sessions.watch(session.id) as updates:
            await adapter.publish(said("/stop"))
            ended = await anext(it async for it in updates if isinstance(it, TurnEnded))
        await chats.until_said(LOOKS)
        rows = await transcripts.newest(session.id)
    assert ended.outcome is TurnOutcome.CANCELLED
    assert chats.texts().count(LOOKS) == 1
    spoken = [row.content for row in rows if row.role is Role.ASSISTANT]
    assert spoken.count(LOOKS) == 1


CLAUDE_MEMORY = "The conversation so far:  [person] one [you] one  Answer this now:  two"


@pytest.mark.parametrize(
    ("handler_of", "question", "memory"),
    [
        (langgraph_handler, "Mail Ben?", "one | two"),
        (openai_handler, 'Allow send_mail {"to": "Ben"}?', "one | two"),
        (claude_handler, 'Allow send_mail {"to": "Ben"}?', CLAUDE_MEMORY),
    ],
    ids=["langgraph", "openai-agents", "claude"],
)
async def test_the_transcript_is_the_memory_and_a_tool_runs_only_after_it_was_allowed(
    client: Client, handler_of: Callable[[list[str]], Handler], question: str, memory: str
) -> None:
    sent: list[str] = []
    chats = Chats()
    handler = handler_of(sent)
    async with working(client, handler), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("one"))
        await chats.until_said("one")
        await adapter.publish(said("two"))
        await chats.until_said(memory)
        await adapter.publish(said("mail"))
        await chats.until_said(question)
        assert sent == []
        await adapter.publish(said("Allow"))
        await chats.until_said("result: sent")
        assert sent == ["Ben"]
