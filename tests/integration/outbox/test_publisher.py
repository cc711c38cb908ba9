"""What the publisher promises beyond what every publisher must: limits, deadlines, refusals."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise

import pytest
from nats.aio.msg import Msg

from chatlane.errors import (
    BusUnavailableError,
    MalformedMessageError,
    OversizedMessageError,
    StreamFullError,
)
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.outbox.publisher import open_publisher
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.servers.log_streams import LogStreams, chat_in, open_logs

pytestmark = pytest.mark.integration

SUBJECT = f"chat.v1.inbound.telegram.bot.{chat_in(0)}"
HEADER_BYTES = len("NATS/1.0\r\nNats-Msg-Id: \r\n\r\n")


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url) as opened:
        yield opened


async def test_the_largest_message_the_server_takes_is_sent(logs: LogStreams) -> None:
    limit = logs.bus.client.max_payload
    fits = limit - len(SUBJECT) - HEADER_BYTES - len("id")
    await (await logs.publisher.publish(SUBJECT, bytes(fits), "id"))
    with pytest.raises(OversizedMessageError) as caught:
        await (await logs.publisher.publish(SUBJECT, bytes(fits + 1), "id"))
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (limit + 1, limit)
    assert not logs.bus.closed.is_set()


@pytest.mark.parametrize(
    "subject",
    [
        "chat.v1.inbound.a\tb.c.d",
        "chat.v1.inbound.a\r\nPUB x.c.d",
        "chat.v1.inbound.*.c.d",
        "chat.v1.inbound.a*b.c.d",
        "chat.v1.inbound.grün.c.d",
        "chat.v1.inbound.\0.c.d",
        "chat.v1..inbound",
        ".chat.v1",
        "chat.v1.",
        "chat.v1." + "x" * 1020,
    ],
)
async def test_subjects_that_harm_the_connection_or_match_nothing_are_refused(
    logs: LogStreams, subject: str
) -> None:
    with pytest.raises(MalformedMessageError):
        await (await logs.publisher.publish(subject, b"", "id"))


@pytest.mark.parametrize("message_id", ["", "a b", "a\r\nb", "ü", "x" * 257])
async def test_ids_that_do_not_fit_a_header_are_refused(logs: LogStreams, message_id: str) -> None:
    with pytest.raises(MalformedMessageError):
        await (await logs.publisher.publish(SUBJECT, b"", message_id))


async def test_a_publish_without_stream_fails_at_once(logs: LogStreams) -> None:
    future = await logs.publisher.publish("chat.v1.nowhere", b"", "id")
    with pytest.raises(BusUnavailableError, match="no stream"):
        await future
    assert logs.publisher.pending == 0


async def test_a_full_stream_is_worth_another_try(logs: LogStreams) -> None:
    state = await logs.jetstream.get_stream("INBOUND")
    await logs.jetstream.request("STREAM.UPDATE.INBOUND", {**state.config, "max_bytes": 2000})
    first = await logs.publisher.publish(SUBJECT, bytes(1500), "first")
    second = await logs.publisher.publish(SUBJECT, bytes(1500), "second")
    assert (await first).sequence == 1
    with pytest.raises(StreamFullError, match="refused"):
        await second


async def test_an_acknowledgement_that_never_comes_ends_at_the_deadline(logs: LogStreams) -> None:
    async def ignore(_message: object) -> None:
        return

    await logs.bus.client.subscribe("chat.v1.silent", cb=ignore)
    deadline = timedelta(milliseconds=200)
    loop = asyncio.get_running_loop()
    ended: list[float] = []
    async with open_publisher(logs.bus, deadline) as publisher:
        started = loop.time()
        futures = []
        for number in range(3):
            future = await publisher.publish("chat.v1.silent", b"", f"id-{number}")
            future.add_done_callback(lambda _: ended.append(loop.time() - started))
            futures.append(future)
        await publisher.wait(futures)
        assert publisher.pending == 0
        assert all(isinstance(future.exception(), BusUnavailableError) for future in futures)
        await eventually(lambda: len(ended) == 3)
        assert deadline.total_seconds() <= min(ended)
        # The timer was set anew for later ones.
        await publisher.wait([await publisher.publish("chat.v1.silent", b"", "later")])


async def test_closing_ends_what_is_pending(logs: LogStreams) -> None:
    async with open_publisher(logs.bus) as publisher:
        future = await publisher.publish(SUBJECT, b"", "id")
    assert future.done()


async def test_repeats_over_restarts_are_stored_once_and_in_order(
    nats_server: RunningServer,
) -> None:
    """The relay's way: one message at a time, repeated with the same id until acknowledged."""
    async with open_logs(nats_server.url) as logs:

        async def send(number: int) -> None:
            while True:
                try:
                    future = await logs.publisher.publish(
                        SUBJECT, str(number).encode(), f"id-{number}"
                    )
                    await future
                except BusUnavailableError:
                    await asyncio.sleep(0.01)
                else:
                    return

        async def send_all() -> None:
            for number in range(400):
                await send(number)

        sending = asyncio.create_task(send_all())
        for least in (100, 200):

            async def has(least: int = least) -> bool:
                state = await logs.jetstream.find_stream("INBOUND")
                return state is not None and state.last_sequence >= least

            await eventually(has)
            await nats_server.kill()
            await nats_server.start()
            await eventually(lambda: logs.bus.is_connected)
        await asyncio.wait_for(sending, 30)
        stored = [await logs.jetstream.find_message("INBOUND", seq) for seq in range(1, 401)]
        numbers = [int(message.body) for message in stored if message]
        assert all(after == before + 1 for before, after in pairwise(numbers))
        assert len(numbers) == 400


@pytest.mark.parametrize("answer", [b"", b"ok", b'"ok"', b"[]", b'{"text": "hello"}'])
async def test_what_others_reply_to_a_message_is_no_acknowledgement(
    logs: LogStreams, nats_url: str, answer: bytes
) -> None:
    """Whoever listens on a subject without JetStream sees our reply address, and may use it."""
    async with open_bus(BusOptions(url=nats_url)) as other:

        async def reply(message: Msg) -> None:
            await message.respond(answer)

        await other.client.subscribe(SUBJECT, cb=reply)
        await other.client.flush()
        acks = [await logs.publisher.publish(SUBJECT, b"{}", f"id-{n}") for n in range(2000)]
        await logs.publisher.wait(acks)
    assert [one.result().is_duplicate for one in acks] == [False] * 2000
