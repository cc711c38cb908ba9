"""Messages of a durable, several with one request, on a real server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import nats.errors
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerInfo

from chatlane_client import open_connection
from chatlane_client.transport.pull import Pull, open_pull
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName
from tests.integration.client.routing import MAIN
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer

pytestmark = pytest.mark.integration

SOON = timedelta(seconds=5)
BRIEFLY = timedelta(milliseconds=50)


async def tell(client: Client, *words: str) -> None:
    for word in words:
        await client.jetstream().publish(subjects.turn(MAIN.name), word.encode())


async def state_of(client: Client) -> ConsumerInfo:
    info: ConsumerInfo = await client.jetstream().consumer_info(StreamName.TURNS, MAIN.name)
    return info


async def came_to(client: Client, count: int) -> bool:
    return (await state_of(client)).num_ack_pending == count


async def pull_is_open(client: Client) -> bool:
    return bool((await state_of(client)).num_waiting)


async def has_ended(client: Client) -> bool:
    return not await pull_is_open(client)


@asynccontextmanager
async def pulling(client: Client) -> AsyncIterator[Pull]:
    async with open_pull(client, StreamName.TURNS, MAIN.name) as pull:
        yield pull


async def taken(pull: Pull, room: int, count: int) -> list[str]:
    return [(await pull.take(room, SOON)).data.decode() for _ in range(count)]


async def test_more_is_asked_for_as_it_comes_and_no_more_than_there_is_room_for(
    client: Client,
) -> None:
    await tell(client, *"abcdefghijkl")
    async with pulling(client) as pull:
        # One, two, four; and then three, for more would have no place.
        for room, expected in ((8, "a"), (8, "bc"), (8, "defg"), (3, "hij")):
            assert await taken(pull, room, 1) == [expected[0]]
            rest = len(expected) - 1
            await eventually(lambda rest=rest: len(pull.arrived) == rest)  # type: ignore[misc]
            assert await came_to(client, ord(expected[-1]) - ord("a") + 1)
            # Taking what is here asks for nothing.
            assert await taken(pull, room, rest) == [*expected[1:]]


async def test_who_waits_is_given_one_at_once_and_no_second_to_lose(client: Client) -> None:
    async with pulling(client) as pull:
        waiting = asyncio.create_task(taken(pull, 8, 1))
        await eventually(lambda: pull_is_open(client))
        await tell(client, "first")
        assert await waiting == ["first"]
        await tell(client, "second")
        assert await came_to(client, 1)
        assert await taken(pull, 8, 1) == ["second"]


async def test_nothing_in_time(client: Client) -> None:
    async with pulling(client) as pull:
        with pytest.raises(nats.errors.TimeoutError):
            await pull.take(2, BRIEFLY)
        # A request that ended without a message is made again.
        await eventually(lambda: has_ended(client))
        waiting = asyncio.create_task(taken(pull, 2, 1))
        await eventually(lambda: pull_is_open(client))
        await tell(client, "late")
        assert await waiting == ["late"]


async def test_what_is_not_taken_is_given_back(client: Client) -> None:
    await tell(client, *"0abc")
    async with pulling(client) as first, pulling(client) as second:
        assert await taken(first, 3, 2) == ["0", "a"]
        await eventually(lambda: len(first.arrived) == 1)
        await first.give_back()
        assert sorted(await taken(second, 3, 2)) == ["b", "c"]


async def test_a_durable_that_does_not_exist_is_an_error(client: Client) -> None:
    async with open_pull(client, StreamName.TURNS, "nobody") as pull:
        with pytest.raises(nats.errors.Error) as caught:
            await pull.take(2, SOON)
    assert not isinstance(caught.value, nats.errors.TimeoutError)


async def test_a_request_that_died_with_its_server_is_made_again(
    mortal_bus: RunningServer,
) -> None:
    async with open_connection(mortal_bus.url, name="test") as client, pulling(client) as pull:
        waiting = asyncio.create_task(taken(pull, 4, 1))
        await eventually(lambda: pull_is_open(client))
        await mortal_bus.kill()
        await mortal_bus.start()
        await eventually(lambda: client.is_connected)
        await tell(client, "after")
        assert await waiting == ["after"]
