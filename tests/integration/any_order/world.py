"""What routers, workers and people share: a real Postgres, both logs, the streams, and the time.

The logs and the streams are in memory here; `servers.py` has those of a real server.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from unittest.mock import patch

from chatlane.domain.catalog import Agent, Catalog
from chatlane.domain.log import LOGS, LogMessage, LogName, PartitionId
from chatlane.domain.policy import ResetPolicy
from chatlane.errors import BusUnavailableError, StreamFullError
from chatlane.nats.topology import LOG_STREAMS, stream_config
from chatlane.postgres.pool import Store, open_store
from chatlane.reconciliation.stream_contents import Backlog
from chatlane.store import api_requests
from chatlane.store.addressing import dedupe_marks
from chatlane.store.conversations import timed_resets
from chatlane.store.logs import partitions
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.support.servers.databases import empty
from tests.support.worlds.fake_streams import FakeStream
from tests.support.worlds.kernel import DAY, catalog

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import Trace
    from chatlane.outbox.publisher import Ack

T = TypeVar("T")

PARTITIONS: Final = 4
SLOTS: Final = 4
GENERATION: Final = "the log"
STREAM_OF: Final = {
    "outbound": "OUTBOUND",
    "routed": "ROUTED",
    "turn": "TURNS",
    "event": "EVENTS",
    "dead": "DEAD",
}
AGENTS: Final = (
    Agent("main"),
    Agent("quick", busy="interrupt"),
    Agent("desk", delivery="stream"),
    Agent("calm", busy="queue"),
)
_CONFIGS: Final = {
    log: stream_config(its)
    for its in declared_streams(PARTITIONS)
    for log in LOGS
    if its.name == LOG_STREAMS[log]
}
DURABLES: Final = declared_durables(AGENTS, [("telegram", "bot")], slots=SLOTS)


def declared() -> Catalog:
    """Return the catalog of every example: four agents, conversations end after an hour."""
    return catalog(
        agents=AGENTS,
        profiles={"quick": "quick", "desk": "desk", "calm": "calm"},
        reset=ResetPolicy(mode="idle", idle=timedelta(hours=1)),
    )


class Pending(NamedTuple):
    """A publish on its way, of which nobody knows yet what becomes."""

    stream: str
    subject: str
    payload: bytes
    message_id: str
    future: "asyncio.Future[Ack]"


class HeldPublisher:
    """Publishes that are on their way until the machine says what becomes of them."""

    def __init__(self) -> None:
        self.pending: list[Pending] = []

    async def publish(
        self, subject: str, payload: bytes, message_id: str, trace: "Trace | None" = None
    ) -> "asyncio.Future[Ack]":
        del trace
        future: asyncio.Future[Ack] = asyncio.get_running_loop().create_future()
        stream = STREAM_OF[subject.split(".")[2]]
        self.pending.append(Pending(stream, subject, payload, message_id, future))
        return future


class LogEnd(NamedTuple):
    """How far a log goes."""

    generation: str
    last_sequence: int
    config: Mapping[str, Any]


class Stage:
    """One event loop and one emptied database after the other, for many examples."""

    def __init__(self, dsn: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._stack = AsyncExitStack()
        self.store: Store = self.run(self._stack.enter_async_context(open_store(dsn)))

    def run(self, work: Awaitable[T]) -> T:
        """Let the loop run until a piece of work is done."""
        return self.loop.run_until_complete(work)

    def close(self) -> None:
        """End everything."""
        self.run(self._stack.aclose())
        self.loop.close()


class World:
    """Both logs, the streams and the clock of one example.

    Attributes:
        now: By the clock of the logs, and of the database where conversations are concerned.
        monotonic: Seconds, as relays count how long ago they were told something.
    """

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.store = stage.store
        self.catalog = declared()
        self.now = DAY
        self.monotonic = 0.0
        self._logs: dict[LogName, list[LogMessage]] = {log: [] for log in LOGS}
        self._streams: defaultdict[str, FakeStream] = defaultdict(FakeStream)

    async def open(self) -> None:
        """Start with nothing."""
        async with self.store.transaction() as connection:
            await prepare(connection)

    async def close(self) -> None:
        """End what belongs to this example."""

    # The logs.

    async def publish(self, log: LogName, partition: int, subject: str, body: bytes) -> None:
        """Store a message of a log; `subject` is the stored one."""
        self.pass_time(timedelta(milliseconds=1))
        messages = self._logs[log]
        message = LogMessage(log, partition, len(messages) + 1, self.now, subject, None, body)
        messages.append(message)

    async def end_of(self, log: LogName = "inbound") -> LogEnd:
        """Return how far a log goes."""
        return LogEnd(GENERATION, len(self._logs[log]), _CONFIGS[log])

    async def read(self, partition: PartitionId, cursor: int, limit: int) -> list[LogMessage]:
        """Return the next messages of a partition behind a cursor."""
        its = self._logs[partition.log][cursor:]
        return [one for one in its if one.partition == partition.number][:limit]

    # The streams.

    async def release(self, publisher: HeldPublisher, count: int, fate: str) -> None:
        """Decide about publishes on their way, in the order in which they were sent.

        Args:
            publisher: Whose.
            count: How many at most.
            fate: `stored`, `unanswered` (stored, and nobody is told), `lost` or `full`.
        """
        going, publisher.pending = publisher.pending[:count], publisher.pending[count:]
        for one in going:
            await self._end(one, fate)

    async def _end(self, one: Pending, fate: str) -> None:
        ack = await self.store_in(one) if fate in {"stored", "unanswered"} else None
        if one.future.done():
            return
        if ack is not None and fate == "stored":
            one.future.set_result(ack)
            return
        error = StreamFullError("full") if fate == "full" else BusUnavailableError(fate)
        one.future.set_exception(error)
        one.future.exception()

    async def store_in(self, one: Pending) -> "Ack":
        """Store a message in its stream."""
        return self._streams[one.stream].store(one.subject, one.payload, one.message_id)

    async def stored(self, stream: str) -> Sequence[tuple[str, bytes]]:
        """Return what a stream holds, in order: subjects and bodies."""
        return self._streams[stream].messages

    def forget_ids(self) -> None:
        """Let the duplicate window of every stream pass."""
        for stream in self._streams.values():
            stream.forget_ids()

    # What a comparison asks.

    async def get_state(self, log: LogName) -> LogEnd:
        """Return how far a log goes."""
        return await self.end_of(log)

    async def find_stored_after(self, partition: PartitionId, cursor: int) -> datetime | None:
        """Return when the next message of a partition behind a cursor was stored."""
        found = await self.read(partition, cursor, 1)
        return found[0].stored_at if found else None

    async def find_backlog(self, _durable: object) -> Backlog:
        """Return that workers have read all notifications."""
        return Backlog(0, None)

    async def is_ahead(self, _durable: object) -> bool:
        """Return that no durable is past the end of its stream."""
        return False

    async def count(self, *_what: object) -> int:
        """Return that no message is without a partition."""
        return 0

    async def compare(self) -> Counter[str]:
        """Return that no stream has lost anything."""
        return Counter()

    # The time.

    def pass_time(self, span: timedelta) -> None:
        """Let time pass."""
        self.now += span
        self.monotonic += span.total_seconds()

    @contextmanager
    def clocks(self) -> Iterator[None]:
        """Let the product ask this clock during the block where it would ask for the time.

        Leases of turns, partitions and routers stay with the clock of the database: the machine
        ends them by hand.
        """
        begin = api_requests.begin

        async def now(_connection: object) -> datetime:
            return self.now

        async def begin_now(*arguments: object) -> datetime | None:
            at = await begin(*arguments)  # type: ignore[arg-type]
            return None if at is None else self.now

        with (
            patch.object(timed_resets, "now", now),
            patch.object(api_requests, "begin", begin_now),
            patch("chatlane.outbox.relay.time") as of_relay,
            patch("chatlane.outbox.publish_window.time") as of_pipeline,
        ):
            of_relay.monotonic = of_pipeline.monotonic = lambda: self.monotonic
            yield


_SET_GENERATION: Final = "UPDATE partitions SET generation = $1"


async def prepare(connection: "PoolConnectionProxy") -> None:
    """Empty the database and make the partitions."""
    await empty(connection)
    for log in LOGS:
        await partitions.ensure(connection, log, PARTITIONS)
    await connection.execute(_SET_GENERATION, GENERATION)
    await dedupe_marks.create_partitions(connection, timedelta(days=3))
