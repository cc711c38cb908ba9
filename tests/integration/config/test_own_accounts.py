"""What nats-server does for a user whose account imports what is in another one.

Each test pins something that the configuration made of the users relies on.
"""

import contextlib
import json
from collections.abc import AsyncIterator
from datetime import date
from functools import partial
from typing import Final

import nats.errors
import nats.js.errors
import pytest
from nats.aio.msg import Msg

from chatlane.config.nats_users import MAX_SUBSCRIPTIONS, BusUsers
from chatlane.domain.catalog import Agent
from chatlane.nats.jetstream import ApiRefusedError, JetStream
from chatlane.nats.topology import apply
from chatlane_client import AdapterClient
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    StreamName,
    declared_durables,
    declared_streams,
    outbound_durable,
)
from tests.integration.config.hostile_users import in_one_account
from tests.support.eventually import eventually
from tests.support.servers.secured_nats import (
    SHIPPED,
    Connection,
    SecuredNats,
    connected,
    open_secured_nats,
)

pytestmark = pytest.mark.integration

ACCOUNT: Final = ("telegram", "assistant")
ADAPTER: Final = "telegram-assistant"
OTHER_ACCOUNT: Final = ("slack", "workbot")
OTHER_ADAPTER: Final = "slack-workbot"
CHAT: Final = subjects.chat_token("701")
DURABLE: Final = outbound_durable(*ACCOUNT)
OUTBOUND: Final = subjects.outbound(*ACCOUNT, CHAT)
NEXT: Final = f"$JS.API.CONSUMER.MSG.NEXT.OUTBOUND.{DURABLE}"
DAY: Final = date(2026, 7, 1)
LOST_STREAM: Final = "$JS.API.STREAM.DELETE.EVENTS"

# The second begins with a domain and a hash of the account.
ACK_FORMS: Final = {"first": "", "second": "feature_flags { js_ack_fc_v2: true }\n"}


@pytest.fixture(params=ACK_FORMS)
async def either_server(request: pytest.FixtureRequest) -> AsyncIterator[SecuredNats]:
    """A server with streams that names acknowledgements in one of the two forms."""
    flags = ACK_FORMS[request.param]
    async with open_secured_nats(lambda config: flags + config) as running:
        await provision(running)
        yield running


@pytest.fixture
async def server() -> AsyncIterator[SecuredNats]:
    async with open_secured_nats() as running:
        await provision(running)
        yield running


async def provision(server: SecuredNats) -> None:
    durables = declared_durables([Agent("main"), Agent("notes", "stream")], [ACCOUNT], 2)
    async with connected(server, "provisioner") as provisioner:
        await apply(JetStream(provisioner.client), declared_streams(4), durables)


async def say(server: SecuredNats, *bodies: bytes) -> None:
    """Store messages for the account, as a router does."""
    async with connected(server, "router") as router:
        for body in bodies:
            await router.client.jetstream().publish(OUTBOUND, body)


class Reading:
    """What comes to an inbox of an adapter for its requests for messages."""

    def __init__(self, adapter: Connection) -> None:
        self.adapter = adapter
        self.inbox = adapter.client.new_inbox()

    async def begin(self) -> None:
        self._arriving = await self.adapter.client.subscribe(self.inbox)

    async def ask(self, **request: object) -> None:
        await self.adapter.client.publish(NEXT, json.dumps(request).encode(), reply=self.inbox)

    async def next(self) -> Msg:
        return await self._arriving.next_msg(timeout=5)

    async def status(self) -> str:
        return ((await self.next()).headers or {})["Status"]


async def unread(server: SecuredNats) -> tuple[int, int]:
    """Return how many messages were not delivered, and how many not acknowledged."""
    async with connected(server, ADAPTER) as adapter:
        info = await JetStream(adapter.client).request(f"CONSUMER.INFO.OUTBOUND.{DURABLE}")
        return info["num_pending"], info["num_ack_pending"]


async def test_several_messages_come_for_one_request(server: SecuredNats) -> None:
    await say(server, *(b"%d" % number for number in range(5)))
    async with connected(server, ADAPTER) as adapter:
        reading = Reading(adapter)
        await reading.begin()
        await reading.ask(batch=5, expires=5_000_000_000)
        got = [await reading.next() for _ in range(5)]
        assert [its.data for its in got] == [b"0", b"1", b"2", b"3", b"4"]
        assert {its.subject for its in got} == {OUTBOUND}


async def test_the_server_says_how_a_request_ends(server: SecuredNats) -> None:
    """No message, no message in time, heartbeats meanwhile, and what it does not understand."""
    async with connected(server, ADAPTER) as adapter:
        reading = Reading(adapter)
        await reading.begin()
        await reading.ask(batch=1, no_wait=True)
        assert await reading.status() == "404"
        await reading.ask(batch=1, expires=50_000_000)
        assert await reading.status() == "408"
        await reading.ask(batch=1, expires=900_000_000, idle_heartbeat=200_000_000)
        said = [await reading.status()]
        while said[-1] == "100":
            said.append(await reading.status())
        assert said[0] == "100"
        assert said[-1] == "408"
        await reading.ask(batch=1, expires="never")
        assert await reading.status() == "400"


async def test_every_acknowledgement_counts(either_server: SecuredNats) -> None:
    server = either_server
    await say(server, b"a", b"b", b"c", b"d", b"e")
    async with connected(server, ADAPTER) as adapter:
        reading = Reading(adapter)
        await reading.begin()
        await reading.ask(batch=1, no_wait=True)
        first = await reading.next()
        assert len(first.reply.split(".")) == (9 if first.reply.startswith("$JS.ACK.OUTB") else 11)
        await first.ack_sync()
        assert await unread(server) == (4, 0)

        await reading.ask(batch=1, no_wait=True)
        second = await reading.next()
        await second.in_progress()
        # It is waited for, as a request for the next message could overtake it.
        await adapter.client.request(second.reply, b"-NAK", timeout=5)
        await reading.ask(batch=1, expires=5_000_000_000)
        assert (await reading.next()).data == b"b"

        await reading.ask(batch=1, no_wait=True)
        third = await reading.next()
        # Acknowledge it and have the next one come.
        await adapter.client.publish(third.reply, b"+NXT", reply=reading.inbox)
        fourth = await reading.next()
        assert fourth.data == b"d"
        await fourth.term()
        await eventually(lambda: is_unread(server, (1, 1)))
        assert adapter.refused == []


async def is_unread(server: SecuredNats, expected: tuple[int, int]) -> bool:
    return await unread(server) == expected


async def test_a_request_of_who_is_gone_takes_no_message(server: SecuredNats) -> None:
    """The server knows that nobody waits there any more, though it is another account."""
    async with connected(server, ADAPTER) as adapter:
        gone = Reading(adapter)
        await gone.begin()
        await gone.ask(batch=5, expires=60_000_000_000)
        await adapter.client.flush()
    await say(server, b"a")
    async with connected(server, ADAPTER) as adapter:
        reading = Reading(adapter)
        await reading.begin()
        await reading.ask(batch=1, expires=5_000_000_000)
        assert (await reading.next()).data == b"a"


async def test_a_stream_confirms_and_knows_what_was_published_before(server: SecuredNats) -> None:
    async with connected(server, ADAPTER) as adapter:
        jetstream = adapter.client.jetstream()
        subject = subjects.inbound(*ACCOUNT, CHAT)
        first = await jetstream.publish(subject, b"a", headers={"Nats-Msg-Id": "one"})
        again = await jetstream.publish(subject, b"a", headers={"Nats-Msg-Id": "one"})
        assert (first.stream, first.seq, again.seq, again.duplicate) == ("INBOUND", 1, 1, True)
    async with connected(server, "router") as router:
        stored = await router.client.jetstream().get_msg("INBOUND", 1)
        # Nothing about who published it was added.
        assert stored.headers == {"Nats-Msg-Id": "one"}


async def test_who_asks_is_told_at_once_that_no_router_listens(server: SecuredNats) -> None:
    async with connected(server, "main-worker") as worker:
        subject = subjects.api("main-worker", "turn", "claim", "main")
        with pytest.raises(nats.errors.NoRespondersError):
            await worker.client.request(subject, b"", timeout=5)


async def test_what_is_not_stored_is_heard_in_other_accounts(server: SecuredNats) -> None:
    """What workers are told of their turns, that sessions will end, and what observers watch."""
    async with (
        connected(server, "router") as router,
        connected(server, "main-worker") as worker,
        connected(server, "observer") as observer,
    ):
        heard: set[tuple[str, str]] = set()

        async def hear(who: str, message: Msg) -> None:
            heard.add((who, message.subject))

        soon, turns = subjects.ending("main"), subjects.control_filter("main")
        for subject in (soon, turns):
            await worker.client.subscribe(subject, cb=partial(hear, "worker"))
        events = subjects.wildcards(subjects.EVENT)
        await observer.client.subscribe(events, cb=partial(hear, "observer"))
        turn = turns.replace("*", "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a02")

        async def all_have_heard() -> bool:
            # Until the server knows all subscriptions.
            await router.client.publish(turn, b"stop")
            await router.client.jetstream().publish(soon, b"soon")
            return heard == {("worker", turn), ("worker", soon), ("observer", soon)}

        await eventually(all_have_heard)
        assert worker.refused == observer.refused == []


async def test_an_observer_reads_events_and_how_streams_are(server: SecuredNats) -> None:
    async with connected(server, "router") as router, connected(server, "observer") as observer:
        await router.client.jetstream().publish(subjects.event("session", "started"), b"event")
        jetstream = JetStream(observer.client)
        assert (await jetstream.get_stream("EVENTS")).last_sequence == 1
        stored = await jetstream.find_message("EVENTS", 1)
        assert stored is not None
        assert stored.body == b"event"
        listed = await observer.client.request("$JS.API.STREAM.NAMES", timeout=5)
        assert sorted(json.loads(listed.data)["streams"]) == sorted(StreamName)
        with pytest.raises(ApiRefusedError, match="consumer not found"):
            await jetstream.request("CONSUMER.INFO.EVENTS.none")
        assert observer.refused == []


async def test_an_account_without_this_import_is_told_that_it_has_no_jetstream() -> None:
    """Else the server gives every account JetStream of its own, which answers first."""

    def without_it(config: str) -> str:
        return "\n".join(one for one in config.splitlines() if 'to: "$JS.API.INFO"' not in one)

    async with open_secured_nats(without_it) as server:
        await provision(server)
        async with connected(server, ADAPTER) as adapter:
            with pytest.raises(nats.js.errors.ServiceUnavailableError, match="not enabled"):
                await adapter.client.jetstream().consumer_info("OUTBOUND", DURABLE)


async def test_a_new_account_imports_from_the_second_reload_on(server: SecuredNats) -> None:
    """The first one lets its user in; who was there before goes on all the while."""
    document = SHIPPED.model_dump(exclude_none=True)
    its_users = document["environments"]["production"]["users"]
    former = its_users.pop(ADAPTER)
    await server.reload(BusUsers.model_validate(document), DAY)
    its_users[ADAPTER] = former
    users = BusUsers.model_validate(document)
    subject = subjects.inbound(*ACCOUNT, CHAT)
    async with connected(server, "slack-workbot") as other:
        await server.reload_once(users, DAY)
        async with connected(server, ADAPTER) as adapter:
            with pytest.raises(nats.js.errors.NoStreamResponseError):
                await adapter.client.jetstream().publish(subject, b"early")
            await server.reload_once(users, DAY)
            await adapter.client.jetstream().publish(subject, b"in time")
            assert adapter.refused == []
        await other.client.jetstream().publish(subjects.inbound("slack", "workbot", CHAT), b"x")
        assert other.is_connected
        assert other.refused == []


async def test_users_of_one_account_move_to_their_own_and_the_streams_stay() -> None:
    """As an upgrade does it: connections are ended once and come again, nothing is lost."""
    async with open_secured_nats(in_one_account) as server:
        await provision(server)
        subject = subjects.inbound(*ACCOUNT, CHAT)
        async with connected(server, ADAPTER) as adapter, connected(server, "router") as router:
            jetstream = adapter.client.jetstream()
            await jetstream.publish(subject, b"before")
            await server.reload(SHIPPED, DAY)

            async def is_stored() -> bool:
                with contextlib.suppress(nats.errors.Error):
                    return (await jetstream.publish(subject, b"after")).stream == "INBOUND"
                return False

            await eventually(is_stored)
            first = await JetStream(router.client).find_message("INBOUND", 1)
            assert first is not None
            assert first.body == b"before"
            assert adapter.refused == router.refused == []


async def test_an_account_has_a_share_of_the_server(server: SecuredNats) -> None:
    lines = [f"SUB _INBOX.{ADAPTER}.{n} {n}" for n in range(MAX_SUBSCRIPTIONS + 1)]
    assert "maximum subscriptions exceeded" in await server.answers(f"production/{ADAPTER}", lines)


async def test_a_snapshot_goes_where_its_maker_says_so_a_backup_is_trusted(
    server: SecuredNats,
) -> None:
    """Its end is an empty message, published in the account of the streams: imports do not help."""
    async with (
        connected(server, "backup") as backup,
        connected(server, "router") as router,
    ):
        request = {"deliver_subject": LOST_STREAM, "chunk_size": 65536}
        await JetStream(backup.client).request("STREAM.SNAPSHOT.EVENTS", request)

        async def is_gone() -> bool:
            return await JetStream(router.client).find_stream("EVENTS") is None

        await eventually(is_gone)
        assert backup.refused == []


async def test_an_adapter_reads_the_cursors_of_its_account_only(server: SecuredNats) -> None:
    """The request names the subject; a body that asks for another one changes nothing."""
    own, foreign = (subjects.cursor(*it, "offset") for it in (ACCOUNT, OTHER_ACCOUNT))
    direct = f"$JS.API.DIRECT.GET.{StreamName.CURSORS}"
    for user, subject in ((ADAPTER, own), (OTHER_ADAPTER, foreign)):
        async with connected(server, user) as writer:
            await writer.client.jetstream().publish(subject, subject.encode())
    async with connected(server, ADAPTER) as adapter:
        adapting = AdapterClient(adapter.client, platform="telegram", account="assistant")
        for body in (
            b"",
            b'{"seq":2}',
            b'{"next_by_subj":"chat.v1.cursor.>"}',
            b'{"last_by_subj":"%b"}' % foreign.encode(),
            b'{"multi_last":["chat.v1.cursor.>"],"batch":10}',
            b'{"batch":10,"seq":1}',
        ):
            inbox = adapter.client.new_inbox()
            arriving = await adapter.client.subscribe(inbox)
            await adapter.client.publish(f"{direct}.{own}", body, reply=inbox)
            answers = [await arriving.next_msg(timeout=5)]
            with contextlib.suppress(nats.errors.TimeoutError):
                answers.append(await arriving.next_msg(timeout=0.2))
            assert all(foreign.encode() not in its.data for its in answers), body
        for refused in (f"{direct}.{foreign}", direct):
            with pytest.raises((nats.errors.NoRespondersError, nats.errors.TimeoutError)):
                await adapter.client.request(refused, b'{"seq":2}', timeout=0.5)
        await adapting.save_cursor("offset", "7")
        assert await adapting.load_cursor("offset") == "7"
        assert await adapting.load_cursor("since") is None
