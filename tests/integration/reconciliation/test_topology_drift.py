"""What somebody changes on the server behind our back is noticed, and that it is mended, too."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

import pytest

from chatlane.domain.catalog import Agent
from chatlane.nats import topology
from chatlane.nats.jetstream import JetStream
from chatlane.nats.log_access import LogAccess
from chatlane.observability.metrics import Metrics
from chatlane.reconciliation.topology_drift import DriftWatch
from chatlane.store.logs.log_trims import Holes
from chatlane_schemas.topology.streams import StreamName, declared_durables, declared_streams
from tests.support.servers.log_streams import PARTITIONS, LogStreams, open_logs

pytestmark = pytest.mark.integration

MIB: Final = 1024 * 1024
STREAMS: Final = declared_streams(
    PARTITIONS, max_bytes=dict.fromkeys((its.name for its in declared_streams()), 16 * MIB)
)
DURABLES: Final = declared_durables(
    [Agent("main"), Agent("desk", delivery="stream")], [("telegram", "bot")], slots=2
)
Change = Callable[[JetStream], Awaitable[object]]


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url) as opened:
        await topology.apply(opened.jetstream, STREAMS, DURABLES)
        yield opened


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def watch(logs: LogStreams, metrics: Metrics) -> DriftWatch:
    return watching(logs, metrics)


@dataclass
class Noted:
    """Sequences of the inbound log that are to go for somebody forgotten, and that have gone."""

    noted: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)

    async def count(self, _log: str, _generation: str, first: int, last: int) -> Holes:
        between = set(range(first, last + 1))
        return Holes(len(self.noted & between), len(self.gone & between))

    async def erase(self, logs: LogStreams, *sequences: int) -> None:
        self.noted |= set(sequences)
        for sequence in sequences:
            await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": sequence})
        self.gone |= set(sequences)


def watching(
    logs: LogStreams, metrics: Metrics, *, window: int = 72, erased: Noted | None = None
) -> DriftWatch:
    return DriftWatch(
        lambda: topology.verify(logs.jetstream, STREAMS, DURABLES),
        LogAccess(logs.bus, PARTITIONS),
        metrics,
        timedelta(hours=window),
        (erased or Noted()).count,
    )


def differences(metrics: Metrics) -> float | None:
    return metrics.registry.get_sample_value("chatlane_topology_differences")


def deletions(metrics: Metrics) -> float | None:
    labels = {"log": "inbound", "kind": "deleted"}
    return metrics.registry.get_sample_value("chatlane_log_alarms_total", labels)


def request(verb: str) -> Change:
    return lambda jetstream: jetstream.request(verb)


def changed_stream(name: StreamName, **config: Any) -> Change:  # noqa: ANN401 # as the server has it
    async def change(jetstream: JetStream) -> None:
        state = await jetstream.get_stream(name)
        await jetstream.request(f"STREAM.UPDATE.{name}", {**state.config, **config})

    return change


def changed_durable(name: str, **fields: Any) -> Change:  # noqa: ANN401 # of the declaration
    changed = [replace(one, **fields) for one in DURABLES if one.name == name]
    return lambda jetstream: topology.apply(jetstream, [], changed)


@pytest.mark.parametrize(
    "change",
    [
        request("CONSUMER.DELETE.TURNS.main"),
        request("CONSUMER.DELETE.ROUTED.desk-1"),
        request("CONSUMER.DELETE.OUTBOUND.telegram=bot"),
        request("STREAM.DELETE.EVENTS"),
        request("STREAM.DELETE.RESULTS"),
        changed_stream(StreamName.INBOUND, max_bytes=MIB),
        changed_stream(StreamName.INBOUND, discard="old"),
        changed_stream(StreamName.ROUTED, max_age=3_600_000_000_000),
        changed_stream(StreamName.RESULTS, duplicate_window=1_000_000_000),
        changed_durable("desk-0", max_ack_pending=9),
        changed_durable("main", ack_wait=timedelta(minutes=9)),
    ],
)
async def test_what_is_changed_is_a_complaint_until_it_is_applied_again(
    logs: LogStreams, watch: DriftWatch, metrics: Metrics, change: Change
) -> None:
    await watch.look()
    assert (watch.complaints, differences(metrics)) == ([], 0)

    await change(logs.jetstream)
    await watch.look()
    assert watch.complaints == ["topology"]
    assert (differences(metrics) or 0) >= 1

    await topology.apply(logs.jetstream, STREAMS, DURABLES)
    await watch.look()
    assert (watch.complaints, differences(metrics)) == ([], 0)


async def test_a_partition_that_is_purged_is_an_alarm(
    logs: LogStreams, watch: DriftWatch, metrics: Metrics
) -> None:
    for partition in (0, 1, 0):
        await logs.publish(partition, [f"{partition} {n}" for n in range(3)])
    await watch.look_for_deletions()
    await logs.jetstream.request("STREAM.PURGE.INBOUND", {"filter": "chat.v1.log.1.>"})
    await watch.look_for_deletions()
    assert deletions(metrics) == 1
    await watch.look_for_deletions()
    assert deletions(metrics) == 1


async def test_a_log_that_is_purged_is_an_alarm(
    logs: LogStreams, watch: DriftWatch, metrics: Metrics
) -> None:
    await logs.publish(0, ["a", "b"])
    await watch.look_for_deletions()
    await logs.publish(0, ["c"])
    await logs.jetstream.request("STREAM.PURGE.INBOUND")
    await watch.look_for_deletions()
    assert deletions(metrics) == 1


async def test_a_single_message_that_is_deleted_is_an_alarm(
    logs: LogStreams, watch: DriftWatch, metrics: Metrics
) -> None:
    await logs.publish(0, ["a", "b", "c"])
    await watch.look_for_deletions()
    await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": 2})
    await watch.look_for_deletions()
    assert deletions(metrics) == 1


async def test_what_was_erased_is_no_alarm_and_what_goes_beside_it_is(
    logs: LogStreams, metrics: Metrics
) -> None:
    noted = Noted()
    watch = watching(logs, metrics, erased=noted)
    await logs.publish(0, [str(number) for number in range(20)])
    await watch.look_for_deletions()
    # In the middle, at the beginning, and while a look is taken.
    await noted.erase(logs, 5, 6, 9)
    await watch.look_for_deletions()
    noted.noted |= {1, 2, 3}
    await watch.look_for_deletions()
    await noted.erase(logs, 1, 2, 3)
    await watch.look_for_deletions()
    assert not deletions(metrics)
    await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": 12})
    await watch.look_for_deletions()
    assert deletions(metrics) == 1
    # What went by itself before explains nothing later.
    await noted.erase(logs, 14)
    await watch.look_for_deletions()
    assert deletions(metrics) == 1
    await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": 15})
    await watch.look_for_deletions()
    assert deletions(metrics) == 2


async def test_a_log_of_which_all_was_erased_is_no_alarm(
    logs: LogStreams, metrics: Metrics
) -> None:
    noted = Noted()
    watch = watching(logs, metrics, erased=noted)
    await logs.publish(0, ["a", "b", "c"])
    await watch.look_for_deletions()
    await noted.erase(logs, 1, 2, 3)
    await watch.look_for_deletions()
    assert not deletions(metrics)


async def test_what_routers_purge_is_no_alarm(logs: LogStreams, metrics: Metrics) -> None:
    watch = watching(logs, metrics, window=0)
    await logs.publish(0, ["a", "b"])
    await watch.look_for_deletions()
    await logs.publish(0, ["c", "d"])
    await watch.look_for_deletions()
    # Below the cursor, and old by now: seen by this process, but longer than a window ago.
    await logs.purge_to(3)
    await watch.look_for_deletions()
    assert not deletions(metrics)


async def test_a_log_that_is_made_anew_is_not_told_twice(
    logs: LogStreams, watch: DriftWatch, metrics: Metrics
) -> None:
    """Whoever reads it raises the alarm."""
    await logs.publish(0, ["a", "b"])
    await watch.look_for_deletions()
    await logs.jetstream.request("STREAM.DELETE.INBOUND")
    await topology.apply(logs.jetstream, STREAMS, DURABLES)
    await watch.look_for_deletions()
    assert not deletions(metrics)
