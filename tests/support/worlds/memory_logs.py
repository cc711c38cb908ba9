"""The two logs without a server: messages in lists, and readers of one partition each.

Passes the suite that the real logs pass (tests/conformance).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from chatlane.domain.log import LogMessage, LogName, LogPosition, PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.nats.jetstream import JetStream, StoredMessage, StreamState
from chatlane.nats.log_inspection import Inspection, inspect_log

START: Final = datetime(2026, 5, 11, 9, tzinfo=UTC)
# From the server to a reader.
_LATENCY_SECONDS: Final = 0.0005
PARTITIONS: Final = 4


@dataclass(slots=True)
class MemoryLog:
    """One log: its messages, and what there was before the first of them."""

    name: LogName
    messages: list[LogMessage] = field(default_factory=list)
    made: int = 1
    purged: int = 0

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest message ever stored."""
        return self.purged + len(self.messages)

    def after(self, sequence: int) -> list[LogMessage]:
        """Return the messages behind a sequence."""
        return self.messages[max(0, sequence - self.purged) :]


class MemoryLogs:
    """A "server" with both logs, and whoever reads them."""

    def __init__(self) -> None:
        self.logs: dict[LogName, MemoryLog] = {
            "inbound": MemoryLog("inbound"),
            "results": MemoryLog("results"),
        }
        self.readers: set[MemoryReader] = set()

    def publish(self, partition: int, body: str, log: LogName = "inbound") -> int:
        """Store a message; returns its sequence."""
        its = self.logs[log]
        now = START + timedelta(seconds=asyncio.get_running_loop().time())
        sequence = its.last_sequence + 1
        subject = f"chat.v1.log.{partition}.test.bot.none"
        its.messages.append(LogMessage(log, partition, sequence, now, subject, body, body.encode()))
        for reader in tuple(self.readers):
            reader.wake_up()
        return sequence

    def recreate(self, log: LogName = "inbound") -> None:
        """Delete a log and make another one."""
        self.logs[log] = MemoryLog(log, made=self.logs[log].made + 1)

    def purge_to(self, sequence: int, log: LogName = "inbound") -> None:
        """Delete everything up to and with a sequence."""
        its = self.logs[log]
        its.messages = its.after(sequence)
        its.purged = max(its.purged, sequence)


class MemoryReader:
    """Reads one partition from one position on, until it is broken off."""

    def __init__(
        self,
        server: MemoryLogs,
        partition: PartitionId,
        start_sequence: int,
        on_arrival: Callable[[], None],
        max_messages: int,
    ) -> None:
        self.messages: deque[LogMessage] = deque()
        self.last_sequence = start_sequence - 1
        self.broken = asyncio.Event()
        self.break_reason = ""
        self._server = server
        self._partition = partition
        self._on_arrival = on_arrival
        self._max_messages = max_messages
        self._log = server.logs[partition.log]
        self._looked_to = start_sequence - 1
        self._handle: asyncio.TimerHandle | None = None
        server.readers.add(self)
        self.wake_up()

    @property
    def is_caught_up(self) -> bool:
        """Whether there is nothing more to come and nothing in memory."""
        is_at_end = self._looked_to >= self._log.last_sequence
        return is_at_end and not self.messages and not self.broken.is_set()

    def wake_up(self) -> None:
        """Have messages delivered in a moment."""
        if self._handle is None and not self.broken.is_set():
            loop = asyncio.get_running_loop()
            self._handle = loop.call_later(_LATENCY_SECONDS, self._deliver)

    def _deliver(self) -> None:
        self._handle = None
        if self.broken.is_set():
            return
        if self._server.logs[self._partition.log] is not self._log:
            self.break_off("status 409 Consumer Deleted")
            return
        for message in self._log.after(self._looked_to):
            if len(self.messages) >= self._max_messages:
                return
            self._looked_to = message.sequence
            if message.partition == self._partition.number:
                self.messages.append(message)
                self.last_sequence = message.sequence
                self._on_arrival()

    def drop(self, count: int) -> None:
        """Forget the first messages, and have more delivered."""
        for _ in range(count):
            self.messages.popleft()
        self.wake_up()

    def break_off(self, reason: str) -> None:
        """Stop for good; the first reason stays."""
        if not self.broken.is_set():
            self.break_reason = reason
            self.broken.set()
            self._server.readers.discard(self)

    async def close(self) -> None:
        """Stop."""
        self.break_off("closed")


class MemoryAccess:
    """The logs as one router sees them; see `LogAccess`.

    Attributes:
        is_cut: Whether this router cannot reach them.
        partition_count: The number of partitions of each log.
    """

    partition_count = PARTITIONS

    def __init__(self, server: MemoryLogs, max_messages: int = 512) -> None:
        self.is_cut = False
        self._server = server
        self._max_messages = max_messages

    @property
    def is_reachable(self) -> bool:
        """Whether the logs can be talked to."""
        return not self.is_cut

    async def inspect(self, log: LogName, position: LogPosition) -> Inspection:
        """Compare a committed position with the log, by the rules of the router."""
        await self._arrive()
        server = cast("JetStream", _Server(self._server.logs[log]))
        return await inspect_log(server, log, position, self.partition_count)

    async def open(
        self,
        partition: PartitionId,
        *,
        start_sequence: int,
        on_arrival: Callable[[], None],
        **_names: Any,  # noqa: ANN401 # a name is needed only where there is a server
    ) -> MemoryReader:
        """Open a reader."""
        await self._arrive()
        return MemoryReader(self._server, partition, start_sequence, on_arrival, self._max_messages)

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        await self._arrive()
        return await _Server(self._server.logs[log]).get_stream(log)

    async def find_last_sequence(self, partition: PartitionId) -> int | None:
        """Return the sequence of the newest message of a partition."""
        await self._arrive()
        of_partition = [
            its.sequence
            for its in self._server.logs[partition.log].messages
            if its.partition == partition.number
        ]
        return of_partition[-1] if of_partition else None

    async def _arrive(self) -> None:
        await asyncio.sleep(_LATENCY_SECONDS)
        if self.is_cut:
            raise BusUnavailableError("cut")


class _Server:
    """What an inspection asks of JetStream."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log

    async def get_stream(self, _stream: str) -> StreamState:
        log = self._log
        newest = log.messages[-1].stored_at if log.messages else START
        return StreamState(
            config={
                "metadata": {"chatlane_generation": str(log.made)},
                "subject_transform": {"dest": f"log.{{{{partition({PARTITIONS},1)}}}}.>"},
            },
            created=f"made {log.made}",
            first_sequence=log.purged + 1,
            last_sequence=log.last_sequence,
            last_stored_at=newest,
        )

    async def find_message(self, _stream: str, sequence: int) -> StoredMessage | None:
        found = self._log.after(sequence - 1)[:1] if sequence > self._log.purged else []
        return next(
            (StoredMessage(it.sequence, it.stored_at, it.subject, it.body) for it in found), None
        )
