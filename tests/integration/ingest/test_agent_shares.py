"""ROUTED and TURNS are trimmed when they fill; an agent that reads nothing pays for it alone."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Final
from uuid import uuid4

import nats
import pytest
from nats.js import JetStreamContext

from chatlane.domain.catalog import Agent
from chatlane.domain.limits.shares import SharedStream
from chatlane.ingest.log_trimmer import LogTrimmer
from chatlane.ingest.share_notices import ShareNotices
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_shares import LogShares
from chatlane.nats.topology import apply
from chatlane.observability.metrics import Metrics
from chatlane.outbox.redrive import Retrying
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    StreamName,
    declared_durables,
    declared_streams,
    routed_durable,
)
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats
from tests.integration.outbox.test_unanswered_messages import KernelWith, marks
from tests.support.servers.nats_users import arguments_of, with_keys
from tests.support.worlds.kernel import SLOTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

MIB: Final = 1024 * 1024
BODY: Final = bytes(4 * 1024)
STREAMING: Final = ("deaf", "keen")
NOTIFIED: Final = ("busy", "calm")
OWNERS: Final[tuple[tuple[SharedStream, str], ...]] = (("routed", "keen"), ("turns", "busy"))
DECLARED: Final = (
    *(Agent(name, delivery="stream") for name in STREAMING),
    *(Agent(name) for name in NOTIFIED),
)


class World:
    """Streams ROUTED and TURNS of one MiB, of which half may be filled, and agents that read them."""

    def __init__(self, kernel: Kernel, server: JetStreamContext, trimmer: LogTrimmer) -> None:
        self.kernel = kernel
        self.server = server
        self.trimmer = trimmer
        self.shares = trimmer.shares

    async def route(self, agent: str, count: int, *, slots: int = SLOTS) -> None:
        """Publish messages to an agent, in some of its slots."""
        for number in range(count):
            await self.server.publish(subjects.routed(agent, number % slots, uuid4()), BODY)

    async def read(self, agent: str, count: int, *, slots: int = SLOTS) -> None:
        """Acknowledge messages of an agent, slot by slot."""
        for slot in range(slots):
            durable = routed_durable(agent, slot)
            reading = await self.server.pull_subscribe_bind(durable, StreamName.ROUTED)
            for _ in range(len(range(slot, count, slots))):
                (message,) = await reading.fetch(1, timeout=10)
                await message.ack_sync()
            await reading.unsubscribe()

    async def routed(self) -> dict[str, int]:
        """Return how many messages ROUTED holds of each agent."""
        size = await self.shares.find_size("routed")
        assert size is not None
        measured = await self.shares.measure("routed", size.state, STREAMING)
        return {name: usage.messages for name, usage in measured.items()}

    async def fills(self, stream: StreamName) -> float:
        """Return how full a stream is, between 0 and 1."""
        info = await self.server.stream_info(stream)
        return info.state.bytes / MIB


@pytest.fixture
async def world(kernel: Kernel, nats_url: str) -> AsyncIterator[World]:
    specs = [
        replace(spec, max_bytes=MIB)
        for spec in declared_streams()
        if spec.name in {StreamName.ROUTED, StreamName.TURNS}
    ]
    durables = [
        durable
        for durable in declared_durables(DECLARED, [], SLOTS)
        if durable.stream in {StreamName.ROUTED, StreamName.TURNS}
    ]
    async with open_bus(BusOptions(url=nats_url)) as bus:
        await apply(JetStream(bus.client), specs, durables)
        trimmer = LogTrimmer(
            LogShares(bus.client, SLOTS),
            kernel.store.transaction,
            Metrics(),
            owners={"routed": STREAMING, "turns": NOTIFIED},
            trim_above=0.5,
        )
        yield World(kernel, bus.client.jetstream(), trimmer)


async def test_what_workers_acknowledged_is_purged_and_the_rest_stays(world: World) -> None:
    await world.route("deaf", 20)
    await world.route("keen", 120)
    await world.read("keen", 110)
    purged = await world.trimmer.run()
    assert purged > 0
    assert await world.fills(StreamName.ROUTED) <= 0.5
    assert await world.routed() == {"deaf": 20, "keen": 120 - purged}
    assert world.trimmer.crowding == frozenset()
    await world.read("deaf", 20)


async def test_a_slot_that_is_not_read_keeps_what_came_after_it(world: World) -> None:
    await world.route("keen", SLOTS)
    await world.route("keen", 130, slots=1)
    await world.read("keen", SLOTS - 1, slots=SLOTS - 1)
    assert await world.fills(StreamName.ROUTED) > 0.5
    # The unread message of the last slot is after those of the others.
    assert await world.trimmer.run() == SLOTS - 1
    last = routed_durable("keen", SLOTS - 1)
    assert (await world.server.consumer_info(StreamName.ROUTED, last)).num_pending == 1


async def test_an_agent_that_reads_nothing_gets_nothing_more_until_it_reads(
    world: World, nats_url: str
) -> None:
    await world.route("keen", 10)
    await world.route("deaf", 150)
    assert await world.trimmer.run() == 0
    assert world.trimmer.crowding == {"deaf"}
    assert await world.routed() == {"deaf": 150, "keen": 10}, "nothing unread is purged"
    async with open_bus(BusOptions(url=nats_url)) as bus:
        notices = ShareNotices(
            world.kernel.store.transaction,
            StreamContents(bus.client),
            dict,
            {"routed": STREAMING},
            lambda: world.trimmer.crowding,
        )
        await notices.look()
        assert notices.notices == ("share_exceeded routed deaf",)
    await world.read("deaf", 150)
    assert await world.trimmer.run() > 0
    assert await world.trimmer.run() == 0
    assert world.trimmer.crowding == frozenset()
    assert (await world.routed())["keen"] == 10


async def test_the_only_agent_of_a_service_gets_everything(world: World) -> None:
    world.trimmer.has_other_agents = False
    await world.route("deaf", 150)
    assert await world.trimmer.run() == 0
    assert world.trimmer.crowding == frozenset()


async def test_the_oldest_notifications_of_the_largest_agent_are_purged(world: World) -> None:
    for agent, count in (("calm", 20), ("busy", 150)):
        for _ in range(count):
            await world.server.publish(subjects.turn(agent), BODY)
    purged = await world.trimmer.run()
    assert await world.fills(StreamName.TURNS) <= 0.5
    for agent, left in (("calm", 20), ("busy", 150 - purged)):
        assert await world.shares.count("turns", agent) == left


async def test_a_purge_of_routed_is_no_loss(world: World, nats_url: str) -> None:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        watch = LostMessages(
            StreamContents(bus.client),
            world.kernel.store.transaction,
            world.kernel.writer,
            world.kernel.metrics,
            agents={agent.name: agent for agent in DECLARED},
            slots=SLOTS,
            patience=timedelta(0),
        )
        sample = world.kernel.metrics.registry.get_sample_value
        holes = {"stream": "ROUTED", "kind": "holes"}
        await world.route("deaf", 1)
        await world.route("keen", 140)
        await world.read("keen", 140)
        await watch.compare()
        assert await world.trimmer.run() > 0
        await watch.compare()
        assert sample("chatlane_stream_losses_total", holes) == 0
        end = (await world.server.stream_info("ROUTED")).state.last_seq
        await world.server.delete_msg("ROUTED", end - 3)
        await watch.compare()
        assert sample("chatlane_stream_losses_total", holes) == 1


async def test_a_message_to_an_agent_that_reads_nothing_is_kept_and_others_are_routed(
    kernel_with: KernelWith,
) -> None:
    deaf, keen = (Agent(name, delivery="stream") for name in STREAMING)
    kernel = await kernel_with(
        catalog(agents=[deaf, keen], profiles={name: name for name in STREAMING})
    )
    ann, ben = {"chat": "1", "user": "1"}, {"chat": "2", "user": "2"}
    kernel.writer.find_crowding = lambda: {"deaf"}
    first, second = await kernel.say_together(
        [
            event(**ann, mid="1", text="are you there?", profile="deaf"),
            event(**ben, mid="2", text="and you?", profile="keen"),
        ]
    )
    assert [one["text"] for one in await kernel.published("ROUTED")] == ["and you?"]
    assert await marks(kernel, first.session) == [("are you there?", "failed")]
    assert await marks(kernel, second.session) == [("and you?", None)]
    assert await kernel.dead() == [("routed", "undeliverable")]
    assert await kernel.published("DEAD") == [], "the letters of such an agent fill no stream"

    kernel.writer.find_crowding = tuple

    async def unused(*_: object) -> None:
        pytest.fail("a routed message is published through the outbox")

    letter = await kernel.value("SELECT id FROM dead_letters")
    await Retrying(kernel.store, unused).retry(letter)
    again = (await kernel.published("ROUTED"))[-1]
    assert (again["agent"], again["text"]) == ("deaf", "are you there?")
    await kernel.decide([kernel.stream_answer(again, "now I am")])
    assert await marks(kernel, first.session) == [("are you there?", None), ("now I am", None)]


async def test_the_rights_of_a_router_suffice() -> None:
    with server_directory() as directory:
        keys, config = with_keys(directory / "keys", {"router": {"role": "router"}})
        async with (
            open_nats(directory / "nats", extra_config=config) as server,
            open_bus(BusOptions(url=server.url)) as bus,
        ):
            specs = [
                spec
                for spec in declared_streams()
                if spec.name in {StreamName.ROUTED, StreamName.TURNS}
            ]
            durables = [
                durable
                for durable in declared_durables(DECLARED, [], SLOTS)
                if durable.stream in {StreamName.ROUTED, StreamName.TURNS}
            ]
            await apply(JetStream(bus.client), specs, durables)
            jetstream = bus.client.jetstream()
            for number in range(20):
                await jetstream.publish(subjects.routed("keen", number % SLOTS, uuid4()), b"{}")
                await jetstream.publish(subjects.turn("busy"), b"{}")
            router = await nats.connect(server.url, **arguments_of(keys.seed_file("router")))
            shares = LogShares(router, SLOTS)
            for stream, owner in OWNERS:
                size = await shares.find_size(stream)
                assert size is not None
                measured = await shares.measure(stream, size.state, [owner])
                assert measured[owner].messages == 20
                assert await shares.find_first(stream, owner) == 1
                assert await shares.purge(stream, owner, 10) == 9
            assert await shares.find_unread("keen", 20) is not None
            await router.close()
