"""What database and streams disagree about is found, and repaired where that is safe."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

import pytest
from typing_extensions import override

from chatlane.domain.catalog import Agent
from chatlane.domain.log import LogName, PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream, StreamState
from chatlane.nats.log_access import LogAccess
from chatlane.nats.topology import apply
from chatlane.observability.metrics import Metrics
from chatlane.reconciliation.reconciler import Reconciler
from chatlane.reconciliation.stream_contents import StreamContents
from chatlane.reconciliation.stream_gap_repair import LostMessages
from chatlane.store.logs import partitions
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.support.service.raw_publisher import publish_raw
from tests.support.worlds.kernel import DAY, SLOTS, Kernel, event, open_kernel

pytestmark = pytest.mark.integration

PARTITIONS: Final = 2
STREAMS: Final = declared_streams(
    PARTITIONS, max_bytes=dict.fromkeys((its.name for its in declared_streams()), 2**24)
)
DURABLES: Final = declared_durables([Agent("main")], [("telegram", "bot")], slots=1)
AT_ONCE: Final = timedelta(0)


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Bus]:
    async with open_bus(BusOptions(url=nats_url)) as opened:
        await apply(JetStream(opened.client), STREAMS, DURABLES)
        yield opened


@pytest.fixture
async def kernel(database_url: str) -> AsyncIterator[Kernel]:
    async with open_kernel(database_url) as opened:
        async with opened.store.transaction() as connection:
            for log in ("inbound", "results"):
                await partitions.ensure(connection, log, PARTITIONS)
        yield opened


def lost_messages(contents: StreamContents, kernel: Kernel) -> LostMessages:
    return LostMessages(
        contents,
        kernel.store.transaction,
        kernel.writer,
        kernel.metrics,
        agents=kernel.catalog.agents,
        slots=SLOTS,
        patience=AT_ONCE,
    )


def reconciling(bus: Bus, kernel: Kernel, *, every: timedelta = AT_ONCE) -> Reconciler:
    contents = StreamContents(bus.client)
    return Reconciler(
        LogAccess(bus, PARTITIONS),
        kernel.store.transaction,
        kernel.writer,
        kernel.metrics,
        contents=contents,
        lost_messages=lost_messages(contents, kernel),
        declared_durables=DURABLES,
        every=every,
    )


async def found(bus: Bus, kernel: Kernel) -> dict[str, int]:
    reconciler = reconciling(bus, kernel)
    await reconciler.run()
    return dict(reconciler.found)


def shown(metrics: Metrics, name: str, kind: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"kind": kind})


async def waiting_session(kernel: Kernel) -> UUID:
    return (await kernel.say(event(chat="1", user="1", mid="1", text="hello"))).session


async def test_where_nothing_is_wrong_nothing_is_found(bus: Bus, kernel: Kernel) -> None:
    await waiting_session(kernel)
    assert await found(bus, kernel) == {}
    assert shown(kernel.metrics, "chatlane_inconsistencies", "turn_overdue") == 0


async def test_messages_without_a_turn_get_one(bus: Bus, kernel: Kernel) -> None:
    session_id = await waiting_session(kernel)
    await kernel.fetch("DELETE FROM turns")

    assert await found(bus, kernel) == {"messages_stranded": 1}

    claimed = await kernel.claim_live(session_id)
    assert [message.text for message in claimed.messages] == ["hello"]
    assert shown(kernel.metrics, "chatlane_reconciled_total", "messages_stranded") == 1
    assert await found(bus, kernel) == {}
    await kernel.answer(claimed)
    assert await kernel.live_turn(session_id) is None


async def test_messages_that_came_just_now_are_left_alone(bus: Bus, kernel: Kernel) -> None:
    await waiting_session(kernel)
    await kernel.fetch("DELETE FROM turns")
    await kernel.fetch("UPDATE waiting SET stored_at = clock_timestamp()")
    assert await found(bus, kernel) == {}


async def test_what_an_ended_session_left_behind_is_reported_only(bus: Bus, kernel: Kernel) -> None:
    await waiting_session(kernel)
    await kernel.fetch("DELETE FROM turns")
    await kernel.fetch("UPDATE sessions SET ended_at = now(), end_reason = 'pruned'")
    assert await found(bus, kernel) == {"messages_stranded": 1}
    assert await found(bus, kernel) == {"messages_stranded": 1}
    assert await kernel.value("SELECT count(*) FROM turns") == 0


LONG_UNTOLD = """
UPDATE turns SET created_at = clock_timestamp() - interval '5 min',
                 due_at = clock_timestamp() + interval '4 min'
"""


async def test_a_turn_whose_notification_got_lost_is_told_again(bus: Bus, kernel: Kernel) -> None:
    session_id = await waiting_session(kernel)
    await kernel.fetch(LONG_UNTOLD)

    assert await found(bus, kernel) == {"turn_unannounced": 1}
    await kernel.deadlines.sweep()

    turn_id = await kernel.live_turn(session_id)
    notices = [body["id"] for body in kernel.relay.bodies("TURNS")]
    assert notices == [f"turn:{turn_id}:1", f"turn:{turn_id}:2"]
    assert await found(bus, kernel) == {}


async def test_a_turn_whose_notification_waits_for_a_worker_is_not(
    bus: Bus, kernel: Kernel
) -> None:
    await waiting_session(kernel)
    await kernel.fetch(LONG_UNTOLD)
    await bus.client.jetstream().publish(subjects.turn("main"), b"{}")
    assert await found(bus, kernel) == {}


async def test_a_pause_before_another_try_is_not_cut_short(bus: Bus, kernel: Kernel) -> None:
    claimed = await kernel.claim_live(await waiting_session(kernel))
    await kernel.answer(claimed, outcome="failed", retry=True)
    await kernel.fetch(LONG_UNTOLD)
    assert await found(bus, kernel) == {}


async def test_a_turn_that_rests_on_purpose_is_left_alone(bus: Bus, kernel: Kernel) -> None:
    await waiting_session(kernel)
    await kernel.fetch(LONG_UNTOLD)
    await kernel.fetch("UPDATE turns SET rest = 'resting', dispatch = 0")
    assert await found(bus, kernel) == {}


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        ("UPDATE turns SET due_at = now() - interval '2 min'", "turn_overdue"),
        ("UPDATE outbox SET created_at = now() - interval '2 min'", "outbox_unpublished"),
        ("UPDATE lanes SET session_id = gen_random_uuid()", "lane_astray"),
    ],
)
async def test_what_nobody_dealt_with_is_reported(
    bus: Bus, kernel: Kernel, damage: str, kind: str
) -> None:
    await waiting_session(kernel)
    await kernel.fetch(damage)
    assert (await found(bus, kernel)).keys() == {kind}
    assert (await found(bus, kernel)).keys() == {kind}
    assert (shown(kernel.metrics, "chatlane_inconsistencies", kind) or 0) > 0


async def bind(kernel: Kernel, bus: Bus, cursor: int) -> None:
    state = await JetStream(bus.client).get_stream("INBOUND")
    await kernel.fetch(
        "UPDATE partitions SET cursor = $1, generation = $2 WHERE log = 'inbound'",
        cursor,
        state.generation,
    )


async def test_a_cursor_past_the_end_of_its_log_is_reported(bus: Bus, kernel: Kernel) -> None:
    await bind(kernel, bus, cursor=7)
    assert await found(bus, kernel) == {"cursor_ahead": PARTITIONS}


class LogsOfAnotherClock(LogAccess):
    """Logs on a server whose clock is some time behind ours."""

    behind = timedelta(minutes=10)

    @override
    async def get_state(self, log: LogName) -> StreamState:
        state = await super().get_state(log)
        return replace(state, answered_at=state.answered_at - self.behind)

    @override
    async def find_stored_after(self, partition: PartitionId, sequence: int) -> datetime | None:
        stored_at = await super().find_stored_after(partition, sequence)
        return stored_at - self.behind if stored_at else None


async def test_a_clock_that_is_ahead_makes_no_message_old(bus: Bus, kernel: Kernel) -> None:
    token = subjects.chat_token("1")
    await bus.client.jetstream().publish(subjects.inbound("telegram", "bot", token), b"{}")
    await bind(kernel, bus, cursor=0)
    reconciler = reconciling(bus, kernel)
    reconciler._logs = LogsOfAnotherClock(bus, PARTITIONS)
    await reconciler.run()
    assert reconciler.found == {}
    reconciler._patience = timedelta(0)
    await reconciler.run()
    assert reconciler.found == {"log_unread": 1}


async def test_old_messages_that_nobody_read_are_reported(bus: Bus, kernel: Kernel) -> None:
    token = subjects.chat_token("1")
    await bus.client.jetstream().publish(subjects.inbound("telegram", "bot", token), b"{}")
    await bind(kernel, bus, cursor=0)
    assert await found(bus, kernel) == {}
    reconciler = reconciling(bus, kernel)
    reconciler._patience = timedelta(0)
    await reconciler.run()
    assert reconciler.found == {"log_unread": 1}


async def test_streams_that_cannot_be_compared_hold_up_nothing_else(
    bus: Bus, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As without the permission to read what a stream holds."""

    async def forbidden(*_: object) -> None:
        raise BusUnavailableError("no answer")

    await waiting_session(kernel)
    await kernel.fetch("DELETE FROM turns")
    monkeypatch.setattr(StreamContents, "look", forbidden)
    assert await found(bus, kernel) == {"messages_stranded": 1}
    assert shown(kernel.metrics, "chatlane_reconciled_total", "messages_stranded") == 1


async def test_what_is_in_no_partition_is_reported(bus: Bus, kernel: Kernel, nats_url: str) -> None:
    subject = b"chat.v1.inbound.telegram.bot.*"
    assert (await publish_raw(nats_url, subject, b"{}")).sequence
    assert await found(bus, kernel) == {"unpartitioned": 1}


async def test_lanes_are_walked_piece_by_piece(bus: Bus, kernel: Kernel) -> None:
    await kernel.fetch(
        "INSERT INTO lanes (session_key, session_id)"
        " SELECT 'key:' || n, gen_random_uuid() FROM generate_series(1, 2500) AS n"
    )
    counts = [(await found(bus, kernel))["lane_astray"] for _ in range(6)]
    assert counts == [1000, 2000, 2500, 2500, 2500, 2500]
    await kernel.fetch("DELETE FROM lanes")
    assert await found(bus, kernel) == {}


async def test_one_router_at_a_time_compares_and_all_show_it(bus: Bus, kernel: Kernel) -> None:
    await waiting_session(kernel)
    await kernel.fetch("UPDATE lanes SET session_id = gen_random_uuid()")
    first = reconciling(bus, kernel, every=timedelta(seconds=25))
    await first.run()
    begun: datetime = await kernel.value("SELECT looked_at FROM reconciliation")

    other_metrics = Metrics()
    other = reconciling(bus, kernel, every=timedelta(seconds=25))
    other._metrics = other_metrics
    await other.run()

    assert await kernel.value("SELECT looked_at FROM reconciliation") == begun
    assert other.found == first.found == {"lane_astray": 1}
    assert shown(other_metrics, "chatlane_inconsistencies", "lane_astray") == 1


async def test_a_lane_that_led_nowhere_leads_to_a_new_session(bus: Bus, kernel: Kernel) -> None:
    before = await waiting_session(kernel)
    await kernel.fetch("UPDATE lanes SET session_id = $1", uuid4())
    after = (await kernel.say(event(chat="1", user="1", mid="2", text="again"), DAY)).session
    assert after != before
    assert await found(bus, kernel) == {}


async def test_different_numbers_of_partitions_are_reported(bus: Bus, kernel: Kernel) -> None:
    await kernel.fetch("DELETE FROM partitions WHERE log = 'results' AND id = 0")
    assert await found(bus, kernel) == {"partition_count": 1}
