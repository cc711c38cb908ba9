"""A router, an agent that counts what it is asked, and the endpoint; the tests of a file share them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import asyncpg
import pytest
from nats.aio.client import Client
from openai import AsyncOpenAI

from chatlane_client import NoReply, Reply, Turn, TurnFailedError, open_connection
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import working
from tests.support.bridges.openai_endpoint import Endpoint, open_endpoint
from tests.support.servers.backends import RunningServer, delete_streams
from tests.support.servers.databases import disconnect_others, empty

LONG = timedelta(minutes=5)


class Agent:
    """An agent that says what it heard; some words let it do something else.

    Attributes:
        heard: How often each text was answered.
    """

    def __init__(self) -> None:
        self.heard: Counter[str] = Counter()
        self.histories: dict[str, list[str | None]] = {}
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def answer(self, turn: Turn) -> Reply | NoReply | str:
        """Answer a turn."""
        self.heard[turn.text] += 1
        rows = await turn.history(20)
        self.histories[turn.text] = [row.content for row in rows]
        match turn.text.partition(" ")[0]:
            case "silence":
                return NoReply()
            case "ask":
                answer = await turn.ask("Which city?", ["Oslo", "Bergen"], within=LONG)
                return f"You chose {answer.value}."
            case "fail":
                raise TurnFailedError("no")
            case _:
                await turn.delta("You ")
                await self.may_go.wait()
                await turn.delta("said: ")
                usage = {"input_tokens": 7, "output_tokens": 3}
                return Reply(parts=[f"You said: {turn.text}"], usage=usage)


@pytest.fixture(scope="module")
async def routed_url(
    tmp_path_factory: pytest.TempPathFactory, shared_nats: RunningServer, shared_database_url: str
) -> AsyncIterator[str]:
    """URL of a NATS server with a router on it."""
    await delete_streams(shared_nats.url)
    connection = await asyncpg.connect(shared_database_url)
    try:
        await disconnect_others(connection)
        await empty(connection)
    finally:
        await connection.close()
    directory = tmp_path_factory.mktemp("router")
    async with real_router(directory, shared_nats.url, shared_database_url):
        yield shared_nats.url


@pytest.fixture(scope="module")
async def connection(routed_url: str) -> AsyncIterator[Client]:
    async with open_connection(routed_url, name="test") as opened:
        yield opened


@pytest.fixture(scope="module")
async def endpoint(routed_url: str) -> AsyncIterator[Endpoint]:
    async with open_endpoint(routed_url, "ann", "ben") as served:
        yield served


@pytest.fixture(autouse=True)
async def agent(connection: Client) -> AsyncIterator[Agent]:
    found = Agent()
    async with working(connection, found.answer, slots=4):
        yield found


@pytest.fixture
async def ann(endpoint: Endpoint) -> AsyncIterator[AsyncOpenAI]:
    async with endpoint.client("ann") as client:
        yield client


@pytest.fixture
async def ben(endpoint: Endpoint) -> AsyncIterator[AsyncOpenAI]:
    async with endpoint.client("ben") as client:
        yield client


@pytest.fixture
def words() -> str:
    """Words that no other test says."""
    return f"hello {uuid4().hex}"
