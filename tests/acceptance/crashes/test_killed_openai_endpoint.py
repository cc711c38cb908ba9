"""SIGKILL of the worker, the router and the endpoint in the middle of a streamed answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import openai
import pytest
from openai import AsyncOpenAI

from chatlane_client import TranscriptApi, open_connection
from chatlane_schemas.results import Role
from tests.support.bridges import waiting_worker
from tests.support.bridges.openai_endpoint import declared, messages, token
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
ANSWERS: Final = [
    "I begin one, and I am done.",
    "I begin two, and I am done.",
    "I begin three, and I am done.",
]


@dataclass
class Streamed:
    """An answer that comes over a stream."""

    text: str = ""
    session: str = ""
    ended: bool = False


@dataclass
class Stage:
    """A router, a worker and the endpoint, each a process, and a client that keeps the list."""

    router: Process
    worker: Process
    endpoint: Process
    go: Path
    url: str = ""
    said: list[str] = field(default_factory=list)

    async def start_endpoint(self) -> None:
        """Start the endpoint and read its address."""
        before = self.log()
        self.endpoint.start()
        line = await eventually(
            lambda: self.log()[len(before) :].partition("openai: ")[2], PATIENCE
        )
        self.url = line.split()[0]

    def log(self) -> str:
        """Return what the endpoint has written."""
        path = self.endpoint.log_path
        return path.read_text("utf-8") if path.exists() else ""

    def client(self) -> AsyncOpenAI:
        """Return a client of the present endpoint."""
        return AsyncOpenAI(base_url=self.url, api_key=token("ann"), max_retries=0, timeout=300)

    async def ask(self, streamed: Streamed, **headers: str) -> None:
        """Ask for the answer to the list, and note it as it comes."""
        sent: list[Any] = messages(*self.said)
        async with self.client() as client:
            stream = await client.chat.completions.create(
                model="main", messages=sent, stream=True, extra_headers=headers
            )
            streamed.session = stream.response.headers["x-chatlane-session"]
            async for chunk in stream:
                for choice in chunk.choices:
                    streamed.text += choice.delta.content or ""
                    streamed.ended = streamed.ended or choice.finish_reason == "stop"

    async def begin(self, text: str, **headers: str) -> tuple[asyncio.Task[None], Streamed]:
        """Say something, and wait until the worker shows how it begins."""
        self.said.append(text)
        streamed = Streamed()
        asking = asyncio.create_task(self.ask(streamed, **headers))
        await eventually(lambda: streamed.text == f"I begin {text}, ", PATIENCE)
        return asking, streamed


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    go = tmp_path / "go"
    content = declared("ann")
    key = content["keys"]["ann"]
    file = tmp_path / "openai.toml"
    file.write_text(
        f"[models.main]\n[keys.ann]\nsha256 = {json.dumps(key['sha256'])}\nperson = 'ann'\n",
        "utf-8",
    )
    async with open_service(tmp_path, nats_url, database_url, turn_lease=LEASE) as service:
        router = service.router("router 1")
        program = Path(waiting_worker.__file__)
        root = {"PYTHONPATH": str(program.parents[3])}
        arguments = [str(program), nats_url, TURN_AGENT, str(go)]
        worker = Process("worker", arguments, tmp_path, **root)
        endpoint = Process(
            "endpoint",
            ["-m", "chatlane", "openai", "--file", str(file), "--port", "0"],
            tmp_path,
            CHATLANE_OPENAI_NATS_URL=nats_url,
        )
        await service.until_started(router)
        worker.start()
        begun = Stage(router, worker, endpoint, go)
        await begun.start_endpoint()
        try:
            yield begun
        finally:
            await endpoint.kill()
            await worker.kill()


async def test_nothing_is_lost_or_answered_twice(stage: Stage, nats_url: str) -> None:
    session = await kill_the_worker(stage)
    assert await kill_the_router(stage) == session
    assert await kill_the_endpoint(stage) == session
    async with open_connection(nats_url, name="test") as client:
        transcripts = TranscriptApi(client, principal="tests")
        rows = await transcripts.newest(UUID(session), limit=50)
    assert [row.content for row in rows if row.role is Role.USER] == ["one", "two", "three"]
    assert [row.content for row in rows if row.role is Role.ASSISTANT] == ANSWERS


async def kill_the_worker(stage: Stage) -> str:
    asking, streamed = await stage.begin("one")
    await stage.worker.kill()
    stage.go.touch()
    stage.worker.start()
    await asking
    # The second attempt said the same, so nothing came twice.
    return complete(stage, streamed, ANSWERS[0])


async def kill_the_router(stage: Stage) -> str:
    asking, streamed = await stage.begin("two")
    await stage.router.kill()
    stage.go.touch()
    stage.router.start()
    await asking
    return complete(stage, streamed, ANSWERS[1])


async def kill_the_endpoint(stage: Stage) -> str:
    asking, cut = await stage.begin("three", **{"Idempotency-Key": "three"})
    await stage.endpoint.kill()
    with pytest.raises(openai.APIConnectionError):
        await asking
    assert not cut.ended
    await stage.start_endpoint()
    streamed = Streamed()
    again = asyncio.create_task(stage.ask(streamed, **{"Idempotency-Key": "three"}))
    # The new endpoint joins the running turn.
    await eventually(lambda: streamed.text == "I begin three, ", PATIENCE)
    stage.go.touch()
    await again
    return complete(stage, streamed, ANSWERS[2])


def complete(stage: Stage, streamed: Streamed, answer: str) -> str:
    """Check an answer, add it to the list, and return its session."""
    assert (streamed.text, streamed.ended) == (answer, True)
    stage.said.append(answer)
    stage.go.unlink()
    return streamed.session
