"""Agents of the A2A SDK talk to the server, over SIGKILL of the worker, the router and the server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Final
from uuid import UUID

import httpx
import pytest
from a2a.client import A2ACardResolver, A2AClientError, Client, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import A2AError

from chatlane_client import TranscriptApi, open_connection
from chatlane_schemas import results
from tests.support.bridges import waiting_worker
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, Process, open_service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(400),
]

PATIENCE: Final = timedelta(seconds=120)
# Longer than a router is away.
LEASE: Final = timedelta(seconds=15)
TOKENS: Final = {name: f"a2a-test-{name}-0123456789" for name in ("ann", "ben")}


@dataclass
class Shown:
    """A task as it is streamed.

    Attributes:
        states: Its states, in order.
        question: What it asked for.
    """

    task_id: str = ""
    context_id: str = ""
    text: str = ""
    states: list[int] = field(default_factory=list)
    question: str = ""


def said(text: str, *, key: str | None = None, to: Shown | None = None, task: str = "") -> Message:
    """Return a message of a person."""
    return Message(
        message_id=key or f"message {text}",
        context_id="" if to is None else to.context_id,
        task_id=task,
        role=Role.ROLE_USER,
        parts=[Part(text=text)],
    )


@dataclass
class Stage:
    """A router, a worker and the server, each a process.

    Attributes:
        is_old: Whether clients speak version 0.3 of the protocol.
    """

    router: Process
    worker: Process
    server: Process
    go: Path
    url: str = ""
    is_old: bool = False

    async def start_server(self) -> None:
        """Start the server and read its address."""
        before = self.log()
        self.server.start()
        line = await eventually(lambda: self.log()[len(before) :].partition("a2a: ")[2], PATIENCE)
        self.url = line.split()[0]

    def log(self) -> str:
        """Return what the server has written."""
        path = self.server.log_path
        return path.read_text("utf-8") if path.exists() else ""

    @asynccontextmanager
    async def client(self, name: str) -> AsyncIterator[Client]:
        """Open a client of the SDK, which reads the card first."""
        headers = {"Authorization": f"Bearer {TOKENS[name]}"}
        async with httpx.AsyncClient(headers=headers, timeout=300) as http:
            card = await A2ACardResolver(http, f"{self.url}/main").get_agent_card()
            assert card.capabilities.streaming
            if self.is_old:
                # As a client finds it that knows no later version.
                old = [it for it in card.supported_interfaces if it.protocol_version == "0.3"]
                del card.supported_interfaces[:]
                card.supported_interfaces.extend(old)
                assert old
            yield ClientFactory(ClientConfig(httpx_client=http)).create(card)

    async def send(self, shown: Shown, message: Message) -> None:
        """Send a message and note the task as it comes."""
        async with self.client("ann") as client:
            async for event in client.send_message(SendMessageRequest(message=message)):
                match event.WhichOneof("payload"):
                    case "task":
                        shown.task_id, shown.context_id = event.task.id, event.task.context_id
                        shown.states.append(event.task.status.state)
                    case "artifact_update":
                        assert event.artifact_update.append == bool(shown.text)
                        shown.text += event.artifact_update.artifact.parts[0].text
                    case "status_update":
                        status = event.status_update.status
                        shown.states.append(status.state)
                        shown.question = "".join(part.text for part in status.message.parts)
                    case _:
                        pass

    async def begin(self, message: Message) -> tuple[asyncio.Task[None], Shown]:
        """Send a message, and wait until the worker shows how it begins."""
        shown = Shown()
        sending = asyncio.create_task(self.send(shown, message))
        await eventually(lambda: shown.text == f"I begin {message.parts[0].text}, ", PATIENCE)
        return sending, shown

    async def finish(self, sending: asyncio.Task[None], shown: Shown, text: str) -> None:
        """Let the worker answer, and check the whole task."""
        self.go.touch()
        await sending
        self.go.unlink()
        assert shown.text == f"I begin {text}, and I am done."
        assert shown.states == [TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_COMPLETED]
        async with self.client("ann") as client:
            task = await client.get_task(GetTaskRequest(id=shown.task_id))
        assert task.status.state == TaskState.TASK_STATE_COMPLETED
        assert task.artifacts[0].parts[0].text == shown.text


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    go = tmp_path / "go"
    file = tmp_path / "a2a.toml"
    keys = (
        f"[keys.{name}]\nsha256 = {json.dumps(sha256(token.encode()).hexdigest())}\n"
        f"person = '{name}'\n"
        for name, token in TOKENS.items()
    )
    file.write_text("[agents.main]\n" + "".join(keys), "utf-8")
    async with open_service(tmp_path, nats_url, database_url, turn_lease=LEASE) as service:
        router = service.router("router 1")
        program = Path(waiting_worker.__file__)
        root = {"PYTHONPATH": str(program.parents[3])}
        arguments = [str(program), nats_url, TURN_AGENT, str(go)]
        worker = Process("worker", arguments, tmp_path, **root)
        server = Process(
            "server",
            ["-m", "chatlane", "a2a", "--file", str(file), "--port", "0"],
            tmp_path,
            CHATLANE_A2A_NATS_URL=nats_url,
        )
        await service.until_started(router)
        worker.start()
        begun = Stage(router, worker, server, go)
        await begun.start_server()
        try:
            yield begun
        finally:
            await server.kill()
            await worker.kill()


async def test_each_task_ends_once(stage: Stage, nats_url: str) -> None:
    sending, first = await stage.begin(said("one"))
    await stage.worker.kill()
    stage.worker.start()
    await stage.finish(sending, first, "one")

    sending, second = await stage.begin(said("two", to=first))
    await stage.router.kill()
    stage.router.start()
    await stage.finish(sending, second, "two")

    sending, cut = await stage.begin(said("three", to=first))
    await stage.server.kill()
    with pytest.raises((A2AClientError, httpx.HTTPError)):
        await sending
    await stage.start_server()
    # The same message again joins the running turn.
    sending, third = await stage.begin(said("three", to=first))
    assert third.task_id == cut.task_id
    await stage.finish(sending, third, "three")
    assert {second.context_id, third.context_id} == {first.context_id}

    await asked_and_cancelled(stage, first)
    stage.is_old = True
    sending, fifth = await stage.begin(said("five", to=first))
    await stage.finish(sending, fifth, "five")
    async with open_connection(nats_url, name="test") as client:
        transcripts = TranscriptApi(client, principal="tests")
        rows = await transcripts.newest(UUID(first.context_id), limit=50)
    words = [row.content for row in rows if row.role is results.Role.USER]
    assert words == ["one", "two", "three", "ask", "Allow", "four", "five"]
    assert "I begin" not in stage.log()


async def asked_and_cancelled(stage: Stage, first: Shown) -> None:
    """A question makes the task wait for input; another task is cancelled; others see neither."""
    asked = Shown()
    await stage.send(asked, said("ask", to=first))
    assert asked.states[-1] == TaskState.TASK_STATE_INPUT_REQUIRED
    assert asked.question == "May I?\n\n1. Allow\n2. Deny"
    async with stage.client("ben") as ben:
        with pytest.raises((A2AClientError, A2AError)):
            await ben.get_task(GetTaskRequest(id=asked.task_id))
    answered = Shown()
    await stage.send(answered, said("Allow", task=asked.task_id))
    assert (answered.task_id, answered.text) == (asked.task_id, "I begin ask, you chose allow.")
    assert answered.states[-1] == TaskState.TASK_STATE_COMPLETED

    sending, running = await stage.begin(said("four", to=first))
    async with stage.client("ann") as client:
        async for event in client.subscribe(SubscribeToTaskRequest(id=running.task_id)):
            assert event.task.id == running.task_id
            break
        await client.cancel_task(CancelTaskRequest(id=running.task_id))
        await sending
        assert running.states[-1] == TaskState.TASK_STATE_CANCELED
        task = await client.get_task(GetTaskRequest(id=running.task_id))
    assert task.status.state == TaskState.TASK_STATE_CANCELED
