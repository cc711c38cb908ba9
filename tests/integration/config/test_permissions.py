"""The shipped users as a real server has them: what each may say and hear, and no more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import nats.errors
import pytest
import trustme
from faststream.nats import NatsRouter
from nats.aio.msg import Msg
from nats.js import api
from typing_extensions import override

from chatlane.api.broker import open_api
from chatlane.config.nats_users import BusUsers, make_keys, new_seed, server_config
from chatlane.domain.catalog import Agent
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import ApiRefusedError, JetStream
from chatlane.nats.tasks import end_task
from chatlane.nats.topology import apply, verify
from chatlane.observability.metrics import Metrics
from chatlane_client import Refusal, open_connection
from chatlane_client.transport.secured import SecuredClient
from chatlane_devkit.contract import ACCOUNTS, REPOSITORY
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    StreamName,
    declared_durables,
    declared_streams,
    outbound_durable,
)
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats
from tests.integration.config import permission_matrix
from tests.support.backups.stream_backup import back_up, restore
from tests.support.eventually import eventually
from tests.support.servers.secured_nats import (
    SHIPPED,
    Connection,
    SecuredNats,
    connected,
    open_secured_nats,
)

pytestmark = pytest.mark.integration

SESSION: Final = UUID("0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01")
CHAT: Final = subjects.chat_token("701")
# One on which all that is shipped holds, and the last one of who is left out.
SOME_DAY: Final = date(2026, 7, 1)
LAST_DAY: Final = date(2026, 6, 30)
SEEN_WITHIN: Final = timedelta(seconds=5)
ACCOUNT: Final = ("telegram", "assistant")
STREAMS: Final = declared_streams(4)
# What fits into the room that `staging` is given.
SMALL_STREAMS: Final = declared_streams(4, max_bytes=dict.fromkeys(StreamName, 16 * 1024 * 1024))
DURABLES: Final = declared_durables(
    [Agent("main"), Agent("notes", "stream")], [ACCOUNT, ("slack", "workbot")], 2
)
EVERYBODY: Final = [f"{environment}/{name}" for environment, name in permission_matrix.users()]


@pytest.fixture(scope="module")
async def tried_server() -> AsyncIterator[SecuredNats]:
    """A server that everything is tried on."""
    async with open_secured_nats() as running:
        yield running


@pytest.fixture
async def server() -> AsyncIterator[SecuredNats]:
    """A server with empty streams in its environment `production`."""
    async with open_secured_nats() as running:
        async with connected(running, "provisioner") as provisioner:
            await apply(JetStream(provisioner.client), STREAMS, DURABLES)
            assert provisioner.refused == []
        yield running


# Who may do what.


@pytest.mark.parametrize("place", EVERYBODY)
async def test_a_user_may_do_what_the_reviewed_file_says_and_nothing_else(
    tried_server: SecuredNats, place: str
) -> None:
    """If this is what you want, `make permissions` writes the file, for a review."""
    environment, user = place.split("/")
    allowed = await permission_matrix.allowed(tried_server, environment, user)
    rows = permission_matrix.reviewed()
    expected = [row for row in rows if (row.environment, row.user) == (environment, user)]
    assert sorted(allowed) == expected


def test_the_reviewed_file_lists_nobody_else() -> None:
    listed = {f"{row.environment}/{row.user}" for row in permission_matrix.reviewed()}
    assert listed == set(EVERYBODY)


def test_the_shipped_configuration_is_what_the_generator_makes_of_the_shipped_users() -> None:
    made = server_config(SHIPPED, SOME_DAY)
    assert (REPOSITORY / ACCOUNTS).read_text("utf-8") == made
    assert "(until 2026-06-30)" in made


# Who may not come in.


async def test_nobody_comes_in_without_a_key(tried_server: SecuredNats) -> None:
    assert "Authorization Violation" in await tried_server.answers(None, [])


async def test_nobody_comes_in_with_a_key_that_is_not_listed(
    server: SecuredNats, tmp_path: Path
) -> None:
    seed = tmp_path / "stranger.nk"
    seed.write_bytes(new_seed())
    options = replace(server.options("production/router"), nkey_seed_file=seed)
    assert await is_refused(options)


async def test_who_was_taken_out_is_disconnected_and_stays_out(server: SecuredNats) -> None:
    async with (
        connected(server, "telegram-assistant") as revoked,
        connected(server, "slack-workbot") as other,
    ):
        await server.reload(without("telegram-assistant"), SOME_DAY)
        await eventually(lambda: is_out(revoked))
        assert other.is_connected
        await store(other, subjects.inbound("slack", "workbot", CHAT))
        assert other.refused == []
    assert await is_refused(server.options("production/telegram-assistant"))


async def test_whose_time_is_over_is_disconnected_and_stays_out(server: SecuredNats) -> None:
    """The day after the last one, with the configuration of that day."""
    await server.reload(SHIPPED, LAST_DAY)
    async with connected(server, "migration") as contractor:
        await contractor.client.request("$JS.API.STREAM.NAMES", timeout=5)
        await server.reload(SHIPPED, SOME_DAY)
        await eventually(lambda: is_out(contractor))
    assert await is_refused(server.options("production/migration"))


async def test_a_key_is_replaced_while_its_user_stays_connected(
    server: SecuredNats, tmp_path: Path
) -> None:
    """Both are good for a while; a connection that comes again takes what the file holds then."""
    place, name = "production/telegram-assistant", "telegram-assistant"
    fresh = make_keys(SHIPPED, tmp_path)[place]
    [former] = SHIPPED.environments["production"].users[name].nkeys
    async with connected(server, name) as adapter:
        await server.reload(with_nkeys(name, former, fresh), SOME_DAY)
        server.seed_file(place).write_bytes((tmp_path / f"{place}.nk").read_bytes())
        await adapter.client.force_reconnect()
        await eventually(lambda: adapter.is_connected)
        await server.reload(with_nkeys(name, fresh), SOME_DAY)
        await store(adapter, subjects.inbound(*ACCOUNT, CHAT))
        assert adapter.refused == []


def is_out(connection: Connection) -> bool:
    """Return whether a connection that stood was ended, and is not let in again."""
    return not connection.is_connected and "connect" in [its.what for its in connection.refused]


async def is_refused(options: BusOptions) -> bool:
    """Return whether the server does not let somebody in."""
    bus = Bus()
    trying = asyncio.create_task(bus.connect(options))
    try:
        await eventually(lambda: bus.refusal is not None or bus.is_connected)
    finally:
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)
        await bus.close()
    return bus.refusal is not None and bus.refusal.what == "connect"


def document() -> dict[str, Any]:
    return SHIPPED.model_dump(exclude_none=True)


def without(name: str) -> BusUsers:
    """Return the shipped users without one of production."""
    users = document()
    del users["environments"]["production"]["users"][name]
    return BusUsers.model_validate(users)


def with_nkeys(name: str, *keys: str) -> BusUsers:
    """Return the shipped users with other keys of one of production."""
    users = document()
    users["environments"]["production"]["users"][name]["nkeys"] = keys
    return BusUsers.model_validate(users)


# Nothing in plain text, and nobody in the server's place.


async def test_a_connection_that_is_not_encrypted_is_not_served(tried_server: SecuredNats) -> None:
    port = tried_server.server.port
    reader, writer = await asyncio.open_connection("localhost", port)
    await reader.readline()
    writer.write(b"CONNECT {}\r\nPING\r\n")
    async with asyncio.timeout(10):
        assert b"PONG" not in await reader.read()
    writer.close()


async def test_a_server_of_another_authority_is_not_told_who_we_are(
    tried_server: SecuredNats, tmp_path: Path
) -> None:
    foreign = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(foreign))
    options = replace(tried_server.options("production/router"), tls_ca_file=foreign)
    assert "certificate verify failed" in await why_not(options)


async def test_a_server_that_is_not_trusted_is_tried_again_and_left_at_once(
    tried_server: SecuredNats, tmp_path: Path
) -> None:
    """By a router and by a client: it may be another one the next time, or get its certificate."""
    foreign = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(str(foreign))
    options = replace(tried_server.options("production/router"), tls_ca_file=foreign)
    tried: list[Exception] = []

    class Trying(Bus):
        @override
        async def _error(self, error: Exception) -> None:
            tried.append(error)

    async def note(error: Exception) -> None:
        tried.append(error)

    bus, client = Trying(), SecuredClient()
    for connecting, close in (
        (bus.connect(options), bus.close),
        (client.connect(**{**options.connect_arguments(), "error_cb": note}), client.close),
    ):
        tried.clear()
        trying = asyncio.create_task(connecting)
        await eventually(lambda: len(tried) > 1)
        await end_task(trying)
        async with asyncio.timeout(5):
            await close()


async def test_a_server_that_says_nothing_more_is_left_soon(server: SecuredNats) -> None:
    """TLS would wait half a minute for its goodbye, at an end and before another one is dialled."""
    options = server.options("production/router")
    bus, client = Bus(), SecuredClient()
    await bus.connect(options)
    await client.connect(**options.connect_arguments())
    server.server.pause()
    try:
        async with asyncio.timeout(10):
            await bus.close()
            await client.close()
    finally:
        server.server.resume()


async def test_a_server_of_another_name_is_not_told_who_we_are(tried_server: SecuredNats) -> None:
    """Its certificate is good, but not for the address that was dialled."""
    url = f"tls://127.0.0.1:{tried_server.server.port}"
    options = replace(tried_server.options("production/router"), url=url)
    assert "certificate is not valid for '127.0.0.1'" in await why_not(options)


async def test_a_server_that_does_not_encrypt_is_not_told_who_we_are(
    tried_server: SecuredNats,
) -> None:
    """Whoever takes the server's place could do that to read along."""
    with server_directory() as directory:
        async with open_nats(directory / "nats") as plain:
            options = tried_server.options("production/router")
            for url in (plain.url, plain.url.replace("nats://", "tls://")):
                assert "does not speak TLS" in await why_not(replace(options, url=url))
            address_alone = BusOptions(url=plain.url.replace("nats://", "tls://"))
            assert "does not speak TLS" in await why_not(address_alone)


async def test_a_client_leaves_a_server_alone_that_does_not_encrypt(
    tried_server: SecuredNats, caplog: pytest.LogCaptureFixture
) -> None:
    with server_directory() as directory:
        async with open_nats(directory / "nats") as plain:

            async def connect() -> None:
                ca_file = str(tried_server.ca_file)
                async with open_connection(plain.url, name="adapter", tls_ca_file=ca_file):
                    raise AssertionError("it connected")

            trying = asyncio.create_task(connect())
            await eventually(
                lambda: "does not speak TLS" in str([vars(its) for its in caplog.records])
            )
            trying.cancel()
            await asyncio.gather(trying, return_exceptions=True)


async def why_not(options: BusOptions) -> str:
    """Return what keeps a connection from coming up."""
    told: list[str] = []

    class Trying(Bus):
        @override
        async def _error(self, error: Exception) -> None:
            told.append(str(error))

    bus = Trying()
    trying = asyncio.create_task(bus.connect(options))
    try:
        await eventually(lambda: told or bus.is_connected)
    finally:
        trying.cancel()
        await asyncio.gather(trying, return_exceptions=True)
        await bus.close()
    return told[0]


# Backups.


async def test_streams_are_backed_up_and_restored_with_the_rights_for_it(
    server: SecuredNats,
) -> None:
    async with (
        connected(server, "provisioner", "staging") as provisioner,
        connected(server, "telegram-assistant", "staging") as adapter,
        connected(server, "router", "staging") as router,
        connected(server, "backup", "staging") as backup,
        connected(server, "restorer", "staging") as restorer,
    ):
        await apply(JetStream(provisioner.client), SMALL_STREAMS, DURABLES)
        subject = subjects.inbound("telegram", "assistant", CHAT)
        await store(adapter, subject)
        kept = [await back_up(backup.client, name) for name in StreamName]
        await store(adapter, subject)
        before = await JetStream(router.client).get_stream("INBOUND")
        assert before.last_sequence == 2
        for one in kept:
            await restore(restorer.client, one)
        after = await JetStream(router.client).get_stream("INBOUND")
        assert after.last_sequence == 1
        assert await verify(JetStream(router.client), SMALL_STREAMS, DURABLES) == []
        for connection in (provisioner, adapter, router, backup, restorer):
            assert connection.refused == []


# Other environments.


async def test_an_environment_sees_nothing_of_another_one(server: SecuredNats) -> None:
    async with (
        connected(server, "telegram-assistant") as adapter,
        connected(server, "operator") as operator,
        connected(server, "router", "staging") as stranger,
        connected(server, "provisioner", "staging") as provisioner,
    ):
        heard: list[Msg] = []

        async def hear(message: Msg) -> None:
            heard.append(message)

        await stranger.client.subscribe("chat.v1.api.*.*.*", cb=hear)
        await heard_by_server(stranger)
        await store(adapter, subjects.inbound(*ACCOUNT, CHAT))
        asked = subjects.api("operator", "session", "list")
        with pytest.raises(nats.errors.NoRespondersError):
            await operator.client.request(asked, timeout=5)
        with pytest.raises(ApiRefusedError, match="stream not found"):
            await JetStream(stranger.client).get_stream("INBOUND")
        await apply(JetStream(provisioner.client), SMALL_STREAMS, DURABLES)
        assert (await JetStream(stranger.client).get_stream("INBOUND")).last_sequence == 0
        assert (await JetStream(operator.client).get_stream("INBOUND")).last_sequence == 1
        await heard_by_server(stranger)
        assert heard == []
        for connection in (adapter, operator, stranger, provisioner):
            assert connection.refused == []


# What is refused is seen.


async def test_what_the_server_refuses_is_counted_within_seconds(server: SecuredNats) -> None:
    """By kind: a publish, whose caller sees a timeout at most; a subscription; a connection."""
    metrics = Metrics()

    def shown(what: str) -> bool:
        return f'chatlane_nats_refused_total{{what="{what}"}} 1.0' in metrics.render().decode()

    def count(refusal: Refusal) -> None:
        metrics.nats_refused.labels(refusal.what).inc()

    async with open_bus(server.options("production/router"), count) as bus:
        assert 'chatlane_nats_refused_total{what="publish"} 0.0' in metrics.render().decode()
        await bus.client.publish(subjects.inbound(*ACCOUNT, CHAT), b"forged")
        await eventually(lambda: shown("publish"), SEEN_WITHIN)
        await bus.client.subscribe("chat.v1.inbound.>")
        await eventually(lambda: shown("subscribe"), SEEN_WITHIN)
        await server.reload(without("router"), SOME_DAY)
        await eventually(lambda: shown("connect"), SEEN_WITHIN)


async def test_what_the_server_refuses_the_api_is_counted_too(server: SecuredNats) -> None:
    refused: list[Refusal] = []
    async with open_api(
        server.options("production/router"),
        NatsRouter(),
        on_closed=lambda: None,
        on_refused=refused.append,
    ) as broker:
        await broker.connection.publish("chat.v1.inbound.telegram.assistant.none", b"")
        await eventually(lambda: [its.what for its in refused] == ["publish"], SEEN_WITHIN)


async def test_an_adapter_is_told_what_the_server_refuses(server: SecuredNats) -> None:
    refused: list[Refusal] = []
    async with open_connection(
        server.url,
        name="adapter",
        principal="telegram-assistant",
        nkey_seed_file=str(server.seed_file("production/telegram-assistant")),
        tls_ca_file=str(server.ca_file),
        on_refused=refused.append,
    ) as client:
        foreign = subjects.inbound("slack", "workbot", CHAT)
        await client.publish(foreign, b"forged")
        await eventually(lambda: len(refused) == 1, SEEN_WITHIN)
        assert refused[0].what == "publish"
        assert foreign in refused[0].detail
        await client.subscribe("chat.v1.outbound.>")
        await eventually(lambda: [its.what for its in refused] == ["publish", "subscribe"])


# What they may do is enough for their work.


async def test_a_router_verifies_what_the_provisioner_made(server: SecuredNats) -> None:
    async with connected(server, "router") as router:
        assert await verify(JetStream(router.client), STREAMS, DURABLES) == []


async def test_the_work_of_every_role_is_allowed(server: SecuredNats) -> None:
    """From a chat to an answer, with nothing but the permissions of each role."""
    async with (
        connected(server, "telegram-assistant") as adapter,
        connected(server, "router") as router,
        connected(server, "main-worker") as worker,
        connected(server, "notes-worker") as subscriber,
    ):
        await store(adapter, subjects.inbound(*ACCOUNT, CHAT))
        assert await read_log(router, "INBOUND", "chat.v1.log.*.*.*.*") == b"work"
        await store(router, subjects.turn("main"))
        await store(router, subjects.routed("notes", 1, SESSION))
        assert await take(worker, StreamName.TURNS, "main") == b"work"
        assert await take(subscriber, StreamName.ROUTED, "notes-1") == b"work"
        assert await ask_claim(router, worker) == b"yours"
        await store(worker, subjects.result("main", SESSION))
        await store(subscriber, subjects.result("notes", SESSION))
        assert await read_log(router, "RESULTS", "chat.v1.rlog.*.*.*") == b"work"
        await store(router, subjects.outbound(*ACCOUNT, CHAT))
        assert await take(adapter, StreamName.OUTBOUND, outbound_durable(*ACCOUNT)) == b"work"
        for connection in (adapter, router, worker, subscriber):
            assert connection.refused == []


async def store(connection: Connection, subject: str) -> None:
    await connection.client.jetstream().publish(subject, b"work")


async def heard_by_server(router: Connection) -> None:
    """Return once the server has all that a router sent; the ping of `flush` may overtake it."""
    inbox = router.client.new_inbox()
    echo = await router.client.subscribe(inbox)
    await router.client.publish(inbox)
    await echo.next_msg(timeout=5)


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
    await heard_by_server(router)
    return (await worker.client.request(subject, b"", timeout=2)).data


async def test_a_router_answers_in_the_account_of_who_asks(server: SecuredNats) -> None:
    """Whatever reply subject is named: nothing is said where the streams are."""
    async with (
        connected(server, "router") as router,
        connected(server, "main-worker") as worker,
    ):
        jetstream = router.client.jetstream()
        before = (await jetstream.stream_info("INBOUND")).state.last_seq
        replies: list[str] = []

        async def answer(request: Msg) -> None:
            await request.respond(b"{}")
            replies.append(request.reply)

        await router.client.subscribe("chat.v1.api.*.transcript.load.*", cb=answer)
        await heard_by_server(router)
        subject = subjects.api("main-worker", "transcript", "load", "main")
        forged = subjects.inbound("slack", "workbot", CHAT)
        await worker.client.publish(subject, b"", reply=forged)
        await eventually(lambda: replies)
        assert (await worker.client.request(subject, b"", timeout=5)).data == b"{}"
        assert all(its.startswith("_R_.") for its in replies)
        assert (await jetstream.stream_info("INBOUND")).state.last_seq == before
        assert router.refused == worker.refused == []


async def test_nobody_names_a_subject_that_the_server_makes_for_answers(
    server: SecuredNats,
) -> None:
    async with (
        connected(server, "main-worker") as worker,
        connected(server, "eraser") as eraser,
    ):
        subject = subjects.api("main-worker", "transcript", "load", "main")
        for connection in (worker, eraser):
            await connection.client.publish(subject, b"", reply="_R_.abc.def")
            await eventually(partial(was_refused, connection))


def was_refused(connection: Connection) -> bool:
    return connection.refused != []


async def test_an_undeliverable_message_reaches_the_routers(server: SecuredNats) -> None:
    """The server's own notice is kept by a stream, and routers may read it."""
    async with (
        connected(server, "router") as router,
        connected(server, "notes-worker") as worker,
    ):
        acknowledged = await router.client.jetstream().publish(
            subjects.routed("notes", 0, SESSION), b"poison"
        )
        jetstream = worker.client.jetstream()
        pull = await jetstream.pull_subscribe("", durable="notes-0", stream=StreamName.ROUTED)
        for _ in range(5):
            [message] = await pull.fetch(1, timeout=2)
            await message.nak()
        with contextlib.suppress(nats.errors.TimeoutError):
            await pull.fetch(1, timeout=0.2)
        notice = await take(router, StreamName.ADVISORIES, "routers")
        assert f'"stream_seq":{acknowledged.seq}'.encode() in notice.replace(b" ", b"")
        stored = await router.client.jetstream().get_msg(StreamName.ROUTED, acknowledged.seq)
        assert stored.data == b"poison"
