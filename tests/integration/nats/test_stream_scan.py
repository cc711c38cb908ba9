"""Whoever looks through a stream gets what it held when that began, once and in order."""

from datetime import timedelta
from typing import Any, Final

import pytest

from chatlane.errors import BusUnavailableError
from chatlane.nats.stream_scan import open_pass
from chatlane.privacy.stream_erasure import StreamErasure
from chatlane_schemas.topology.streams import StreamName
from tests.support.servers.log_streams import LogStreams

pytestmark = pytest.mark.integration

INACTIVE: Final = timedelta(seconds=10)
WITHIN: Final = timedelta(seconds=10)
CONFIG: Final[dict[str, Any]] = {
    "name": "looker",
    "deliver_policy": "all",
    "filter_subject": "chat.v1.log.>",
}


@pytest.mark.parametrize("count", [1, 4, 5, 12, 13])
async def test_all_that_is_asked_for_comes_in_pieces(logs: LogStreams, count: int) -> None:
    bodies = [str(number) for number in range(count)]
    await logs.publish(0, bodies)
    async with open_pass(
        logs.bus.client, logs.jetstream, "INBOUND", CONFIG, inactive=INACTIVE
    ) as reading:
        pieces = [got async for got in reading.read(reading.pending, at_once=4, within=WITHIN)]

    assert [message.data.decode() for got in pieces for message, _ in got] == bodies
    assert [its.stream_sequence for got in pieces for _, its in got] == list(range(1, count + 1))
    assert [len(got) for got in pieces[:-1]] == [4] * (len(pieces) - 1)


async def test_it_ends_where_others_went_meanwhile(logs: LogStreams) -> None:
    await logs.publish(0, map(str, range(12)))
    found = []
    async with open_pass(
        logs.bus.client, logs.jetstream, "INBOUND", CONFIG, inactive=INACTIVE
    ) as reading:
        async for got in reading.read(reading.pending, at_once=4, within=WITHIN):
            await logs.purge_to(10)
            found += [its.stream_sequence for _, its in got]

    # The second piece may have been on its way already.
    assert found in ([1, 2, 3, 4, 11, 12], [1, 2, 3, 4, 5, 6, 7, 8, 11, 12])


@pytest.mark.parametrize("at_once", [3, 40, 400])
async def test_requests_that_end_early_are_no_end(logs: LogStreams, at_once: int) -> None:
    """As those to a slow server, which says that nothing came in time though there is more."""
    bodies = [str(number) for number in range(120)]
    await logs.publish(0, bodies)
    found: list[str] = []
    async with open_pass(
        logs.bus.client, logs.jetstream, "INBOUND", CONFIG, inactive=INACTIVE
    ) as reading:
        inbox = reading._inbox.subject
        await logs.bus.client.publish(inbox, headers={"Status": "408"})
        async for got in reading.read(reading.pending, at_once=at_once, within=WITHIN):
            found += [message.data.decode() for message, _ in got]
            if len(found) < 50:
                await logs.bus.client.publish(inbox, headers={"Status": "408"})
    assert found == bodies


async def test_a_server_whose_requests_expire_at_once_is_read_to_the_end(
    logs: LogStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logs.publish(0, [f"{number} {'x' * 20_000}" for number in range(400)])
    monkeypatch.setattr("chatlane.nats.stream_scan.REQUEST_TIMEOUT", timedelta(milliseconds=2))
    found = [
        one.sequence
        async for its in StreamErasure(logs.bus.client).read(StreamName.INBOUND)
        for one in its
    ]
    assert found == list(range(1, 401))


async def test_a_rest_that_never_comes_is_an_error(
    logs: LogStreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    await logs.publish(0, ["1", "2"])

    async def unheard(*_: object, **__: object) -> None:
        await logs.bus.client.publish(reading._inbox.subject, headers={"Status": "408"})

    async with open_pass(
        logs.bus.client, logs.jetstream, "INBOUND", CONFIG, inactive=INACTIVE
    ) as reading:
        monkeypatch.setattr(reading, "_ask", unheard)
        with pytest.raises(BusUnavailableError, match="nothing of the rest"):
            [got async for got in reading.read(2, at_once=1, within=timedelta(seconds=0.2))]


async def test_an_unread_rest_is_never_taken_for_the_end(logs: LogStreams) -> None:
    await logs.publish(0, ["1"])
    async with open_pass(
        logs.bus.client, logs.jetstream, "INBOUND", CONFIG, inactive=INACTIVE
    ) as reading:
        await logs.jetstream.request("CONSUMER.DELETE.INBOUND.looker")
        with pytest.raises(BusUnavailableError, match="reading status"):
            [got async for got in reading.read(1, at_once=1, within=WITHIN)]


async def test_who_looks_for_a_time_stops_behind_it(logs: LogStreams) -> None:
    await logs.publish(0, ["old"])
    first = await logs.jetstream.find_message("INBOUND", 1)
    assert first is not None
    await logs.publish(0, map(str, range(200)))
    streams = StreamErasure(logs.bus.client)

    found = [
        one.sequence
        async for its in streams.read(StreamName.INBOUND, until=first.stored_at)
        for one in its
    ]
    assert found[0] == 1
    assert len(found) < 201
    all_of_it = [one.sequence async for its in streams.read(StreamName.INBOUND) for one in its]
    assert all_of_it == list(range(1, 202))
