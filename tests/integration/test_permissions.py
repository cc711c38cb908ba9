"""The permissions as a real server enforces them: what each role may say and hear, and no more."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import api

from chatlane.bus.jetstream import JetStream
from chatlane.bus.topology import apply, verify
from chatlane.dev.binaries import server_directory
from chatlane.dev.servers import NatsServer, open_nats
from chatlane_schemas import Stage, permissions, subjects
from chatlane_schemas.permissions import PasswordVariable, Permissions, User
from chatlane_schemas.streams import (
    Delivery,
    StreamName,
    declared_durables,
    declared_streams,
    outbound_durable,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

PASSWORD: Final = "let-me-in-please"  # noqa: S105 - of a server that lives for one test
SESSION: Final = UUID("0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01")
SLOTS: Final = 2
CHAT: Final = subjects.chat_token("701")


@dataclass(frozen=True)
class Agent:
    name: str
    delivery: Delivery = "turns"
    ack_wait: timedelta = timedelta(minutes=2)


MAIN: Final = Agent("main")
SALES: Final = Agent("sales", "stream")
STREAMS: Final = declared_streams(4)
DURABLES: Final = declared_durables([MAIN, SALES], [("slack", "bot"), ("slack", "two")], SLOTS)

ROLES: Final[dict[str, Permissions]] = {
    "router": permissions.router("router"),
    "slack-bot": permissions.adapter("slack-bot", [("slack", "bot")]),
    "main-worker": permissions.worker("main-worker", MAIN),
    "sales-worker": permissions.worker("sales-worker", SALES, SLOTS),
    "web": permissions.front_end("web", [("slack", "bot")]),
    "ops": permissions.operator("ops"),
    "admin": permissions.admin("admin"),
}
READERS: Final = frozenset({"router", "ops", "admin"})

# Every subject that means something, and all that may publish on it.
MAY_PUBLISH: Final[dict[str, set[str] | frozenset[str]]] = {
    subjects.inbound("slack", "bot", CHAT): {"slack-bot", "ops"},
    subjects.inbound("slack", "two", CHAT): {"ops"},
    subjects.inbound("telegram", "bot", CHAT): {"ops"},
    subjects.routed("sales", 1, SESSION): {"router"},
    subjects.turn("main"): {"router"},
    subjects.result("main", SESSION): {"main-worker", "ops"},
    subjects.result("sales", SESSION): {"sales-worker", "ops"},
    subjects.result("other", SESSION): {"ops"},
    subjects.delta("main", SESSION): {"main-worker"},
    subjects.outbound("slack", "bot", CHAT): {"router"},
    subjects.event("session", "started"): {"router"},
    subjects.dead(Stage.INBOUND): {"router"},
    "chat.v1.log.1.slack.bot.none": set(),
    f"chat.v1.rlog.1.main.{SESSION}": set(),
    subjects.api("main-worker", "turn", "claim", "main"): {"main-worker"},
    subjects.api("main-worker", "turn", "renew", "main"): {"main-worker"},
    subjects.api("main-worker", "turn", "claim", "sales"): set(),
    subjects.api("main-worker", "transcript", "load", "main"): {"main-worker"},
    subjects.api("main-worker", "transcript", "load", "sales"): set(),
    subjects.api("main-worker", "transcript", "load"): set(),
    subjects.api("main-worker", "session", "get", "main"): {"main-worker"},
    subjects.api("main-worker", "session", "hold", "main"): {"main-worker"},
    subjects.api("main-worker", "session", "hold"): set(),
    subjects.api("main-worker", "session", "end", "main"): set(),
    subjects.api("main-worker", "session", "list"): set(),
    subjects.api_for_account("main-worker", "session", "get", "slack", "bot"): set(),
    subjects.api("sales-worker", "turn", "claim", "sales"): set(),
    subjects.api("sales-worker", "transcript", "load", "sales"): {"sales-worker"},
    subjects.api_for_account("web", "session", "end", "slack", "bot"): {"web"},
    subjects.api_for_account("web", "transcript", "load", "slack", "bot"): {"web"},
    subjects.api_for_account("web", "session", "end", "slack", "two"): set(),
    subjects.api("web", "session", "end"): set(),
    subjects.api("web", "session", "get", "main"): set(),
    subjects.api_for_account("slack-bot", "session", "get", "slack", "bot"): set(),
    subjects.api_for_account("ops", "session", "get", "slack", "two"): {"ops"},
    subjects.api("ops", "session", "get"): {"ops"},
    subjects.api("ops", "session", "peek"): {"ops"},
    subjects.api("ops", "session", "list"): {"ops"},
    subjects.api("ops", "transcript", "load"): {"ops"},
    subjects.api("ops", "turn", "claim", "main"): set(),
    subjects.api("admin", "session", "list"): set(),
    "_INBOX.ops.reply": {"router"},
    "_INBOX_ops.reply": set(),
    "$JS.API.STREAM.INFO.INBOUND": READERS,
    "$JS.API.STREAM.NAMES": {"ops"},
    "$JS.API.STREAM.CREATE.INBOUND": {"admin"},
    "$JS.API.STREAM.CREATE.OTHER": set(),
    "$JS.API.STREAM.UPDATE.INBOUND": {"admin"},
    "$JS.API.STREAM.DELETE.INBOUND": set(),
    "$JS.API.STREAM.PURGE.INBOUND": {"router"},
    "$JS.API.STREAM.PURGE.RESULTS": {"router"},
    "$JS.API.STREAM.PURGE.OUTBOUND": set(),
    "$JS.API.STREAM.MSG.DELETE.INBOUND": set(),
    "$JS.API.STREAM.SNAPSHOT.INBOUND": set(),
    "$JS.API.STREAM.MSG.GET.INBOUND": {"router"},
    "$JS.API.STREAM.MSG.GET.RESULTS": {"router"},
    "$JS.API.STREAM.MSG.GET.ROUTED": {"router"},
    "$JS.API.STREAM.MSG.GET.OUTBOUND": {"router"},
    "$JS.API.STREAM.MSG.GET.TURNS": {"router"},
    "$JS.API.STREAM.MSG.GET.EVENTS": {"ops"},
    "$JS.API.STREAM.MSG.GET.DEAD": {"ops"},
    "$JS.API.DIRECT.GET.INBOUND": set(),
    "$JS.API.CONSUMER.CREATE.INBOUND.r.chat.v1.log.1.*.*.*": {"router", "admin"},
    "$JS.API.CONSUMER.CREATE.OUTBOUND.x": {"admin"},
    "$JS.API.CONSUMER.CREATE.ROUTED.comparing.chat.v1.routed.*.*.*": {"router", "admin"},
    "$JS.API.CONSUMER.CREATE.ROUTED.sales-0.chat.v1.routed.sales.0.*": {"admin"},
    "$JS.API.CONSUMER.DELETE.ROUTED.comparing": {"router"},
    "$JS.API.CONSUMER.DELETE.ROUTED.sales-0": set(),
    "$JS.API.CONSUMER.MSG.NEXT.ROUTED.comparing": {"router"},
    "$JS.API.CONSUMER.DELETE.INBOUND.r": {"router"},
    "$JS.API.CONSUMER.DELETE.OUTBOUND.slack=bot": set(),
    "$JS.API.CONSUMER.MSG.NEXT.INBOUND.r": {"router"},
    "$JS.API.CONSUMER.MSG.NEXT.OUTBOUND.slack=bot": {"slack-bot"},
    "$JS.API.CONSUMER.MSG.NEXT.OUTBOUND.slack=two": set(),
    "$JS.API.CONSUMER.MSG.NEXT.TURNS.main": {"main-worker"},
    "$JS.API.CONSUMER.MSG.NEXT.ROUTED.sales-0": {"sales-worker"},
    "$JS.API.CONSUMER.MSG.NEXT.ROUTED.sales-2": set(),
    "$JS.API.CONSUMER.MSG.NEXT.ADVISORIES.routers": {"router"},
    "$JS.API.CONSUMER.INFO.OUTBOUND.slack=bot": READERS | {"slack-bot"},
    "$JS.API.CONSUMER.INFO.TURNS.main": READERS | {"main-worker"},
    "$JS.ACK.OUTBOUND.slack=bot.1.1.1.1.0": {"slack-bot"},
    "$JS.ACK._.hash.OUTBOUND.slack=bot.1.1.1.1.0": {"slack-bot"},
    "$JS.ACK.OUTBOUND.slack=two.1.1.1.1.0": set(),
    "$JS.ACK.TURNS.main.1.1.1.1.0": {"main-worker"},
    "$JS.ACK.ROUTED.sales-1.1.1.1.1.0": {"sales-worker"},
    "$JS.ACK.ADVISORIES.routers.1.1.1.1.0": {"router"},
    "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.ROUTED.sales-0": set(),
    "$SYS.REQ.SERVER.PING": set(),
    "anything": set(),
}

MAY_SUBSCRIBE: Final[dict[str, set[str] | frozenset[str]]] = {
    **{f"{permissions.inbox_prefix(role)}.*": {role} for role in ROLES},
    "_INBOX.>": set(),
    ">": set(),
    "chat.>": set(),
    "chat.v1.api.*.turn.claim.main": {"router"},
    "chat.v1.api.*.session.list": {"router"},
    "chat.v1.api.*.session.get.*.*": {"router"},
    "chat.v1.inbound.>": set(),
    "chat.v1.log.>": set(),
    "chat.v1.outbound.slack.bot.*": set(),
    "chat.v1.turn.main": set(),
    "chat.v1.delta.main.*": set(),
    "chat.v1.event.session.*": {"ops"},
    "chat.v1.event.session.ending": {"ops", "main-worker", "sales-worker"},
    "chat.v1.dead.*": {"ops"},
    "$JS.EVENT.>": set(),
    "$SYS.>": set(),
}


def server_config() -> str:
    """Return the users, each with a password given as a variable of the configuration."""
    users = [
        User(role, PasswordVariable(f"PASSWORD_{index}"), allowed)
        for index, (role, allowed) in enumerate(ROLES.items())
    ]
    variables = [f'PASSWORD_{index}: "{PASSWORD}"' for index in range(len(users))]
    return "\n".join([*variables, permissions.render(users)])


@contextlib.asynccontextmanager
async def open_guarded() -> AsyncIterator[NatsServer]:
    """Run a server with our permissions, and the streams its admin made."""
    with server_directory() as directory:
        async with open_nats(directory / "nats", extra_config=server_config()) as running:
            async with connected(running, "admin") as admin:
                await apply(JetStream(admin.client), STREAMS, DURABLES)
            yield running


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[NatsServer]:
    """A server that only says what is allowed; its streams fill with what is tried."""
    async with open_guarded() as running:
        yield running


@pytest.fixture
async def fresh_server() -> AsyncIterator[NatsServer]:
    """A server with empty streams."""
    async with open_guarded() as running:
        yield running


@dataclass
class Connection:
    """A client of one role, and what the server refused it."""

    client: Client
    refused: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def connected(server: NatsServer, role: str) -> AsyncIterator[Connection]:
    connection = Connection(Client())

    async def note(error: Exception) -> None:
        connection.refused.append(str(error))

    await connection.client.connect(
        server.url,
        user=role,
        password=PASSWORD,
        inbox_prefix=permissions.inbox_prefix(role),
        error_cb=note,
    )
    try:
        yield connection
    finally:
        await connection.client.close()


async def answers(server: NatsServer, credentials: dict[str, str], lines: list[str]) -> str:
    """Return what the server says to a connection that sends these lines.

    It answers in order, so every refusal comes before the answer to the PING at the end.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    said: list[bytes] = []
    try:
        sent = [f"CONNECT {json.dumps(credentials)}", *lines, "PING", ""]
        writer.write("\r\n".join(sent).encode())
        async with asyncio.timeout(10):
            while (line := await reader.readline()) not in (b"", b"PONG\r\n"):
                said.append(line)
    finally:
        writer.close()
    return b"".join(said).decode()


def as_role(role: str) -> dict[str, str]:
    return {"user": role, "pass": PASSWORD}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_publishes_only_what_is_its_own(server: NatsServer, role: str) -> None:
    lines = [f"PUB {subject} 0\r\n" for subject in MAY_PUBLISH]
    said = await answers(server, as_role(role), lines)
    allowed = {subject for subject in MAY_PUBLISH if f'Publish to "{subject}"' not in said}
    assert allowed == {subject for subject, roles in MAY_PUBLISH.items() if role in roles}


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_hears_only_what_is_its_own(server: NatsServer, role: str) -> None:
    lines = [f"SUB {subject} {number}" for number, subject in enumerate(MAY_SUBSCRIBE)]
    said = await answers(server, as_role(role), lines)
    allowed = {subject for subject in MAY_SUBSCRIBE if f'Subscription to "{subject}"' not in said}
    assert allowed == {subject for subject, roles in MAY_SUBSCRIBE.items() if role in roles}


@pytest.mark.parametrize(
    "credentials", [{}, {"user": "ops", "pass": "wrong"}, {"user": "root", "pass": PASSWORD}]
)
async def test_nobody_comes_in_without_a_password(
    server: NatsServer, credentials: dict[str, str]
) -> None:
    assert "Authorization Violation" in await answers(server, credentials, [])


async def test_a_router_verifies_what_the_admin_made(fresh_server: NatsServer) -> None:
    async with connected(fresh_server, "router") as router:
        assert await verify(JetStream(router.client), STREAMS, DURABLES) == []


async def test_the_work_of_every_role_is_allowed(fresh_server: NatsServer) -> None:
    """From a chat to an answer, with nothing but the permissions of each role."""
    async with (
        connected(fresh_server, "slack-bot") as adapter,
        connected(fresh_server, "router") as router,
        connected(fresh_server, "main-worker") as worker,
        connected(fresh_server, "sales-worker") as subscriber,
    ):
        await store(adapter, subjects.inbound("slack", "bot", CHAT))
        assert await read_log(router, "INBOUND", "chat.v1.log.*.*.*.*") == b"work"
        await store(router, subjects.turn("main"))
        await store(router, subjects.routed("sales", 1, SESSION))
        assert await take(worker, StreamName.TURNS, "main") == b"work"
        assert await take(subscriber, StreamName.ROUTED, "sales-1") == b"work"
        assert await ask_claim(router, worker) == b"yours"
        await store(worker, subjects.result("main", SESSION))
        await store(subscriber, subjects.result("sales", SESSION))
        assert await read_log(router, "RESULTS", "chat.v1.rlog.*.*.*") == b"work"
        await store(router, subjects.outbound("slack", "bot", CHAT))
        assert await take(adapter, StreamName.OUTBOUND, outbound_durable("slack", "bot")) == b"work"
        for connection in (adapter, router, worker, subscriber):
            assert connection.refused == []


async def store(connection: Connection, subject: str) -> None:
    await connection.client.jetstream().publish(subject, b"work")


async def take(connection: Connection, stream: StreamName, durable: str) -> bytes:
    """Read one message through a durable and wait until its acknowledgement is known."""
    jetstream = connection.client.jetstream()
    pull = await jetstream.pull_subscribe("", durable=durable, stream=stream)
    [message] = await pull.fetch(1, timeout=2)
    await message.ack_sync()
    return message.data


async def read_log(connection: Connection, stream: str, pattern: str) -> bytes:
    """Read the newest message of a log through a consumer of one's own."""
    jetstream = connection.client.jetstream()
    config = api.ConsumerConfig(
        name=f"reader-{stream}",
        ack_policy=api.AckPolicy.NONE,
        deliver_policy=api.DeliverPolicy.LAST,
        filter_subject=pattern,
        inactive_threshold=30,
    )
    await jetstream.add_consumer(stream, config)
    pull = await jetstream.pull_subscribe_bind(consumer=config.name, stream=stream)
    [message] = await pull.fetch(1, timeout=2)
    kept = await jetstream.get_msg(stream, message.metadata.sequence.stream)
    await jetstream.delete_consumer(stream, config.name or "")
    assert kept.data == message.data
    return message.data


async def ask_claim(router: Connection, worker: Connection) -> bytes:
    subject = subjects.api("main-worker", "turn", "claim", "main")

    async def answer(request: Msg) -> None:
        await request.respond(b"yours")

    await router.client.subscribe("chat.v1.api.*.turn.claim.main", queue="routers", cb=answer)
    await router.client.flush()
    return (await worker.client.request(subject, b"", timeout=2)).data


async def test_a_router_cannot_be_made_to_speak_for_others(fresh_server: NatsServer) -> None:
    """A request whose reply subject is no inbox gets no answer, and makes no event."""
    async with (
        connected(fresh_server, "router") as router,
        connected(fresh_server, "main-worker") as worker,
    ):
        jetstream = router.client.jetstream()
        before = (await jetstream.stream_info("INBOUND")).state.last_seq
        asked = asyncio.Event()

        async def answer(request: Msg) -> None:
            await request.respond(b"{}")
            asked.set()

        await router.client.subscribe("chat.v1.api.*.transcript.load.*", cb=answer)
        await router.client.flush()
        subject = subjects.api("main-worker", "transcript", "load", "main")
        forged = subjects.inbound("slack", "two", CHAT)
        await worker.client.publish(subject, b"", reply=forged)
        await asyncio.wait_for(asked.wait(), 5)
        await eventually(lambda: forged in " ".join(router.refused))
        assert (await jetstream.stream_info("INBOUND")).state.last_seq == before


async def test_an_undeliverable_message_reaches_the_routers(fresh_server: NatsServer) -> None:
    """The server's own notice is kept by a stream, and routers may read it."""
    async with (
        connected(fresh_server, "router") as router,
        connected(fresh_server, "sales-worker") as worker,
    ):
        acknowledged = await router.client.jetstream().publish(
            subjects.routed("sales", 0, SESSION), b"poison"
        )
        jetstream = worker.client.jetstream()
        pull = await jetstream.pull_subscribe("", durable="sales-0", stream=StreamName.ROUTED)
        for _ in range(5):
            [message] = await pull.fetch(1, timeout=2)
            await message.nak()
        with contextlib.suppress(nats.errors.TimeoutError):
            await pull.fetch(1, timeout=0.2)
        notice = await take(router, StreamName.ADVISORIES, "routers")
        assert f'"stream_seq":{acknowledged.seq}'.encode() in notice.replace(b" ", b"")
        stored = await router.client.jetstream().get_msg(StreamName.ROUTED, acknowledged.seq)
        assert stored.data == b"poison"
