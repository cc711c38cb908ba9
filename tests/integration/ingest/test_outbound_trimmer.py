"""OUTBOUND is trimmed when it is filling: delivered messages first, then those of who fills it."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from nats.js import JetStreamContext

from chatlane.domain.counts import Inconsistency
from chatlane.ingest.log_trimmer import LogTrimmer
from chatlane.ingest.share_notices import ShareNotices
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_shares import LogShares
from chatlane.nats.topology import apply
from chatlane.observability.metrics import Metrics
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    StreamName,
    declared_durables,
    declared_streams,
    outbound_durable,
)
from tests.support.worlds.kernel import SLOTS, Kernel

pytestmark = pytest.mark.integration

MIB: Final = 1024 * 1024
BODY: Final = bytes(4 * 1024)
ACCOUNTS: Final = [("telegram", "big"), ("telegram", "small"), ("telegram", "other")]
NAMES: Final = frozenset("/".join(account) for account in ACCOUNTS)


class World:
    """A stream OUTBOUND of one MiB, of which half may be filled, and adapters that read it."""

    def __init__(self, kernel: Kernel, server: JetStreamContext, trimmer: LogTrimmer) -> None:
        self.kernel = kernel
        self.server = server
        self.trimmer = trimmer
        self.shares = trimmer.shares

    async def send(self, account: str, count: int) -> None:
        """Publish messages to some chats of an account."""
        for number in range(count):
            chat = subjects.chat_token(str(number % 7))
            await self.server.publish(subjects.outbound("telegram", account, chat), BODY)

    async def deliver(self, account: str, count: int, *, but: int = 0) -> None:
        """Acknowledge messages of an account, without the first few that were fetched."""
        durable = outbound_durable("telegram", account)
        reading = await self.server.pull_subscribe_bind(durable, StreamName.OUTBOUND)
        for message in (await reading.fetch(count, timeout=10))[but:]:
            await message.ack_sync()
        await reading.unsubscribe()

    async def held(self) -> dict[str, int]:
        """Return how many messages each account has."""
        size = await self.shares.find_size("outbound")
        assert size is not None
        measured = await self.shares.measure("outbound", size.state, NAMES)
        return {name: usage.messages for name, usage in measured.items()}

    async def fills(self) -> float:
        """Return how full the stream is, between 0 and 1."""
        size = await self.shares.find_size("outbound")
        assert size is not None
        return size.held_bytes / size.max_bytes


@pytest.fixture
async def world(kernel: Kernel, nats_url: str) -> AsyncIterator[World]:
    specs = [
        replace(spec, max_bytes=MIB)
        for spec in declared_streams()
        if spec.name in {StreamName.OUTBOUND, StreamName.ROUTED}
    ]
    durables = [
        durable
        for durable in declared_durables([], ACCOUNTS, SLOTS)
        if durable.stream is StreamName.OUTBOUND
    ]
    async with open_bus(BusOptions(url=nats_url)) as bus:
        await apply(JetStream(bus.client), specs, durables)
        owners = {"inbound": NAMES, "results": frozenset(), "outbound": NAMES}
        trimmer = LogTrimmer(
            LogShares(bus.client),
            kernel.store.transaction,
            Metrics(),
            owners=owners,  # type: ignore[arg-type] # names of streams
            trim_above=0.5,
        )
        yield World(kernel, bus.client.jetstream(), trimmer)


async def test_delivered_messages_are_purged_and_waiting_ones_stay(world: World) -> None:
    await world.send("big", 70)
    await world.send("small", 60)
    await world.deliver("big", 50)
    assert await world.fills() > 0.5
    assert await world.trimmer.run() > 0
    held = await world.held()
    assert await world.fills() <= 0.5
    assert held["telegram/small"] == 60, "nothing of it was delivered"
    assert held["telegram/big"] >= 20, "what was not delivered stays"
    await world.deliver("big", 20)
    await world.deliver("small", 60)


async def test_a_chat_that_refuses_keeps_its_message(world: World) -> None:
    await world.send("small", 60)
    await world.send("big", 80)
    await world.deliver("big", 80, but=1)
    assert await world.fills() > 0.5
    assert await world.trimmer.run() == 0
    assert await world.held() == {"telegram/small": 60, "telegram/big": 80}


async def test_an_account_that_delivers_nothing_loses_its_oldest_messages(world: World) -> None:
    await world.send("big", 150)
    await world.send("small", 30)
    purged = await world.trimmer.run()
    assert await world.held() == {"telegram/small": 30, "telegram/big": 150 - purged}
    assert await world.fills() <= 0.5


async def test_an_account_that_is_alone_loses_nothing(world: World) -> None:
    await world.send("big", 200)
    assert await world.trimmer.run() == 0
    assert await world.held() == {"telegram/big": 200}


async def test_a_purge_is_no_loss_and_is_noticed(world: World, nats_url: str) -> None:
    async with open_bus(BusOptions(url=nats_url)) as bus:
        contents = StreamContents(bus.client)
        watch = LostMessages(
            contents,
            world.kernel.store.transaction,
            world.kernel.writer,
            world.kernel.metrics,
            agents={},
            slots=SLOTS,
            patience=timedelta(0),
        )
        sample = world.kernel.metrics.registry.get_sample_value
        holes = {"stream": "OUTBOUND", "kind": "holes"}
        await world.send("small", 1)
        await world.send("big", 140)
        await world.deliver("big", 140)
        await watch.compare()
        assert await world.trimmer.run() > 0
        found = await watch.compare()
        assert found[Inconsistency.STREAM_AHEAD] == 0
        assert sample("chatlane_stream_losses_total", holes) == 0
        notices = ShareNotices(
            world.kernel.store.transaction,
            contents,
            dict,
            {"outbound": NAMES},
        )
        await notices.look()
        assert notices.notices == ("log_trimmed outbound telegram/big",)
        end = (await world.server.stream_info("OUTBOUND")).state.last_seq
        await world.server.delete_msg("OUTBOUND", end - 3)
        await watch.compare()
        assert sample("chatlane_stream_losses_total", holes) == 1
