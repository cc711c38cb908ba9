"""Agents of operators with the client of the SDK: over HTTP and over stdin and stdout."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from nats.aio.client import Client as NatsClient

from chatlane_bridges.mcp.server import create_app, listening, server_of
from chatlane_bridges.mcp.settings import McpSettings
from chatlane_client import SessionApi, Turn, open_connection
from chatlane_schemas.session_api.people import Person
from chatlane_servers.embedded import open_nats
from tests.integration.client.real_router import real_router
from tests.integration.client.routing import PRINCIPAL, working
from tests.support.eventually import eventually
from tests.support.servers.nats_users import Keys, with_keys

pytestmark = pytest.mark.integration

TOKEN = "a-token-of-the-tests"  # noqa: S105 - of the tests
USERS: dict[str, dict[str, object]] = {
    PRINCIPAL: {"role": "worker", "agent": "main"},
    "web": {"role": "front_end", "accounts": ["web/web"]},
    "mcp": {"role": "operator"},
}
READS = {
    "list_sessions",
    "count_sessions",
    "get_session",
    "read_transcript",
    "read_row",
    "search_transcripts",
    "list_deliveries",
    "get_open_question",
    "list_dead_letters",
    "explain_session",
    "get_streams",
}
CHANGES = {
    "archive_session",
    "reopen_session",
    "stop_session",
    "cancel_turn",
    "end_session",
    "retry_turn",
}


class World:
    """A service whose NATS has users, with a session of a person."""

    def __init__(self, url: str, keys: Keys, session: UUID) -> None:
        self.url = url
        self.keys = keys
        self.session = session

    def settings(self, **more: Any) -> McpSettings:  # noqa: ANN401 - settings
        return McpSettings(nats_url=self.url, nkey_seed_file=self.keys.seed_file("mcp"), **more)


@asynccontextmanager
async def connected(url: str, keys: Keys, name: str) -> AsyncIterator[NatsClient]:
    async with open_connection(
        url, name=name, principal=name, nkey_seed_file=str(keys.seed_file(name))
    ) as client:
        yield client


@pytest.fixture
async def world(tmp_path: Path, database_url: str) -> AsyncIterator[World]:
    async def answer(turn: Turn) -> str:
        return f"You said: {turn.text}"

    keys, config = with_keys(tmp_path / "keys", USERS)
    async with (
        open_nats(tmp_path / "nats", extra_config=config) as server,
        real_router(tmp_path, server.url, database_url),
        connected(server.url, keys, PRINCIPAL) as worker,
        connected(server.url, keys, "web") as web,
        working(worker, answer),
    ):
        person = Person(platform="web", account="web", id="ann")
        sessions = SessionApi(
            web, principal="web", acting_for=person, patience=timedelta(seconds=60)
        )
        session = (await sessions.create(origin="web")).id
        await sessions.submit(session, "the marmalade recipe", wait=True)
        yield World(server.url, keys, session)


@asynccontextmanager
async def over_http(settings: McpSettings, token_file: Path) -> AsyncIterator[str]:
    """Serve over HTTP and yield the address."""
    await asyncio.to_thread(token_file.write_text, TOKEN, "utf-8")
    chosen = settings.model_copy(update={"port": 0, "token_file": token_file})
    with listening(chosen) as taken:
        server = server_of(create_app(chosen))
        serving = asyncio.create_task(server.serve(sockets=[taken]))
        try:
            await eventually(lambda: server.started)
            yield f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def client_of(url: str, token: str = TOKEN) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


async def call(client: Client, name: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


async def refusal(client: Client, name: str, **arguments: Any) -> str:  # noqa: ANN401 - JSON
    result = await client.call_tool(name, arguments)
    assert result.is_error
    return json.dumps([block.model_dump(mode="json") for block in result.content])


async def names_of(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


async def test_an_operator_agent_reads_under_audit_and_changes_nothing(
    world: World, tmp_path: Path, database_url: str
) -> None:
    session = str(world.session)
    async with (
        over_http(world.settings(), tmp_path / "token") as url,
        client_of(url) as client,
    ):
        assert await names_of(client) == READS
        listed = await call(client, "list_sessions", wanted={"origin": "web"})
        assert [found["id"] for found in listed["sessions"]] == [session]
        assert (await call(client, "list_sessions", wanted={"agent": "desk"}))["sessions"] == []
        assert (await call(client, "count_sessions"))["total"] == 1
        assert (await call(client, "get_session", session_id=session))["answer_count"] == 1
        page = await call(client, "read_transcript", session_id=session)
        texts = ["the marmalade recipe", "You said: the marmalade recipe"]
        assert [row["content"] for row in page["rows"]] == texts
        newest = await call(client, "read_transcript", session_id=session, limit=1)
        assert [row["content"] for row in newest["rows"]] == texts[1:]
        seq = page["rows"][0]["seq"]
        assert (await call(client, "read_row", session_id=session, seq=seq))["content"] == texts[0]

        async def is_found() -> bool:
            hits = (await call(client, "search_transcripts", query="marmal*"))["hits"]
            return [hit["session_id"] for hit in hits] == [session, session]

        await eventually(is_found)
        [delivery] = (await call(client, "list_deliveries", session_id=session))["deliveries"]
        assert delivery["platform"] == "web"
        assert (await call(client, "get_open_question", session_id=session))["question"] is None
        assert (await call(client, "list_dead_letters"))["letters"] == []
        of_session = await call(client, "list_dead_letters", session_id=session, reason="invalid")
        assert (of_session["letters"], of_session["next_cursor"]) == ([], None)
        assert (await call(client, "explain_session", session_id=session))["why"]
        assert (await call(client, "get_streams"))["streams"]["DEAD"]["messages"] == 0
        assert "no such session" in await refusal(client, "get_session", session_id=str(uuid4()))
        assert await refusal(client, "end_session", session_id=session)
    connection = await asyncpg.connect(database_url)
    try:
        found = await connection.fetch("SELECT DISTINCT action FROM audit WHERE actor = 'nats:mcp'")
    finally:
        await connection.close()
    assert {"session.list", "transcript.load", "letter.list", "explain.session"} <= {
        row[0] for row in found
    }


async def test_a_server_that_allows_changes_has_tools_for_them(
    world: World, tmp_path: Path
) -> None:
    session = str(world.session)
    async with (
        over_http(world.settings(allow_changes=True), tmp_path / "token") as url,
        client_of(url) as client,
    ):
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == READS | CHANGES
        hints = {tool.name: tool.annotations for tool in tools}
        assert {
            name for name, hint in hints.items() if hint is not None and hint.read_only_hint
        } == READS
        assert (await call(client, "archive_session", session_id=session))["archived_at"]
        assert (await call(client, "end_session", session_id=session))["ended_at"]
        assert "ended_at" not in await call(client, "reopen_session", session_id=session)
        assert await call(client, "stop_session", session_id=session) is not None
        await call(client, "retry_turn", session_id=session)

        async def is_answered_again() -> bool:
            found = await call(client, "get_session", session_id=session)
            return bool(found["answer_count"] == 2)

        await eventually(is_answered_again)


async def test_without_the_token_nothing_is_answered(world: World, tmp_path: Path) -> None:
    async with over_http(world.settings(), tmp_path / "token") as url, httpx2.AsyncClient() as http:
        for headers in ({}, {"Authorization": "Bearer another-token-of-tests"}):
            answer = await http.post(url, json={}, headers=headers)
            assert answer.status_code == 401


async def test_the_command_speaks_over_stdin_and_stdout(world: World) -> None:
    seed = str(world.keys.seed_file("mcp"))
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "chatlane", "mcp", "--nats", world.url, "--nkey-seed-file", seed],
    )
    async with Client(command) as client:
        assert await names_of(client) == READS
        page = await call(client, "read_transcript", session_id=str(world.session))
        assert len(page["rows"]) == 2
