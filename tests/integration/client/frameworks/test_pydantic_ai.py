"""Agents of Pydantic AI behind a real router: memory, approvals, steering, stops, a model that is away."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastmcp.client.transports import StdioTransport
from nats.aio.client import Client
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelHTTPError, ModelUnavailableError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from chatlane_client import Answer, Turn, open_connection
from chatlane_client.frameworks.pydantic_ai import turn_handler
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import Chats, delivering, said, working
from tests.support import mail_server
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

Chunks = AsyncIterator[str | dict[int, DeltaToolCall]]


@pytest.fixture
async def client(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Client]:
    """A connection to a server with a router whose turns may be steered."""
    async with (
        real_router(
            tmp_path, nats_url, database_url, busy="steer", retry_pause=timedelta(seconds=0.2)
        ),
        open_connection(nats_url, name="test") as connection,
    ):
        yield connection


def prompts(messages: list[ModelMessage]) -> list[str]:
    return [
        str(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, UserPromptPart)
    ]


async def repeat(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
    yield " | ".join(prompts(messages))


async def test_the_transcript_is_the_memory_of_the_model(client: Client) -> None:
    chats = Chats()
    handler = turn_handler(Agent(FunctionModel(stream_function=repeat)))
    async with working(client, handler), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("one"))
        await chats.until_said("one")
        await adapter.publish(said("two"))
        await chats.until_said("one | two")


async def call_then_tell(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        yield f"result: {last.content}"
    else:
        yield {0: DeltaToolCall("send_mail", '{"to": "Ben"}', tool_call_id=f"call-{len(messages)}")}


async def test_a_tool_runs_only_after_the_person_has_allowed_it(client: Client) -> None:
    sent: list[str] = []
    agent = Agent(FunctionModel(stream_function=call_then_tell))

    @agent.tool_plain(requires_approval=True)
    def send_mail(to: str) -> str:
        sent.append(to)
        return f"sent to {to}"

    chats = Chats()
    async with working(client, turn_handler(agent)), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("mail Ben"))
        await chats.until_said('Allow send_mail {"to": "Ben"}?')
        assert sent == []
        await adapter.publish(said("Allow"))
        await chats.until_said("result: sent to Ben")
        assert sent == ["Ben"]

        await adapter.publish(said("again"))
        await eventually(lambda: chats.texts().count('Allow send_mail {"to": "Ben"}?') == 2)
        await adapter.publish(said("Deny"))
        await chats.until_said("result: The person did not allow it.")
        assert sent == ["Ben"]


async def test_another_attempt_does_not_call_a_tool_again(client: Client) -> None:
    sent: list[str] = []
    asked = 0

    async def fail_after_the_tool(listed: list[ModelMessage], info: AgentInfo) -> Chunks:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise RuntimeError
        async for chunk in call_then_tell(listed, info):
            yield chunk

    agent = Agent(FunctionModel(stream_function=fail_after_the_tool))

    @agent.tool_plain
    def send_mail(to: str) -> str:
        sent.append(to)
        return f"sent to {to}, number {len(sent)}"

    chats = Chats()
    async with working(client, turn_handler(agent)), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("mail Ben"))
        await chats.until_said("result: sent to Ben, number 1")
    assert sent == ["Ben"]


async def test_another_attempt_does_not_call_a_tool_of_an_mcp_server_again(
    client: Client, tmp_path: Path
) -> None:
    outbox = tmp_path / "outbox"
    requests = 0

    async def fail_after_the_tool(listed: list[ModelMessage], info: AgentInfo) -> Chunks:
        nonlocal requests
        requests += 1
        # After the error of the first call, and after the mail.
        if requests in {2, 4}:
            raise RuntimeError
        async for chunk in call_then_tell(listed, info):
            yield chunk

    mail = MCPToolset[None](StdioTransport(sys.executable, [mail_server.__file__, str(outbox)]))
    chats = Chats()
    async with Agent(FunctionModel(stream_function=fail_after_the_tool), toolsets=[mail]) as agent:
        handler = turn_handler(agent)
        async with working(client, handler), delivering(client, chats.deliver) as adapter:
            await adapter.publish(said("mail Ben"))
            await chats.until_said("result: sent, number 2")
    assert outbox.read_text("utf-8") == "Ben\nBen\n"


async def test_what_is_written_during_a_turn_reaches_the_model_in_the_same_turn(
    client: Client,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    agent = Agent(FunctionModel(stream_function=steered_model))

    @agent.tool_plain
    async def send_mail(to: str) -> str:
        begun.set()
        await go_on.wait()
        return f"sent to {to}"

    handler, turns = turn_handler(agent), list[Turn]()

    async def noted(turn: Turn) -> Answer:
        turns.append(turn)
        return await handler(turn)

    chats = Chats()
    async with working(client, noted), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("mail Ben"))
        await begun.wait()
        await adapter.publish(said("and Ann, please"))
        await eventually(turns[0].signals.has_news.is_set)
        go_on.set()
        await chats.until_said("mail Ben | and Ann, please")
    assert len(turns) == 1


async def steered_model(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
    if len(messages) == 1:
        yield {0: DeltaToolCall("send_mail", '{"to": "Ben"}', tool_call_id="call-1")}
    else:
        yield " | ".join(prompts(messages))


async def test_a_stopped_turn_keeps_the_text_so_far(client: Client) -> None:
    begun = asyncio.Event()

    async def slow(messages: list[ModelMessage], _: AgentInfo) -> Chunks:
        if "slowly" not in prompts(messages)[-1]:
            yield " | ".join(prompts(messages))
            return
        yield "The beginning"
        begun.set()
        await asyncio.Event().wait()

    chats = Chats()
    handler = turn_handler(Agent(FunctionModel(stream_function=slow)))
    async with working(client, handler), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("tell it slowly"))
        await begun.wait()
        await adapter.publish(said("/stop"))
        await chats.until_said("The beginning")


async def test_a_turn_waits_for_a_model_that_is_away(client: Client) -> None:
    tries = 0

    async def away_once(_: list[ModelMessage], __: AgentInfo) -> Chunks:
        nonlocal tries
        tries += 1
        if tries == 1:
            error: Any = ModelUnavailableError
            raise ModelHTTPError.for_category(
                error, status_code=503, model_name="some-model", retry_after=0.1
            )
        yield f"try {tries}"

    chats = Chats()
    handler = turn_handler(Agent(FunctionModel(stream_function=away_once)))
    async with working(client, handler), delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello"))
        await chats.until_said("try 2")
