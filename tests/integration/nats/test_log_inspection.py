"""A cursor is trusted only in the log it was counted in."""

from datetime import timedelta

import pytest

from chatlane.domain.log import LogPosition
from chatlane.errors import BusUnavailableError
from chatlane.nats.log_inspection import (
    Inspection,
    LogIntact,
    LogReplaced,
    LogTruncated,
    LogUnbound,
    PartitionCountDiffers,
    inspect_log,
)
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.servers.log_streams import PARTITIONS, LogStreams, open_logs

pytestmark = pytest.mark.integration


async def position_at(logs: LogStreams, cursor: int) -> LogPosition:
    """Return what is committed after the message with this sequence."""
    state = await logs.jetstream.get_stream("INBOUND")
    message = await logs.jetstream.find_message("INBOUND", cursor) if cursor else None
    return LogPosition(cursor, message.stored_at if message else None, state.generation)


async def inspect(logs: LogStreams, position: LogPosition) -> Inspection:
    return await inspect_log(logs.jetstream, "INBOUND", position, PARTITIONS)


@pytest.mark.parametrize("cursor", [0, 3, 5])
async def test_an_intact_log_is_recognised(logs: LogStreams, cursor: int) -> None:
    await logs.publish(0, ["1", "2", "3", "4", "5"])
    assert await inspect(logs, await position_at(logs, cursor)) == LogIntact()


async def test_another_number_of_partitions_is_recognised(logs: LogStreams) -> None:
    await logs.publish(0, ["1"])
    position = await position_at(logs, 1)
    found = await inspect_log(logs.jetstream, "INBOUND", position, PARTITIONS + 1)
    assert found == PartitionCountDiffers(PARTITIONS)


async def test_an_intact_log_may_be_empty(logs: LogStreams) -> None:
    assert await inspect(logs, await position_at(logs, 0)) == LogIntact()


async def test_a_first_cursor_is_bound_to_the_start_of_the_log(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    await logs.purge_to(2)
    found = await inspect(logs, LogPosition(0, None, None))
    generation = (await logs.jetstream.get_stream("INBOUND")).generation
    assert found == LogUnbound(cursor=2, generation=generation)


async def test_a_log_made_anew_is_another_generation(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    position = await position_at(logs, 2)
    await logs.recreate()
    await logs.publish(0, ["4", "5", "6"])
    found = await inspect(logs, position)
    generation = (await logs.jetstream.get_stream("INBOUND")).generation
    assert found == LogReplaced("generation", 0, generation)
    assert generation != position.generation


async def test_a_lost_tail_is_noticed(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    position = (await position_at(logs, 3))._replace(cursor=4)
    found = await inspect(logs, position)
    assert isinstance(found, LogReplaced)
    assert (found.reason, found.cursor) == ("tail_lost", 0)


async def test_another_message_at_the_cursor_is_noticed_by_its_time(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    position = await position_at(logs, 2)
    assert position.cursor_at is not None
    moved = position._replace(cursor_at=position.cursor_at + timedelta(microseconds=1))
    found = await inspect(logs, moved)
    assert isinstance(found, LogReplaced)
    assert (found.reason, found.cursor) == ("time_at_cursor", 0)


async def test_messages_gone_above_the_cursor_are_a_loss(logs: LogStreams) -> None:
    await logs.publish(0, [str(number) for number in range(9)])
    position = await position_at(logs, 3)
    await logs.purge_to(6)
    generation = position.generation or ""
    assert await inspect(logs, position) == LogTruncated(4, 6, generation)


@pytest.mark.parametrize("purged_to", [2, 3])
async def test_a_purge_up_to_the_cursor_is_no_loss(logs: LogStreams, purged_to: int) -> None:
    await logs.publish(0, ["1", "2", "3", "4", "5"])
    position = await position_at(logs, 3)
    await logs.purge_to(purged_to)
    assert await inspect(logs, position) == LogIntact()


async def test_a_purge_of_everything_is_no_loss_at_the_end(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    position = await position_at(logs, 3)
    await logs.purge_to(3)
    assert await inspect(logs, position) == LogIntact()


async def test_one_deleted_message_at_the_cursor_is_no_other_log(logs: LogStreams) -> None:
    await logs.publish(0, ["1", "2", "3"])
    position = await position_at(logs, 2)
    await logs.jetstream.request("STREAM.MSG.DELETE.INBOUND", {"seq": 2})
    assert await inspect(logs, position) == LogIntact()


async def test_a_missing_stream_is_worth_another_try(logs: LogStreams) -> None:
    await logs.jetstream.request("STREAM.DELETE.INBOUND")
    with pytest.raises(BusUnavailableError, match="404"):
        await inspect(logs, LogPosition(0, None, "any"))


async def test_a_killed_server_comes_back_with_the_same_log(nats_server: RunningServer) -> None:
    async with open_logs(nats_server.url) as logs:
        await logs.publish(0, ["1", "2", "3"])
        position = await position_at(logs, 3)
        await nats_server.kill()
        await eventually(lambda: not logs.bus.is_connected)
        await nats_server.start()
        await eventually(lambda: logs.bus.is_connected)
        assert await inspect(logs, position) == LogIntact()
