"""Give routers access to the two logs: inspect them, read partitions, find their ends."""

from __future__ import annotations

from asyncio import Semaphore, gather
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.log import PartitionId
from chatlane.nats.jetstream import JetStream, StreamState
from chatlane.nats.log_inspection import Inspection, inspect_log
from chatlane.nats.log_reader import LogReader, ReaderLimits, Section, open_reader
from chatlane.nats.topology import LOG_STREAMS
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from chatlane.domain.log import LogName, LogPosition
    from chatlane.nats.connection import Bus

_LAGS_AT_ONCE: Final = 16
_FILTERS: Final[Mapping[LogName, Callable[[int], str]]] = {
    "inbound": subjects.log_filter,
    "results": subjects.rlog_filter,
}


class LogAccess:
    """Opens readers on partitions and inspects their logs.

    Args:
        bus: The connection.
        partition_count: The configured number of partitions of each log.
        limits: Limits of every reader.
        buffer_bytes: Maximum bytes of bodies in memory for all readers together, if this process
            reads all partitions of both logs. It overrides the limit of each reader.
    """

    def __init__(
        self,
        bus: Bus,
        partition_count: int,
        limits: ReaderLimits | None = None,
        buffer_bytes: int | None = None,
    ) -> None:
        self._bus = bus
        self.partition_count = partition_count
        self._limits = limits or ReaderLimits()
        if buffer_bytes is not None:
            self._limits = replace(self._limits, max_bytes=buffer_bytes // (2 * partition_count))
        self._jetstream = JetStream(bus.client)

    @property
    def is_reachable(self) -> bool:
        """Return True if the client is connected to a server now."""
        return self._bus.is_connected

    async def inspect(self, log: LogName, position: LogPosition) -> Inspection:
        """Compare a committed position with the log.

        Args:
            log: The log.
            position: The committed position of one of its partitions.

        Raises:
            BusUnavailableError: No answer in time, or no such stream.
        """
        return await inspect_log(self._jetstream, LOG_STREAMS[log], position, self.partition_count)

    async def open(
        self,
        partition: PartitionId,
        *,
        epoch: int,
        attempt: int,
        start_sequence: int,
        on_arrival: Callable[[], None],
    ) -> LogReader:
        """Open a reader on a partition.

        Args:
            partition: The partition to read.
            epoch: Fencing number of the reading router; part of the consumer's name.
            attempt: Number of the reader within its epoch; part of the consumer's name.
            start_sequence: The first sequence to read.
            on_arrival: Called for every message; must return quickly.

        Raises:
            BusUnavailableError: The reader could not be created.
        """
        section = Section(
            partition=partition,
            stream=LOG_STREAMS[partition.log],
            name=f"{partition.log}-{partition.number}-{epoch}-{attempt}",
            filter_subject=_filter(partition),
            start_sequence=start_sequence,
        )
        return await open_reader(self._bus, section, on_arrival, self._limits)

    async def get_state(self, log: LogName) -> StreamState:
        """Return the stream state of a log.

        Raises:
            BusUnavailableError: No answer in time, or no such stream.
        """
        return await self._jetstream.get_stream(LOG_STREAMS[log])

    async def find_stored_at(self, log: LogName, sequence: int) -> datetime | None:
        """Return the stored time of a message, or None if it is no longer there.

        Raises:
            BusUnavailableError: No answer in time.
        """
        message = await self._jetstream.find_message(LOG_STREAMS[log], sequence)
        return message.stored_at if message else None

    async def purge_below(self, log: LogName, sequence: int) -> int:
        """Delete every message before `sequence`; return their number.

        Raises:
            BusUnavailableError: No answer in time.
        """
        answer = await self._jetstream.request(
            f"STREAM.PURGE.{LOG_STREAMS[log]}", {"seq": sequence}
        )
        return int(answer["purged"])

    async def find_last_sequence(self, partition: PartitionId) -> int | None:
        """Return the sequence of the newest message of a partition, read from the leader.

        Raises:
            BusUnavailableError: No answer in time.
        """
        newest = await self._jetstream.find_last_message(
            LOG_STREAMS[partition.log], _filter(partition)
        )
        return newest.sequence if newest else None

    async def find_newest_of_chat(
        self, platform: str, account: str, chat: str
    ) -> tuple[PartitionId, int]:
        """Return the partition of a chat and the sequence of its newest event, or 0.

        Read from the leader of the stream, so that every event that was confirmed before counts.

        Args:
            platform: Declared name of the platform.
            account: Declared name of the account.
            chat: Token of the chat.

        Raises:
            BusUnavailableError: No answer in time.
        """
        number = subjects.partition_of(self.partition_count, platform, account, chat)
        subject = subjects.filled(
            subjects.LOG, partition=str(number), platform=platform, account=account, chat=chat
        )
        newest = await self._jetstream.find_last_message(LOG_STREAMS["inbound"], subject)
        return PartitionId("inbound", number), newest.sequence if newest else 0

    async def find_stored_after(self, partition: PartitionId, sequence: int) -> datetime | None:
        """Return the stored time of the first message of a partition after a sequence.

        Raises:
            BusUnavailableError: No answer in time.
        """
        found = await self._jetstream.find_next_message(
            LOG_STREAMS[partition.log], sequence + 1, _filter(partition)
        )
        return found.stored_at if found else None

    async def find_lags(
        self, cursors: Mapping[PartitionId, int]
    ) -> Mapping[PartitionId, timedelta]:
        """Return the age of the oldest message after each cursor, by the clock of the server.

        It asks once for each log, and once for each partition whose cursor is not at the end of its
        log. A partition without such a message is left out.

        Args:
            cursors: Committed positions by partition.

        Raises:
            BusUnavailableError: No answer in time, or no such stream.
        """
        logs = sorted({partition.log for partition in cursors})
        states = {log: await self.get_state(log) for log in logs}
        at_once = Semaphore(_LAGS_AT_ONCE)

        async def oldest(partition: PartitionId, cursor: int) -> datetime | None:
            if cursor >= states[partition.log].last_sequence:
                return None
            async with at_once:
                return await self.find_stored_after(partition, cursor)

        found = await gather(*(oldest(*item) for item in cursors.items()))
        return {
            partition: max(timedelta(0), states[partition.log].answered_at - stored_at)
            for partition, stored_at in zip(cursors, found, strict=True)
            if stored_at is not None
        }


def _filter(partition: PartitionId) -> str:
    return _FILTERS[partition.log](partition.number)
