"""Publishes chat messages, as a process of its own: a backlog at once, or a steady flow.

Usage: `python generator.py fill NATS_URL PROFILE MESSAGES CHATS [FIRST]` or
`python generator.py flow NATS_URL PER_SECOND SECONDS WARM_UP_SECONDS`. `flow` is an open loop: it
publishes at the intended times, however long the answers take, and prints one line of JSON about
the time from a message to the notification of its turn.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from statistics import quantiles
from time import perf_counter
from typing import Final
from uuid import uuid4

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, PubAck

from chatlane_schemas import Chat, InboundEvent, Sender, encode, new_envelope_id, subjects

PLATFORM: Final = "telegram"
ACCOUNT: Final = "bot"
# With the address around it a body has about 500 bytes.
_TEXT: Final = "What people write, again and again. " * 6
_IN_FLIGHT: Final = 1000
_DRAIN_SECONDS: Final = 5.0


async def publish(
    jetstream: JetStreamContext, profile: str, chat: str, message_id: str
) -> asyncio.Future[PubAck]:
    """Publish a direct message as an adapter does; the future is its acknowledgement."""
    now = datetime.now(UTC)
    event = InboundEvent(
        id=new_envelope_id(),
        at=now,
        message_id=message_id,
        platform=PLATFORM,
        account=ACCOUNT,
        profile=profile,
        chat=Chat(id=chat, kind="dm"),
        sender=Sender(id=chat, name="Ann Example"),
        sent_at=now,
        text=_TEXT,
    )
    headers = {"Nats-Msg-Id": event.id}
    return await jetstream.publish_async(
        subjects.inbound_for(event), encode(event), headers=headers
    )


async def fill(url: str, profile: str, messages: int, chats: int, first: int | None) -> None:
    """Publish messages to `chats` chats in turn, as fast as the server takes them.

    The chats are new ones, unless a number is given for the first message: then several calls
    are one long series to the same chats.
    """
    client = await nats.connect(url)
    jetstream = client.jetstream(publish_async_max_pending=_IN_FLIGHT)
    run = uuid4().hex if first is None else "series"
    numbers = range(first or 0, (first or 0) + messages)
    await asyncio.gather(
        *[
            await publish(jetstream, profile, f"{run}-{number % chats}", str(number))
            for number in numbers
        ]
    )
    await client.close()


@dataclass(slots=True)
class Times:
    """When what happened to each message, by its platform id.

    A session tells its first message when it starts, and a turn tells its session.
    """

    intended: dict[str, float] = field(default_factory=dict)
    acknowledged: dict[str, float] = field(default_factory=dict)
    message_of: dict[str, str] = field(default_factory=dict)
    notified: dict[str, float] = field(default_factory=dict)

    async def started(self, message: Msg) -> None:
        """Note which message began a session."""
        event = json.loads(message.data)
        if "source" in event:
            self.message_of[event["session_id"]] = event["source"]["message_id"]

    async def notice(self, message: Msg) -> None:
        """Note when the first turn of a session was made known."""
        self.notified.setdefault(json.loads(message.data)["session_id"], perf_counter())

    def ack(self, message_id: str, future: asyncio.Future[PubAck]) -> None:
        """Note when the log had a message."""
        if not future.cancelled() and future.exception() is None:
            self.acknowledged[message_id] = perf_counter()

    def latencies(self, since: Mapping[str, float]) -> list[float]:
        """Return the milliseconds from a point of each measured message to its turn."""
        return [
            (at - since[message_id]) * 1000
            for session, at in self.notified.items()
            if (message_id := self.message_of.get(session, "")) in since
        ]


async def flow(url: str, per_second: int, seconds: float, warm_up_seconds: float) -> None:
    """Publish every message to a new chat and print how long its turn took to be notified."""
    client = await nats.connect(url)
    jetstream = client.jetstream()
    times = Times()
    for stream, callback in (("EVENTS", times.started), ("TURNS", times.notice)):
        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        await jetstream.subscribe(
            "", stream=stream, cb=callback, ordered_consumer=True, config=config
        )
    run = uuid4().hex
    first_measured = int(per_second * warm_up_seconds)
    async for number, due in _ticks(per_second, seconds + warm_up_seconds):
        future = await publish(jetstream, "default", f"{run}-{number}", str(number))
        if number >= first_measured:
            times.intended[str(number)] = due
            future.add_done_callback(partial(times.ack, str(number)))
    await _until_all_are_notified(times)
    await client.close()
    sys.stdout.write(f"{json.dumps(_report(times))}\n")


async def _ticks(per_second: int, seconds: float) -> AsyncIterator[tuple[int, float]]:
    """Yield numbers at a steady pace, each with the time it was due."""
    begin = perf_counter()
    for number in range(int(per_second * seconds)):
        due = begin + number / per_second
        if (pause := due - perf_counter()) > 0:
            await asyncio.sleep(pause)
        yield number, due


async def _until_all_are_notified(times: Times) -> None:
    deadline = perf_counter() + _DRAIN_SECONDS
    while len(times.latencies(times.intended)) < len(times.intended):
        if perf_counter() > deadline:
            return
        await asyncio.sleep(0.1)


def _report(times: Times) -> dict[str, object]:
    from_ack = times.latencies(times.acknowledged)
    return {
        "messages": len(times.intended),
        "missing": len(times.intended) - len(from_ack),
        "from_acknowledgement_ms": _percentiles(from_ack),
        "from_intended_send_ms": _percentiles(times.latencies(times.intended)),
    }


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}


def main(command: str, url: str, *rest: str) -> None:
    """Run one of the two commands."""
    if command == "fill":
        profile, messages, chats, *first = rest
        asyncio.run(fill(url, profile, int(messages), int(chats), int(first[0]) if first else None))
    else:
        per_second, seconds, warm_up = rest
        asyncio.run(flow(url, int(per_second), float(seconds), float(warm_up)))


if __name__ == "__main__":
    main(*sys.argv[1:])
