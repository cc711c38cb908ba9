"""The state of the whole service over the API: what waits where, for how long, and for whom."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import uuid4

import pytest
from nats.errors import Error as NatsError

from chatlane.api.operators.service_state import StreamReads
from chatlane.domain.catalog import Agent, Catalog, Limit, Limits
from chatlane.domain.log import LOGS
from chatlane.domain.policy import ResetPolicy
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.nats.topology import apply
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.store.logs import partitions, routers
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.integration.api.test_dead_letters import ask, refuse
from tests.integration.api.test_every_request import CHANNELS, Api
from tests.integration.decisions.test_receipts import answered, receipt
from tests.support.eventually import eventually
from tests.support.worlds.kernel import PARTITIONS, Kernel, at, catalog, event

pytestmark = pytest.mark.integration

STREAMS: Final = declared_streams(
    PARTITIONS, max_bytes=dict.fromkeys((spec.name for spec in declared_streams()), 2**24)
)
AGENTS: Final = (Agent("main"), Agent("desk", delivery="stream"))
DURABLES: Final = declared_durables(AGENTS, [("telegram", "bot")], slots=2)
LEASE: Final = timedelta(minutes=1)
KernelWith = Callable[[Catalog], Awaitable[Kernel]]


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with open_bus(BusOptions(url=nats_url)) as opened:
        await apply(JetStream(opened.client), STREAMS, DURABLES)
        yield opened


@pytest.fixture
async def api(bus: Bus, kernel_with: KernelWith) -> Api:
    """The handlers of a router that has the streams and both kinds of agents."""
    kernel = await kernel_with(catalog(agents=AGENTS[1:]))
    reads = StreamReads(
        LogAccess(bus, PARTITIONS).find_lags, StreamContents(bus.client).find_backlog, DURABLES
    )
    return Api(kernel, reads)


async def overview(api: Api) -> dict[str, Any]:
    return await ask(api, "serviceOverview")


def named(found: list[dict[str, Any]], **names: str) -> dict[str, Any]:
    [row] = [row for row in found if all(row[key] == value for key, value in names.items())]
    return row


def age(reply: dict[str, Any], time: str) -> float:
    """Return the seconds from a time of a reply to the time of the reply."""
    return (datetime.fromisoformat(reply["at"]) - datetime.fromisoformat(time)).total_seconds()


async def test_a_new_service_has_nothing_that_waits(api: Api) -> None:
    reply = await overview(api)
    assert "error" not in reply
    assert [agent["agent"] for agent in reply["agents"]] == ["desk", "main"]
    assert named(reply["accounts"], platform="telegram")["waiting"] == 0
    assert reply.get("letters", []) == []
    assert "outbox_oldest_at" not in reply
    assert reply["is_complete"] is True


async def test_partitions_have_their_owner_and_their_lag(api: Api, bus: Bus) -> None:
    router = uuid4()
    async with api.kernel.store.transaction() as connection:
        await routers.heartbeat(connection, router, "1", LEASE)
        for log in LOGS:
            await partitions.ensure(connection, log, PARTITIONS)
        claimed = await partitions.claim_free(
            connection, router, "inbound", except_for=(), limit=PARTITIONS, lease=LEASE
        )
        assert len(claimed) == PARTITIONS
        await connection.execute(
            "UPDATE partitions SET lease_until = now() - interval '1 second' WHERE id = 1"
        )
    token = subjects.chat_token("42")
    await bus.client.jetstream().publish(subjects.inbound("telegram", "bot", token), b"{}")
    behind = subjects.partition_of(PARTITIONS, "telegram", "bot", token)
    assert behind != 1

    reply = await overview(api)

    assert reply["routers"] == [str(router)]
    assert [(it["log"], it["number"]) for it in reply["partitions"]] == [
        (log, number) for log in LOGS for number in range(PARTITIONS)
    ]
    assert {
        it["number"]
        for it in reply["partitions"]
        if it["log"] == "inbound" and it.get("owner") == str(router)
    } == {*range(PARTITIONS)} - {1}
    late = [it for it in reply["partitions"] if "oldest_unread_at" in it]
    assert [(it["log"], it["number"]) for it in late] == [("inbound", behind)]
    assert 0 <= age(reply, late[0]["oldest_unread_at"]) < 60

    async with api.kernel.store.transaction() as connection:
        await connection.execute("UPDATE partitions SET cursor = 1 WHERE log = 'inbound'")
    reply = await overview(api)
    assert [it for it in reply["partitions"] if "oldest_unread_at" in it] == []
    assert reply["has_lags"] is True

    await bus.client.jetstream().delete_stream("INBOUND")
    reply = await overview(api)
    assert (reply["has_lags"], len(reply["partitions"])) == (False, 2 * PARTITIONS)


async def test_agents_have_their_turns_and_workers(api: Api, bus: Bus) -> None:
    kernel = api.kernel
    await kernel.say(event(chat="1", user="1", mid="1"))
    running = (await kernel.say(event(chat="2", user="2", mid="1"))).session
    await kernel.claim_live(running)
    await kernel.fetch("UPDATE turns SET created_at = now() - interval '1 hour'")
    jetstream = bus.client.jetstream()
    await jetstream.publish(subjects.routed("desk", 1, uuid4()), b"{}")
    worker = await jetstream.pull_subscribe_bind("main", "TURNS")

    async def take() -> None:
        with suppress(NatsError, TimeoutError):
            await worker.fetch(1, timeout=30)

    taking = asyncio.create_task(take())
    try:

        async def main() -> dict[str, Any]:
            found = named((await overview(api))["agents"], agent="main")
            assert found["listening"] == 1
            return found

        found = await eventually(main)
    finally:
        taking.cancel()
        await asyncio.wait([taking])
    assert found["working"] == 1
    assert {it["state"]: it["turns"] for it in found["turns"]} == {"ready": 1, "claimed": 1}
    reply = await overview(api)
    turns = named(reply["agents"], agent="main")["turns"]
    assert [3595 < age(reply, it["oldest_at"]) < 3700 for it in turns] == [True, True]
    desk = named(reply["agents"], agent="desk")
    assert (desk["delivery"], desk["unread"], desk["listening"]) == ("stream", 1, 0)
    assert age(reply, desk["oldest_unread_at"]) < 60
    assert age(reply, reply["outbox_oldest_at"]) >= 0


async def test_deliveries_and_dead_letters_have_their_account_cause_and_age(
    api: Api, bus: Bus
) -> None:
    kernel = api.kernel
    sent = await answered(kernel)
    await kernel.say(receipt(sent, state="failed", failure="blocked"), at("09:01"))
    await refuse(kernel, "3", b"words of Ann")
    await kernel.fetch(
        "UPDATE dead_letters SET at = now() - interval '2 hours' WHERE reason = 'not_json'"
    )
    await refuse(kernel, "4", b"words of Bob")
    jetstream = bus.client.jetstream()
    for _ in range(2):
        await jetstream.publish(
            subjects.outbound("telegram", "bot", subjects.chat_token("42")), b"{}"
        )
    adapter = await jetstream.pull_subscribe_bind("telegram=bot", "OUTBOUND")
    [message] = await adapter.fetch(1, timeout=5)
    await message.nak()
    # The server may deliver the other message first.
    while (await adapter.fetch(1, timeout=5))[0].metadata.num_delivered == 1:
        pass

    reply = await overview(api)

    account = named(reply["accounts"], platform="telegram", account="bot")
    assert (account["waiting"], account["repeated"], account["given_up"]) == (2, 1, 1)
    assert age(reply, account["last_given_up_at"]) >= 0
    assert 0 <= age(reply, account["oldest_waiting_at"]) < 60
    assert named(reply["accounts"], platform="signal")["given_up"] == 0
    refused = named(reply["letters"], reason="not_json")
    assert (refused["cause"], refused["letters"]) == ("publisher", 2)
    assert age(reply, refused["oldest_at"]) - age(reply, refused["newest_at"]) > 7000
    assert named(reply["letters"], reason="delivery_failed")["cause"] == "sender"
    assert "words of" not in json.dumps(reply)


async def test_declarations_have_rules_and_no_ids_of_people(kernel_with: KernelWith) -> None:
    declared = catalog(
        agents=AGENTS[1:],
        reset=ResetPolicy("daily", at_hour=5),
        limits=Limits(per_chat=Limit(20, timedelta(minutes=1))),
        own_ids=frozenset({"own-id-of-the-bot"}),
    )
    reply = await ask(Api(await kernel_with(declared)), "serviceCatalog")
    assert [(it["agent"], it["delivery"]) for it in reply["agents"]] == [
        ("desk", "stream"),
        ("main", "turns"),
    ]
    assert named(reply["agents"], agent="main")["profiles"] == ["main"]
    assert [(it["mode"], it["at_hour"]) for it in reply["resets"]] == [("daily", 5)]
    telegram = named(reply["platforms"], platform="telegram")
    assert telegram["limits"] == [{"scope": "chat", "messages": 20, "seconds": 60}]
    assert [it["account"] for it in telegram["accounts"]] == ["bot"]
    assert "own-id-of-the-bot" not in json.dumps(reply)


@pytest.mark.parametrize("name", ["serviceOverview", "serviceCatalog"])
@pytest.mark.parametrize("subject", [{"agent": "main"}, {"account": ("telegram", "bot")}])
async def test_workers_and_front_ends_get_no_overview(
    kernel: Kernel, name: str, subject: dict[str, Any]
) -> None:
    body = {"v": 1, "id": uuid4().hex, "at": datetime.now(UTC).isoformat()}
    reply = json.loads(await Api(kernel).ask(CHANNELS[name], json.dumps(body).encode(), **subject))
    assert reply["error"]["code"] == "forbidden"
