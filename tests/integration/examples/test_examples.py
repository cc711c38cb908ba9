"""Every example runs as it stands, in a process of its own, on a real server."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import RoutedMessage, TurnDelta, TurnNotice, decode, encode
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, routed_durable
from chatlane_schemas.turns import CancelReason, TurnControl
from chatlane_servers.embedded import free_port
from chatlane_servers.programs import Program
from tests.integration.client.fake_router import FakeRouter
from tests.integration.client.routing import (
    ACCOUNT,
    AGENTS,
    DESK,
    MAIN,
    PLATFORM,
    SLOTS,
    Chats,
    apply_topology,
    delivering,
    said,
)
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration

_numbers: Final = itertools.count(1)
EXAMPLES: Final = Path(__file__).parents[3] / "examples"


@pytest.fixture
async def bus_url(nats_url: str) -> str:
    await apply_topology(nats_url)
    return nats_url


@pytest.fixture
async def client(bus_url: str) -> AsyncIterator[Client]:
    async with open_connection(bus_url, name="test") as connection:
        yield connection


@pytest.fixture
async def router(bus_url: str) -> AsyncIterator[FakeRouter]:
    fake = FakeRouter(bus_url, AGENTS, SLOTS)
    async with fake.running():
        yield fake


@contextlib.asynccontextmanager
async def example(
    name: str, directory: Path, url: str, **environment: str
) -> AsyncIterator[Program]:
    """Run an example until the end of the block."""
    program = Program(
        f"{name} {next(_numbers)}",
        [str(EXAMPLES / f"{name}.py")],
        directory,
        {"NATS_URL": url, **environment},
    )
    program.start()
    try:
        yield program
    finally:
        await program.stop()


@pytest.mark.parametrize(
    "name",
    [
        "worker",
        "adapter",
        # These import large libraries.
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in (
                "llm_worker",
                "langgraph_worker",
                "openai_agents_worker",
                "claude_worker",
                "conform_worker",
            )
        ),
    ],
)
async def test_ctrl_c_while_no_server_answers_ends_without_a_traceback(
    name: str, tmp_path: Path
) -> None:
    url = f"nats://127.0.0.1:{free_port()}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(EXAMPLES / f"{name}.py")),
        cwd=tmp_path,
        env={**os.environ, "NATS_URL": url},
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        first = await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        rest = await process.stderr.read()
        assert await process.wait() == 0

    assert first.decode().startswith(f"nats_unreachable, still trying: {url[7:]}: ")
    assert rest.decode() == ""


# The plain subscriber.


class Deliveries:
    """Sees what the server hands out and what workers acknowledge, in the order of the server."""

    def __init__(self) -> None:
        self.started: dict[str, list[int]] = defaultdict(list)
        self.broken: list[str] = []
        self._open: dict[str, RoutedMessage] = {}
        self._by_position: dict[str, RoutedMessage] = {}

    async def on_message(self, message: Msg) -> None:
        if (message.reply or "").startswith("$JS.ACK.ROUTED."):
            self._on_delivery(message)
        elif message.subject.startswith("$JS.ACK.ROUTED."):
            self._on_acknowledgement(message)

    def _on_delivery(self, message: Msg) -> None:
        """Note a message on its way to a worker; the one before must be acknowledged."""
        routed = decode(RoutedMessage, message.data)
        session = str(routed.session_id)
        before = self._open.get(session)
        if before is not None and before.id != routed.id:
            self.broken.append(f"{routed.seq} started before {before.seq} was acknowledged")
        self._open[session] = routed
        self._by_position[self._position(message.reply)] = routed
        self.started[session].append(routed.seq)

    def _on_acknowledgement(self, message: Msg) -> None:
        routed = self._by_position.get(self._position(message.subject))
        if routed is not None and self._open.get(str(routed.session_id)) == routed:
            del self._open[str(routed.session_id)]

    @property
    def open_count(self) -> int:
        return len(self._open)

    @staticmethod
    def _position(subject: str) -> str:
        """Return the sequence in the stream, from `$JS.ACK.<stream>.<consumer>.<n>.<sequence>`."""
        return subject.split(".")[5]


@contextlib.asynccontextmanager
async def watched(url: str) -> AsyncIterator[Deliveries]:
    deliveries = Deliveries()
    async with open_connection(url, name="watcher") as client:
        # One subscription for both, or their callbacks would lose the order of the server.
        await client.subscribe(">", cb=deliveries.on_message)
        await client.flush()
        yield deliveries


async def pending(client: Client) -> int:
    """Return how many routed messages are handed out and not acknowledged."""
    infos = [
        await client.jetstream().consumer_info(StreamName.ROUTED, routed_durable(DESK.name, slot))
        for slot in range(SLOTS)
    ]
    return sum(info.num_ack_pending or 0 for info in infos)


def heard(answers: list[str | None]) -> list[str]:
    """Return what the subscriber repeated, without its number in the session."""
    return [(answer or "").partition(" heard: ")[2] for answer in answers]


@pytest.mark.slow
@pytest.mark.usefixtures("router")
async def test_two_subscribers_one_killed_keep_order_and_answer_once(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    chats = Chats()
    settings = {"AGENT": DESK.name, "SLOTS": str(SLOTS)}
    wanted = {str(chat): [f"{chat}/{n}" for n in range(12)] for chat in range(8)}

    async def publish(adapter: AdapterClient, numbers: range) -> None:
        for number in numbers:
            for chat, texts in wanted.items():
                await adapter.publish(said(texts[number], chat=chat, agent=DESK.name))

    async with (
        watched(bus_url) as deliveries,
        delivering(client, chats.deliver) as adapter,
        example("subscriber", tmp_path, bus_url, **settings) as first,
    ):
        await publish(adapter, range(4))
        await eventually(lambda: len(chats.messages) == 32)
        # Frozen with messages in its hands, then killed: they are the other one's after ack_wait.
        os.kill(first.pid or 0, signal.SIGSTOP)
        await publish(adapter, range(4, 8))
        await eventually(lambda: deliveries.open_count > 0)
        async with example("subscriber", tmp_path, bus_url, **settings):
            await first.kill()
            assert await pending(client) > 0
            await publish(adapter, range(8, 12))
            await eventually(lambda: len(chats.messages) >= 96, timeout=DESK.ack_wait * 4)
            await eventually(lambda: deliveries.open_count == 0)

    for chat, texts in wanted.items():
        assert heard(chats.texts(chat)) == texts
    assert deliveries.broken == []
    redelivered = [seqs for seqs in deliveries.started.values() if len(seqs) > 12]
    assert redelivered
    for seqs in deliveries.started.values():
        assert seqs == sorted(seqs)


@pytest.mark.usefixtures("router")
async def test_a_repeated_answer_is_kept_once(client: Client, bus_url: str, tmp_path: Path) -> None:
    """The worker died between its answer and the acknowledgement."""
    chats = Chats()
    async with delivering(client, chats.deliver) as adapter:
        await adapter.publish(said("hello", agent=DESK.name))
        async with example("subscriber", tmp_path, bus_url, AGENT=DESK.name, SLOTS=str(SLOTS)):
            await chats.until_said("#1 heard: hello")
        answers = await client.jetstream().stream_info(StreamName.RESULTS)
        assert answers.state.messages == 1

        # Handed out once more, as after a lost acknowledgement.
        for slot in range(SLOTS):
            await client.jetstream().reset_consumer(
                StreamName.ROUTED, routed_durable(DESK.name, slot), 1
            )
        async with example("subscriber", tmp_path, bus_url, AGENT=DESK.name, SLOTS=str(SLOTS)):

            async def is_acknowledged() -> bool:
                slots = [
                    await client.jetstream().consumer_info("ROUTED", routed_durable(DESK.name, it))
                    for it in range(SLOTS)
                ]
                return not any(it.num_pending or it.num_ack_pending for it in slots)

            await eventually(is_acknowledged)
    answers = await client.jetstream().stream_info(StreamName.RESULTS)
    assert answers.state.messages == 1
    assert chats.texts() == ["#1 heard: hello"]


@pytest.mark.slow
async def test_a_subscriber_outlives_a_killed_server(
    nats_server: RunningServer, tmp_path: Path
) -> None:
    await apply_topology(nats_server.url)
    chats = Chats()
    settings = {"AGENT": DESK.name, "SLOTS": str(SLOTS)}
    wanted = [f"{n}" for n in range(150)]
    async with (
        FakeRouter(nats_server.url, AGENTS, SLOTS).running(),
        open_connection(nats_server.url, name="test") as client,
        delivering(client, chats.deliver) as adapter,
        example("subscriber", tmp_path, nats_server.url, **settings),
    ):
        publishing = asyncio.gather(
            *(adapter.publish(said(it, chat=str(int(it) % 5), agent=DESK.name)) for it in wanted)
        )
        await eventually(lambda: len(chats.messages) >= 20)
        await nats_server.kill()
        await nats_server.start()
        await publishing
        await eventually(lambda: len(chats.messages) >= len(wanted), timeout=DESK.ack_wait * 6)
    for chat in range(5):
        assert heard(chats.texts(str(chat))) == wanted[chat::5]


# The turn worker and the adapter.


@pytest.mark.usefixtures("router")
async def test_the_worker_answers_with_what_it_knows_from_before(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    chats = Chats()
    async with (
        example("worker", tmp_path, bus_url) as worker,
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("hello"))
        await chats.until_said("You said: hello (after 0 earlier messages)")
        await adapter.publish(said("again"))
        await chats.until_said("You said: again (after 2 earlier messages)")
        await worker.stop()
        worker.require_success()


@pytest.mark.usefixtures("router")
@pytest.mark.parametrize("end", ["end of input", "Ctrl-C"])
async def test_the_adapter_publishes_what_is_typed_and_prints_answers(
    bus_url: str, tmp_path: Path, end: Literal["end of input", "Ctrl-C"]
) -> None:
    environment = {"NATS_URL": bus_url, "PLATFORM": PLATFORM, "ACCOUNT": ACCOUNT, "PERSON": "ann"}
    async with example("worker", tmp_path, bus_url):
        terminal = await asyncio.create_subprocess_exec(
            sys.executable,
            EXAMPLES / "adapter.py",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | environment,
        )
        assert terminal.stdin
        assert terminal.stdout
        assert terminal.stderr
        try:
            terminal.stdin.write(b"hello\n\n")
            async with asyncio.timeout(20):
                answer = await terminal.stdout.readline()
                if end == "Ctrl-C":
                    terminal.send_signal(signal.SIGINT)
                else:
                    terminal.stdin.close()
                complaints = await terminal.stderr.read()
                assert await terminal.wait() == 0
        finally:
            if terminal.returncode is None:
                terminal.kill()
                await terminal.wait()
    assert answer == b"main to ann: You said: hello (after 0 earlier messages)\n"
    assert b"Traceback" not in complaints


# The language model.


class FakeModel:
    """An endpoint that speaks `/chat/completions`: it says what it was told, word by word."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.status = "200 OK"
        self.url = ""
        self.may_end = asyncio.Event()
        self.may_end.set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{port}/v1"
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        assert head[0] == "POST /v1/chat/completions HTTP/1.1"
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        self.authorizations.append(headers.get("authorization", ""))
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append(body)
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Type: text/event-stream\r\n".encode())
        writer.write(b"Connection: close\r\n\r\n")
        for word in body["messages"][-1]["content"].split():
            event = {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]}
            writer.write(f"data: {json.dumps(event)}\n\n".encode())
            await writer.drain()
        await self.may_end.wait()
        writer.write(b'data: {"choices": [], "usage": {"total_tokens": 7}}\n\ndata: [DONE]\n\n')
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.mark.usefixtures("router")
async def test_the_model_worker_streams_and_knows_what_was_said(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    chats, model = Chats(), FakeModel()
    deltas = await client.subscribe(f"chat.v1.delta.{MAIN.name}.*")
    async with model.running():
        settings = {"LLM_BASE_URL": model.url, "LLM_MODEL": "tiny", "LLM_API_KEY": "k"}
        async with (
            example("llm_worker", tmp_path, bus_url, **settings) as worker,
            delivering(client, chats.deliver) as adapter,
        ):
            await adapter.publish(said("one two"))
            await chats.until_said("one two ")
            await adapter.publish(said("three"))
            await chats.until_said("three ")
            pieces = [decode(TurnDelta, (await deltas.next_msg(10)).data) for _ in range(3)]
            await worker.stop()
            worker.require_success()
    await deltas.unsubscribe()
    assert [(it.index, it.text) for it in pieces] == [(0, "one "), (1, "two "), (0, "three ")]
    assert model.authorizations == ["bearer k", "bearer k"]
    [_, second] = model.requests
    assert (second["model"], second["stream"]) == ("tiny", True)
    assert [(it["role"], it["content"]) for it in second["messages"]][1:] == [
        ("user", "one two"),
        ("assistant", "one two "),
        ("user", "three"),
    ]


@pytest.mark.usefixtures("router")
async def test_a_model_that_is_stopped_has_said_what_it_said(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    chats, model = Chats(), FakeModel()
    model.may_end.clear()
    deltas = await client.subscribe(f"chat.v1.delta.{MAIN.name}.*")
    async with (
        model.running(),
        example("llm_worker", tmp_path, bus_url, LLM_BASE_URL=model.url),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("one two"))
        _, last = [decode(TurnDelta, (await deltas.next_msg(10)).data) for _ in range(2)]
        stop = TurnControl(id="c", at=last.at, turn_id=last.turn_id, cancel=CancelReason.STOPPED)
        await client.publish(subjects.control(MAIN.name, last.turn_id), encode(stop))
        await chats.until_said("one two ")
        model.may_end.set()
    await deltas.unsubscribe()


async def test_a_model_that_refuses_fails_the_turn_once(
    client: Client, router: FakeRouter, bus_url: str, tmp_path: Path
) -> None:
    chats, model = Chats(), FakeModel()
    model.status = "400 Bad Request"
    async with (
        model.running(),
        example("llm_worker", tmp_path, bus_url, LLM_BASE_URL=model.url),
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("hello"))
        await eventually(lambda: len(chats.messages) == 1)
    [result] = router.results
    expected = "the model refused: the model answered, status 400"
    assert (result.retry, result.error) == (False, expected)
    assert len(model.requests) == 1


# The worker around hermes-agent.

# Stands for hermes-agent's module of this name: only what the example calls.
RUN_AGENT: Final = """
import os, threading

class AIAgent:
    def __init__(self, **options):
        self.options, self.interrupted = options, threading.Event()

    def interrupt(self, message=None):
        self.interrupted.set()

    def run_conversation(self, user_message, conversation_history=None):
        if user_message == "work":
            open(os.environ["WORKING_FILE"], "w").close()
            if self.interrupted.wait(30):
                open(os.environ["INTERRUPTED_FILE"], "w").close()
        before = [f"{row['role']}={row['content']}" for row in conversation_history]
        return {"final_response": f"{user_message} after {before} by {self.options['model']}"}
"""


@pytest.mark.usefixtures("router")
async def test_the_hermes_worker_answers_with_the_history(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    (tmp_path / "run_agent.py").write_text(RUN_AGENT)
    chats = Chats()
    settings = {"PYTHONPATH": str(tmp_path), "HERMES_MODEL": "tiny"}
    async with (
        example("hermes_worker", tmp_path, bus_url, **settings) as worker,
        delivering(client, chats.deliver) as adapter,
    ):
        await adapter.publish(said("one"))
        await chats.until_said("one after [] by tiny")
        await adapter.publish(said("two"))
        await chats.until_said(
            "two after ['user=one', 'assistant=one after [] by tiny'] by tiny",
        )
        await worker.stop()
        worker.require_success()


@pytest.mark.usefixtures("router")
async def test_the_hermes_worker_interrupts_an_agent_that_is_stopped(
    client: Client, bus_url: str, tmp_path: Path
) -> None:
    (tmp_path / "run_agent.py").write_text(RUN_AGENT)
    working, interrupted = tmp_path / "working", tmp_path / "interrupted"
    settings = {
        "PYTHONPATH": str(tmp_path),
        "WORKING_FILE": str(working),
        "INTERRUPTED_FILE": str(interrupted),
    }
    notices = await client.subscribe(subjects.turn(MAIN.name))
    async with (
        example("hermes_worker", tmp_path, bus_url, **settings),
        delivering(client, Chats().deliver) as adapter,
    ):
        await adapter.publish(said("work"))
        notice = decode(TurnNotice, (await notices.next_msg(10)).data)
        await eventually(working.exists)
        stop = TurnControl(
            id="c", at=notice.at, turn_id=notice.turn_id, cancel=CancelReason.STOPPED
        )
        await client.publish(subjects.control(MAIN.name, notice.turn_id), encode(stop))
        await eventually(interrupted.exists)
    await notices.unsubscribe()
