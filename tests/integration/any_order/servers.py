"""The logs and the streams of a real server, in the place of those in memory.

The server partitions the logs, recognises ids, and acknowledges; what it stored is read back from
it. Its clock and its duplicate window cannot be moved, so messages of the logs keep the times of
the machine's clock, and streams remember every id of an example.
"""

from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from chatlane.domain.log import LogMessage, LogName
from chatlane.nats import topology
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.jetstream import JetStream
from chatlane.outbox.publisher import Publisher, open_publisher
from chatlane_schemas.topology.streams import StreamName, declared_streams
from tests.integration.any_order.world import PARTITIONS, Pending, Stage, World
from tests.support.servers.backends import delete_streams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.outbox.publisher import Ack

_MIB: Final = 1024 * 1024
_STREAMS: Final = declared_streams(
    PARTITIONS, max_bytes=dict.fromkeys((its.name for its in declared_streams()), 16 * _MIB)
)


class ServerWorld(World):
    """A world on a nats-server whose streams may be deleted."""

    def __init__(self, stage: Stage, nats_url: str) -> None:
        super().__init__(stage)
        self._nats_url = nats_url
        self._stack = AsyncExitStack()
        self._jetstream: JetStream
        self._publisher: Publisher
        self._read: dict[str, list[tuple[str, bytes]]] = {}
        self._number = count()

    @override
    async def open(self) -> None:
        await super().open()
        await delete_streams(self._nats_url)
        bus = await self._stack.enter_async_context(open_bus(BusOptions(url=self._nats_url)))
        self._jetstream = JetStream(bus.client)
        await topology.apply(self._jetstream, _STREAMS, [])
        self._publisher = await self._stack.enter_async_context(open_publisher(bus))

    @override
    async def close(self) -> None:
        await self._stack.aclose()

    @override
    async def publish(self, log: LogName, partition: int, subject: str, body: bytes) -> None:
        self.pass_time(timedelta(milliseconds=1))
        tokens = subject.split(".")
        published = ".".join(
            [*tokens[:2], "inbound" if log == "inbound" else "result", *tokens[4:]]
        )
        message_id = f"sent-{next(self._number)}"
        ack = await (await self._publisher.publish(published, body, message_id))
        stream = topology.LOG_STREAMS[log]
        stored = await self._jetstream.find_message(stream, ack.sequence)
        assert stored is not None
        assert stored.subject == subject, "the server put it into another partition"
        self._logs[log].append(
            LogMessage(
                log, partition, stored.sequence, self.now, stored.subject, message_id, stored.body
            )
        )

    @override
    async def store_in(self, one: Pending) -> "Ack":
        future = await self._publisher.publish(one.subject, one.payload, one.message_id)
        return await future

    @override
    async def stored(self, stream: str) -> "Sequence[tuple[str, bytes]]":
        known = self._read.setdefault(stream, [])
        state = await self._jetstream.get_stream(StreamName(stream))
        for sequence in range(len(known) + 1, state.last_sequence + 1):
            found = await self._jetstream.find_message(stream, sequence)
            assert found is not None
            known.append((found.subject, found.body))
        return known

    @override
    def forget_ids(self) -> None:
        return
