"""The client of AG-UI talks to the endpoint, over SIGKILL of the worker, the router and the endpoint."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from chatlane_client import SessionApi, TranscriptApi, open_connection
from chatlane_schemas.results import Role
from tests.support.bridges import waiting_worker
from tests.support.eventually import eventually
from tests.support.service.processes import TURN_AGENT, Process, open_service
from tests.support.typescript import install_client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.timeout(400),
]

PATIENCE: Final = timedelta(seconds=120)
# Longer than a router is away.
LEASE: Final = timedelta(seconds=8)
TOKENS: Final = {name: f"ag-ui-test-{name}-0123456789" for name in ("ann", "ben")}


@dataclass
class Run:
    """A run of the client in a process of its own.

    Attributes:
        events: What it has got, in order.
        has_failed: Whether the client ended with an error.
    """

    process: asyncio.subprocess.Process
    events: list[dict[str, Any]] = field(default_factory=list)
    has_failed: bool = False

    async def read(self) -> None:
        """Note the events until the client ends."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.events.append(json.loads(line))
        self.has_failed = await self.process.wait() != 0

    @property
    def text(self) -> str:
        """Return the text of the agent so far."""
        return "".join(self.all("TEXT_MESSAGE_CONTENT", "delta"))

    def all(self, kind: str, name: str) -> list[Any]:
        """Return a field of each event of a type."""
        return [event[name] for event in self.events if event["type"] == kind]


@dataclass
class Stage:
    """A router, a worker and the endpoint, each a process, and the client."""

    router: Process
    worker: Process
    endpoint: Process
    client: Path
    go: Path
    url: str = ""

    async def start_endpoint(self) -> None:
        """Start the endpoint and read its address."""
        before = self.log()
        self.endpoint.start()
        line = await eventually(lambda: self.log()[len(before) :].partition("ag-ui: ")[2], PATIENCE)
        self.url = line.split()[0]

    def log(self) -> str:
        """Return what the endpoint has written."""
        path = self.endpoint.log_path
        return path.read_text("utf-8") if path.exists() else ""

    async def start(
        self, text: str, *answer: str, by: str = "ann", program: str = "run.mjs"
    ) -> tuple[asyncio.Task[None], Run]:
        """Start a run that says something in the thread."""
        process = await asyncio.create_subprocess_exec(
            *("node", program, f"{self.url}/main", TOKENS[by], "thread", f"message {text}", text),
            *answer,
            cwd=self.client,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        run = Run(process)
        return asyncio.create_task(run.read()), run

    async def whole(self, text: str, *answer: str, by: str = "ann") -> Run:
        """Return a run that is over."""
        reading, run = await self.start(text, *answer, by=by)
        await reading
        return run

    async def begin(self, text: str) -> tuple[asyncio.Task[None], Run]:
        """Start a run, and wait until the worker shows how it begins."""
        reading, run = await self.start(text)
        await eventually(lambda: run.text == f"I begin {text}, ", PATIENCE)
        return reading, run

    async def finish(self, reading: asyncio.Task[None], run: Run, text: str) -> None:
        """Let the worker answer, and check the whole run."""
        self.go.touch()
        await reading
        self.go.unlink()
        assert (run.text, run.has_failed) == (f"I begin {text}, and I am done.", False)
        assert run.all("RUN_FINISHED", "outcome") == [{"type": "success"}]


@pytest.fixture
async def stage(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    go = tmp_path / "go"
    client = await asyncio.to_thread(install_client, "ag_ui_client", tmp_path)
    file = tmp_path / "ag-ui.toml"
    keys = (
        f"[keys.{name}]\nsha256 = '{sha256(token.encode()).hexdigest()}'\nperson = '{name}'\n"
        for name, token in TOKENS.items()
    )
    file.write_text("[agents.main]\n" + "".join(keys), "utf-8")
    async with open_service(tmp_path, nats_url, database_url, turn_lease=LEASE) as service:
        router = service.router("router 1")
        program = Path(waiting_worker.__file__)
        root = {"PYTHONPATH": str(program.parents[3])}
        arguments = [str(program), nats_url, TURN_AGENT, str(go)]
        worker = Process("worker", arguments, tmp_path, **root)
        endpoint = Process(
            "endpoint",
            ["-m", "chatlane", "ag-ui", "--file", str(file), "--port", "0"],
            tmp_path,
            CHATLANE_AG_UI_NATS_URL=nats_url,
        )
        await service.until_started(router)
        worker.start()
        begun = Stage(router, worker, endpoint, client, go)
        await begun.start_endpoint()
        try:
            yield begun
        finally:
            await endpoint.kill()
            await worker.kill()


async def test_each_run_ends_once(stage: Stage, nats_url: str) -> None:
    reading, run = await stage.begin("one")
    await stage.worker.kill()
    stage.worker.start()
    await stage.finish(reading, run, "one")

    reading, run = await stage.begin("two")
    await stage.router.kill()
    stage.router.start()
    await stage.finish(reading, run, "two")

    reading, run = await stage.begin("three")
    await stage.endpoint.kill()
    await reading
    assert run.has_failed
    await stage.start_endpoint()
    # The same message again joins the running turn.
    reading, run = await stage.begin("three")
    await stage.finish(reading, run, "three")

    await tools_and_questions(stage)
    await refuse(stage)
    # The same thread of another person is another conversation.
    assert (await stage.whole("look", by="ben")).text == "I found it."
    assert await said(nats_url) == [
        ["look"],
        ["one", "two", "three", "look", "ask", "Allow", "ask again"],
    ]
    assert "I begin" not in stage.log()


async def tools_and_questions(stage: Stage) -> None:
    """A run shows thoughts and tool calls; a question is an interrupt, which the next run answers."""
    run = await stage.whole("look")
    assert "".join(run.all("REASONING_MESSAGE_CONTENT", "delta")) == "Where is it?"
    assert run.all("TOOL_CALL_START", "toolCallName") == ["search"]
    assert run.all("TOOL_CALL_RESULT", "content") == ["Here."]
    assert run.text == "I found it."

    run = await stage.whole("ask", "Allow")
    assert not run.has_failed
    asked, answered, repeated = run.all("RUN_FINISHED", "outcome")
    [interrupt] = asked["interrupts"]
    assert (interrupt["message"], interrupt["reason"]) == ("May I?", "permission")
    assert interrupt["responseSchema"] == {"type": "string", "enum": ["Allow", "Deny"]}
    assert answered == repeated == {"type": "success"}
    chosen = "I begin ask, you chose allow."
    assert run.text.endswith(f"{chosen}{chosen}")
    [messages] = run.all("MESSAGES", "messages")
    assert [it["content"] for it in messages if it["role"] == "assistant"][-2:] == [chosen] * 2

    run = await stage.whole("ask again")
    assert not run.has_failed
    outcomes = [it["type"] for it in run.all("RUN_FINISHED", "outcome")]
    assert outcomes == ["interrupt", "cancelled", "cancelled"]


async def test_the_front_end_runs_each_call_of_its_tools_once(stage: Stage, nats_url: str) -> None:
    """A run ends with a call, and the next one brings the result, whatever is killed between them."""
    go = stage.go.with_name("tools")
    reading, run = await stage.start("paint", str(go), program="tools.mjs")
    await eventually(lambda: run.all("RUN_FINISHED", "outcome"), PATIENCE)
    assert run.all("TOOL_CALL_START", "toolCallName") == ["set_colour"]
    await stage.worker.kill()
    await stage.router.kill()
    stage.router.start()
    stage.worker.start()
    go.touch()
    await reading
    assert not run.has_failed
    colours = [json.loads(arguments)["colour"] for arguments in run.all("TOOL_CALL_ARGS", "delta")]
    assert colours == ["blue", "red", "blue"]
    assert len({*run.all("TOOL_CALL_START", "toolCallId")}) == 3
    assert run.all("RUN_FINISHED", "outcome") == [{"type": "success"}] * 4
    assert run.text == "I begin paint, It is blue. It is red. It is blue. Cart"
    [messages] = run.all("MESSAGES", "messages")
    # The same list again gets the same answer, and no call is made.
    asked = {"threadId": "thread", "runId": "again", "messages": messages[: messages_to(messages)]}
    assert (await posted(stage, asked)).count("TOOL_CALL_START") == 0
    assert await said(nats_url) == [["paint"]]
    assert "blue" not in stage.log()


async def test_the_agent_and_the_front_end_share_a_state(stage: Stage, nats_url: str) -> None:
    """A worker that is killed between two states sends them again; the next run has the last one."""
    reading, run = await stage.start("count", program="state.mjs")
    await eventually(lambda: run.all("STATE_SNAPSHOT", "snapshot"), PATIENCE)
    await stage.worker.kill()
    stage.worker.start()
    await eventually(lambda: len(run.all("STATE_SNAPSHOT", "snapshot")) == 2, PATIENCE)
    stage.go.touch()
    await reading
    assert not run.has_failed
    counts = [state["count"] for state in run.all("STATE_SNAPSHOT", "snapshot")]
    assert counts == [2, 2, 3, 4, 5]
    assert run.all("STATE", "state") == [{"count": 3}, {"count": 5}]
    first, second = "from 1 to 3", "from 3 to 5"
    assert run.text.replace("I begin count, ", "") == f"{first}{second}"
    assert run.all("RUN_FINISHED", "outcome") == [{"type": "success"}] * 2
    assert await said(nats_url) == [["count", "count"]]
    assert "snapshot" not in stage.log()


def messages_to(messages: list[dict[str, Any]]) -> int:
    """Return the place behind the last result in a list of messages."""
    return max(place for place, it in enumerate(messages, 1) if it["role"] == "tool")


async def posted(stage: Stage, body: dict[str, Any]) -> str:
    """Return the whole answer to a run."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKENS['ann']}"}) as http:
        response = await http.post(f"{stage.url}/main", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.text


async def refuse(stage: Stage) -> None:
    """What cannot be carried out is refused with a reason, and submits nothing."""
    words = {"id": "1", "role": "user", "content": "words"}
    answer = {"interruptId": "0" * 64, "status": "resolved", "payload": "Allow"}
    result = {"id": "2", "role": "tool", "content": "Done."}
    tool = {"name": "tool", "description": "It does something.", "parameters": {}}
    bodies: list[tuple[dict[str, object], str]] = [
        ({"messages": []}, "messages"),
        ({"messages": [words, {**words, "role": "assistant"}]}, "messages"),
        ({"messages": [{**words, "content": " "}]}, "messages"),
        ({"messages": [words, {**result, "toolCallId": "call_1"}]}, "messages"),
        ({"messages": [words, {**result, "toolCallId": "0" * 64}]}, "messages"),
        ({"messages": [words], "tools": [{**tool, "name": "two words"}]}, "tools.0.name"),
        ({"messages": [words], "tools": [tool, tool]}, "tools"),
        ({"messages": [words], "state": ["words"]}, "state"),
        ({"messages": [words], "state": {"words": "x" * 33_000}}, "state"),
        ({"messages": [words], "resume": [answer]}, "resume"),
        ({"messages": [words], "resume": [{**answer, "payload": 1}]}, "resume"),
        ({"messages": [words], "resume": [answer, answer]}, "resume"),
    ]
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {TOKENS['ann']}"}) as http:
        for body, param in bodies:
            asked = {"threadId": "thread", "runId": "run", **body}
            response = await http.post(f"{stage.url}/main", json=asked, timeout=60)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        unknown = await http.post(f"{stage.url}/other", json={})
        assert unknown.status_code == 404
    async with httpx.AsyncClient() as http:
        assert (await http.post(f"{stage.url}/main", json={})).status_code == 401


async def said(nats_url: str) -> list[list[str | None]]:
    """Return what people have said in each conversation, the newest conversation first."""
    async with open_connection(nats_url, name="test") as client:
        page = await SessionApi(client, principal="tests").list_page(origin="ag-ui")
        transcripts = TranscriptApi(client, principal="tests")
        rows = [await transcripts.newest(session.id) for session in page.sessions]
    return [[row.content for row in found if row.role is Role.USER] for found in rows]
