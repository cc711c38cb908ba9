"""Publishes chat messages, as a process of its own: a backlog at once, or a steady flow.

Usage: `python generator.py fill NATS_URL MESSAGES [--chats ...]` or
`python generator.py flow NATS_URL PER_SECOND SECONDS WARM_UP_SECONDS [--bare]`. `fill` prints which
sequences of the log went to which partition. `flow` is an open loop: it publishes at the intended
times, however long the answers take, and prints the time from a message to the notification of its
turn (with `--bare`: to its publication by the bare loop; with `--near CHAT` also of those in the
partition of that chat). Both print one line of JSON.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count, islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Final
from uuid import uuid4

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, DeliverPolicy, PubAck

from chatlane_schemas import Chat, InboundEvent, Kind, Sender, encode, new_envelope_id
from chatlane_schemas.topology import subjects
from tests.benchmarks.programs import bare_loop
from tests.benchmarks.programs.mix import Arrival, arrivals
from tests.benchmarks.report.figures import percentiles
from tests.support.servers.nats_users import arguments_of

PLATFORM: Final = "telegram"
ACCOUNT: Final = "bot"
DEFAULT_PARTITIONS: Final = 32
# With the address around it a body has about 500 bytes.
_TEXT: Final = "What people write, again and again. " * 6
_IN_FLIGHT: Final = 1000
_DRAIN_SECONDS: Final = 5.0


def event_of(arrival: Arrival, message_id: str) -> InboundEvent:
    """Return a direct message, or what else came to the chat."""
    now = datetime.now(UTC)
    return InboundEvent(
        id=new_envelope_id(),
        at=now,
        kind=Kind.REACTION if arrival.what == "reaction" else Kind.MESSAGE,
        message_id=message_id,
        platform=PLATFORM,
        account=ACCOUNT,
        profile=arrival.profile,
        chat=Chat(id=arrival.chat, kind="dm"),
        sender=Sender(id=arrival.chat, name="Ann Example"),
        sent_at=now,
        text=arrival.text or _TEXT,
    )


async def publish(
    jetstream: JetStreamContext, arrival: Arrival, message_id: str
) -> asyncio.Future[PubAck]:
    """Publish a message as an adapter does; the future is its acknowledgement."""
    event = event_of(arrival, message_id)
    body = encode(event)
    if arrival.what == "broken":
        body = body[:-1]
    headers = {"Nats-Msg-Id": event.id}
    return await jetstream.publish_async(subjects.inbound_for(event), body, headers=headers)


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is published at once.

    Attributes:
        chats: They are called `<prefix>-<number>` and get the messages in turn.
        first: Number of the first message: several calls are one series then.
        is_random: Each message goes to any of the chats instead, in each series to others.
        stride: From one chat's number to the next one's.
    """

    profile: str
    chats: int
    prefix: str
    first: int = 0
    is_random: bool = False
    stride: int = 1

    def arrivals(self) -> Iterator[tuple[Arrival, str]]:
        """Yield what arrives, each with its message id."""
        choose = Random(self.first).randrange  # noqa: S311 - the same chats for one series
        for number in count(self.first):
            chat = choose(self.chats) if self.is_random else number % self.chats
            name = f"{self.prefix}-{chat * self.stride}"
            yield Arrival("message", name, self.profile), str(number)


def mixed(prefix: str) -> Iterator[tuple[Arrival, str]]:
    """Yield what arrives in the demo's mix, each with its message id."""
    message_id, numbers = "", count()
    for arrival in arrivals():
        if arrival.what != "repeat":
            message_id = str(next(numbers))
        yield arrival._replace(chat=f"{prefix}-{arrival.chat}"), message_id


async def _connected(url: str, seed: Path | None) -> Client:
    """Connect as the user whose seed it is, or as whoever has none."""
    return await nats.connect(url, **({} if seed is None else arguments_of(seed)))


async def fill(
    url: str,
    messages: Iterator[tuple[Arrival, str]],
    partitions: int,
    *,
    seed: Path | None = None,
) -> dict[int, list[int]]:
    """Publish messages as fast as the server takes them.

    Returns:
        The sequences of the log that each partition has now, rising.
    """
    client = await _connected(url, seed)
    jetstream = client.jetstream(publish_async_max_pending=_IN_FLIGHT)
    sent = [
        (_partition(partitions, arrival.chat), await publish(jetstream, arrival, message_id))
        for arrival, message_id in messages
    ]
    positions: dict[int, list[int]] = defaultdict(list)
    for partition, acknowledged in sent:
        positions[partition].append((await acknowledged).seq)
    await client.close()
    return {partition: sorted(its) for partition, its in positions.items()}


@cache
def _partition(partitions: int, chat: str) -> int:
    return subjects.partition_of(partitions, PLATFORM, ACCOUNT, subjects.chat_token(chat))


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

    async def published(self, message: Msg) -> None:
        """Note when the bare loop published a message, which stands for its own turn."""
        message_id = json.loads(message.data)["message_id"]
        self.message_of[message_id] = message_id
        self.notified[message_id] = perf_counter()

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


async def flow(
    url: str,
    per_second: int,
    seconds: float,
    warm_up_seconds: float,
    *,
    is_bare: bool,
    near: str | None = None,
    seed: Path | None = None,
) -> dict[str, object]:
    """Publish every message to a new chat and return how long its turn took to be notified."""
    client, speaking = await nats.connect(url), await _connected(url, seed)
    jetstream = client.jetstream()
    times = Times()
    watched = {"EVENTS": times.started, "TURNS": times.notice}
    for stream, callback in ({bare_loop.STREAM: times.published} if is_bare else watched).items():
        config = ConsumerConfig(deliver_policy=DeliverPolicy.NEW)
        await jetstream.subscribe(
            "", stream=stream, cb=callback, ordered_consumer=True, config=config
        )
    run = uuid4().hex
    said_with = speaking.jetstream()
    first_measured = int(per_second * warm_up_seconds)
    neighbours: set[str] = set()
    async for number, due in _ticks(per_second, seconds + warm_up_seconds):
        arrival = Arrival("message", f"{run}-{number}", "default")
        message_id = f"{run}-{number}"
        future = await publish(said_with, arrival, message_id)
        if number >= first_measured:
            if near is not None and _are_together(arrival.chat, near):
                neighbours.add(message_id)
            times.intended[message_id] = due
            future.add_done_callback(partial(times.ack, message_id))
    await _until_all_are_notified(times)
    await client.close()
    await speaking.close()
    report = _report(times)
    theirs = {one: at for one, at in times.acknowledged.items() if one in neighbours}
    if len(waits := times.latencies(theirs)) > 1:
        report["in_the_same_partition_ms"] = percentiles(waits)
    return report


def _are_together(chat: str, other: str) -> bool:
    return _partition(DEFAULT_PARTITIONS, chat) == _partition(DEFAULT_PARTITIONS, other)


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
        "from_acknowledgement_ms": percentiles(from_ack),
        "from_intended_send_ms": percentiles(times.latencies(times.intended)),
    }


def _arguments(arguments: list[str]) -> Namespace:
    parser = ArgumentParser(prog="generator.py")
    commands = parser.add_subparsers(dest="command", required=True)
    fills = commands.add_parser("fill")
    fills.add_argument("url")
    fills.add_argument("messages", type=int)
    fills.add_argument("--mix", action="store_true")
    fills.add_argument("--profile", default="default")
    fills.add_argument("--chats", type=int, default=1)
    fills.add_argument("--prefix")
    fills.add_argument("--first", type=int, default=0)
    fills.add_argument("--random", action="store_true")
    fills.add_argument("--stride", type=int, default=1)
    fills.add_argument("--partitions", type=int, default=DEFAULT_PARTITIONS)
    flows = commands.add_parser("flow")
    flows.add_argument("url")
    flows.add_argument("per_second", type=int)
    flows.add_argument("seconds", type=float)
    flows.add_argument("warm_up_seconds", type=float)
    flows.add_argument("--bare", action="store_true")
    flows.add_argument("--near")
    for command in (fills, flows):
        command.add_argument("--seed", type=Path, help="of the user who publishes")
    return parser.parse_args(arguments)


async def _filled(asked: Namespace) -> dict[int, list[int]]:
    prefix = asked.prefix or uuid4().hex
    if asked.mix:
        backlog = mixed(prefix)
    else:
        backlog = Backlog(
            asked.profile,
            asked.chats,
            prefix,
            asked.first,
            is_random=asked.random,
            stride=asked.stride,
        ).arrivals()
    messages = islice(backlog, asked.messages)
    return await fill(asked.url, messages, asked.partitions, seed=asked.seed)


async def main(arguments: list[str]) -> None:
    """Run one of the two commands and print what it reports."""
    asked = _arguments(arguments)
    report: Mapping[str, object]
    if asked.command == "fill":
        report = {"positions": await _filled(asked)}
    else:
        report = await flow(
            asked.url,
            asked.per_second,
            asked.seconds,
            asked.warm_up_seconds,
            is_bare=asked.bare,
            near=asked.near,
            seed=asked.seed,
        )
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
