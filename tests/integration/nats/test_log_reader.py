"""A reader delivers its partition in order and without a hole, or it breaks and says why."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

import pytest
from nats.aio.msg import Msg

from chatlane.domain.log import PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.nats.log_reader import LogReader, ReaderLimits, Section, open_reader
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.servers.log_streams import LogStreams, message_id_of, open_logs

pytestmark = pytest.mark.integration

BRISK = ReaderLimits(
    pull_expires=timedelta(milliseconds=300), heartbeat=timedelta(milliseconds=100)
)
_names = count()


def section(partition: int = 1, start: int = 1, stream: str = "INBOUND") -> Section:
    return Section(
        partition=PartitionId("inbound", partition),
        stream=stream,
        name=f"test-{next(_names)}",
        filter_subject=subjects.log_filter(partition),
        start_sequence=start,
    )


@asynccontextmanager
async def reading(
    logs: LogStreams, what: Section | None = None, limits: ReaderLimits | None = None
) -> AsyncIterator[LogReader]:
    reader = await open_reader(logs.bus, what or section(), lambda: None, limits)
    try:
        yield reader
    finally:
        await reader.close()


def bodies(reader: LogReader) -> list[str]:
    return [message.body.decode() for message in reader.messages]


async def take(reader: LogReader, wanted: int) -> list[str]:
    """Read on, dropping what came in, until so many were seen."""
    seen: list[str] = []

    def drained() -> bool:
        seen.extend(bodies(reader))
        reader.drop(len(reader.messages))
        return len(seen) >= wanted

    await eventually(drained)
    return seen


async def test_only_its_own_partition_is_read_in_order(logs: LogStreams) -> None:
    for number in range(20):
        await logs.publish(number % 4, [f"m{number}"])
    async with reading(logs) as reader:
        expected = [f"m{number}" for number in range(1, 20, 4)]
        await eventually(lambda: bodies(reader) == expected)
        sequences = [message.sequence for message in reader.messages]
        assert sequences == list(range(2, 21, 4))


async def test_a_message_comes_with_where_when_and_which_id(logs: LogStreams) -> None:
    await logs.publish(1, ["hello"])
    stored = await logs.jetstream.find_message("INBOUND", 1)
    assert stored is not None
    async with reading(logs) as reader:
        await eventually(lambda: len(reader.messages) == 1)
        message = reader.messages[0]
    assert (message.log, message.partition, message.sequence) == ("inbound", 1, 1)
    assert message.message_id == message_id_of("hello")
    assert message.stored_at == stored.stored_at
    assert message.subject == stored.subject
    assert subjects.parse_log(message.subject).partition == 1


async def test_reading_starts_where_it_is_told_to(logs: LogStreams) -> None:
    await logs.publish(1, [f"m{number}" for number in range(1, 6)])
    async with reading(logs, section(start=4)) as reader:
        await eventually(lambda: bodies(reader) == ["m4", "m5"])


async def test_reading_may_start_past_the_end(logs: LogStreams) -> None:
    async with reading(logs, section(start=3)) as reader:
        await logs.publish(1, ["m1", "m2", "m3"])
        await eventually(lambda: bodies(reader) == ["m3"])


async def test_no_more_is_held_than_allowed(logs: LogStreams) -> None:
    everything = [f"m{number:03}" for number in range(300)]
    await logs.publish(1, everything)
    async with reading(logs, limits=ReaderLimits(max_messages=32)) as reader:
        await eventually(lambda: len(reader.messages) == 32)
        most = 0
        seen: list[str] = []

        def drained() -> bool:
            nonlocal most
            most = max(most, len(reader.messages))
            seen.extend(bodies(reader)[:20])
            reader.drop(min(20, len(reader.messages)))
            return len(seen) == len(everything)

        await eventually(drained)
    assert seen == everything
    assert most == 32


async def test_no_more_bytes_are_held_than_allowed(logs: LogStreams) -> None:
    await logs.publish(1, [f"{number:01000}" for number in range(100)])
    async with reading(logs, limits=ReaderLimits(max_bytes=10_000)) as reader:
        await eventually(lambda: len(reader.messages) >= 5)
        assert sum(len(message.body) for message in reader.messages) <= 10_000
        assert [int(body) for body in await take(reader, 100)] == list(range(100))


async def test_what_is_larger_than_allowed_comes_alone(logs: LogStreams) -> None:
    sizes = [10, 5000, 10, 5000, 5000, 10]
    await logs.publish(1, [f"{number:0{size}}" for number, size in enumerate(sizes)])
    async with reading(logs, limits=ReaderLimits(max_bytes=1000)) as reader:
        seen: list[int] = []

        def drained() -> bool:
            large = [message for message in reader.messages if len(message.body) > 1000]
            assert not large or len(reader.messages) == 1
            seen.extend(len(message.body) for message in reader.messages)
            reader.drop(len(reader.messages))
            return len(seen) == len(sizes)

        await eventually(drained)
    assert seen == sizes


async def test_a_gap_breaks_the_reader(logs: LogStreams) -> None:
    async with reading(logs) as reader:
        await eventually(lambda: reader.is_caught_up)
        # As if the first delivery had been lost on the way.
        reply = "$JS.ACK.INBOUND.test.1.7.2.1700000000000000000.0"
        reader._received(Msg(logs.bus.client, "chat.v1.log.1.a.b.c", reply, b"second"))
        await asyncio.wait_for(reader.broken.wait(), 5)
        assert reader.break_reason == "gap"
        assert not reader.messages
        await logs.publish(1, ["never taken"])
        await logs.bus.client.flush()
        assert not reader.messages


async def test_a_heartbeat_that_knows_of_more_breaks_the_reader(logs: LogStreams) -> None:
    async with reading(logs) as reader:
        reader._received_status({"Status": "100", "Nats-Last-Consumer": "0"})
        assert not reader.broken.is_set()
        reader._received_status({"Status": "100", "Nats-Last-Consumer": "1"})
        assert reader.break_reason == "gap"


async def test_a_deleted_consumer_breaks_the_reader(logs: LogStreams) -> None:
    what = section()
    async with reading(logs, what) as reader:
        await eventually(lambda: reader.is_caught_up)
        await logs.jetstream.request(f"CONSUMER.DELETE.INBOUND.{what.name}")
        await asyncio.wait_for(reader.broken.wait(), 5)
    assert reader.break_reason == "status 409 Consumer Deleted"


async def test_a_consumer_that_ended_while_nobody_asked_breaks_the_reader(
    logs: LogStreams,
) -> None:
    await logs.publish(1, [f"m{number}" for number in range(40)])
    what = section()
    async with reading(logs, what, ReaderLimits(max_messages=32)) as reader:
        await eventually(lambda: len(reader.messages) == 32)
        await logs.jetstream.request(f"CONSUMER.DELETE.INBOUND.{what.name}")
        reader.drop(32)
        await asyncio.wait_for(reader.broken.wait(), 5)
    assert reader.break_reason.startswith("status 503")


async def test_silence_breaks_the_reader(logs: LogStreams) -> None:
    async with reading(logs, limits=BRISK) as reader:
        await eventually(lambda: reader.is_caught_up)
        # The consumer goes on, but nothing of it arrives any more.
        assert reader._subscription is not None
        await reader._subscription.unsubscribe()
        await asyncio.wait_for(reader.broken.wait(), 5)
    assert reader.break_reason == "silence"


async def test_heartbeats_keep_an_idle_reader(logs: LogStreams) -> None:
    async with reading(logs, limits=BRISK) as reader:
        started = reader._heard_at
        longest = BRISK.longest_silence.total_seconds()
        await eventually(lambda: reader._heard_at - started > longest)
        assert not reader.broken.is_set()


async def test_a_request_that_expires_is_followed_by_another(logs: LogStreams) -> None:
    async with reading(logs, limits=BRISK) as reader:
        started = reader._heard_at
        await eventually(
            lambda: reader._heard_at - started > 2 * BRISK.pull_expires.total_seconds()
        )
        await logs.publish(1, ["late"])
        await eventually(lambda: bodies(reader) == ["late"])
        assert not reader.broken.is_set()


async def test_without_a_stream_there_is_no_reader(logs: LogStreams) -> None:
    with pytest.raises(BusUnavailableError, match="404"):
        await open_reader(logs.bus, section(stream="MISSING"), lambda: None)


async def test_a_closed_reader_leaves_no_consumer(logs: LogStreams) -> None:
    what = section()
    async with reading(logs, what) as reader:
        await eventually(lambda: reader.is_caught_up)

    async def is_gone() -> bool:
        return await logs.jetstream.find(f"CONSUMER.INFO.INBOUND.{what.name}") is None

    await eventually(is_gone)
    assert reader.break_reason == "closed"


async def test_a_lost_connection_breaks_the_reader(nats_server: RunningServer) -> None:
    async with open_logs(nats_server.url) as logs, reading(logs) as reader:
        await eventually(lambda: reader.is_caught_up)
        await nats_server.kill()
        await asyncio.wait_for(reader.broken.wait(), 5)
        assert reader.break_reason == "disconnected"
        assert not logs.bus.closed.is_set()
