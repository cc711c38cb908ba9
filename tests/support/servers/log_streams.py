"""The two logs on a real server: few partitions, small streams, messages for chosen partitions."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Final

from chatlane.nats import topology
from chatlane.nats.connection import Bus, BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.outbox.publisher import Publisher, open_publisher
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, StreamSpec, declared_streams

PARTITIONS: Final = 4
_MIB: Final = 1024 * 1024


def log_specs(partitions: int = PARTITIONS, max_bytes: int = 64 * _MIB) -> list[StreamSpec]:
    """Return the declarations of the two logs."""
    sizes = {StreamName.INBOUND: max_bytes, StreamName.RESULTS: max_bytes}
    wanted = topology.LOG_STREAMS.values()
    return [one for one in declared_streams(partitions, max_bytes=sizes) if one.name in wanted]


def chat_in(partition: int, partitions: int = PARTITIONS, skip: int = 0) -> str:
    """Return the token of a chat that the server puts into this partition."""
    tokens = (subjects.chat_token(str(number)) for number in count())
    fitting = (
        token
        for token in tokens
        if subjects.partition_of(partitions, "telegram", "bot", token) == partition
    )
    for _ in range(skip):
        next(fitting)
    return next(fitting)


def message_id_of(body: str) -> str:
    """Return the id that `LogStreams.publish` sends with a body."""
    return sha256(body.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class LogStreams:
    """A connection with the logs behind it."""

    bus: Bus
    jetstream: JetStream
    publisher: Publisher
    partitions: int = PARTITIONS

    async def publish(self, partition: int, bodies: Iterable[str]) -> None:
        """Store messages of one partition of the inbound log; their ids are digests."""
        subject = subjects.inbound("telegram", "bot", chat_in(partition, self.partitions))
        futures = [
            await self.publisher.publish(subject, body.encode(), message_id_of(body))
            for body in bodies
        ]
        for future in futures:
            await future

    async def declare(self) -> None:
        """Create both logs."""
        await topology.apply(self.jetstream, log_specs(self.partitions), [])

    async def recreate(self, stream: StreamName = StreamName.INBOUND) -> None:
        """Delete a log and create another one of that name."""
        await self.jetstream.request(f"STREAM.DELETE.{stream}")
        await self.declare()

    async def purge_to(self, sequence: int, stream: StreamName = StreamName.INBOUND) -> None:
        """Delete everything up to and with a sequence."""
        await self.jetstream.request(f"STREAM.PURGE.{stream}", {"seq": sequence + 1})


@asynccontextmanager
async def open_logs(url: str, partitions: int = PARTITIONS) -> AsyncIterator[LogStreams]:
    """Connect and create both logs."""
    async with open_bus(BusOptions(url=url)) as bus, open_publisher(bus) as publisher:
        logs = LogStreams(bus, JetStream(bus.client), publisher, partitions)
        await logs.declare()
        yield logs
