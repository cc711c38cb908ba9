"""The streams in memory, as those see them who export and erase people."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta

from chatlane.nats.jetstream import StoredMessage, StreamState
from chatlane_schemas.topology.streams import StreamName

_LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class MemoryStreams:
    """All streams; the clock moves on with each look at it.

    Attributes:
        now: What the clock of the streams shows.
        messages: What each holds.
    """

    def __init__(self, now: datetime) -> None:
        self.now = now
        self.messages: dict[StreamName, list[StoredMessage]] = {name: [] for name in StreamName}
        self._stored = 0

    def store(self, stream: StreamName, stored_at: datetime, subject: str, body: bytes) -> None:
        """Store a message."""
        self._stored += 1
        self.now = max(self.now, stored_at)
        self.messages[stream].append(StoredMessage(self._stored, stored_at, subject, body))

    async def clock(self) -> datetime:
        """Return the time by the clock of the streams."""
        self.now += timedelta(seconds=1)
        return self.now

    async def state(self, stream: StreamName) -> StreamState | None:
        """Return how far a stream goes."""
        return StreamState({}, stream, 1, self._stored, self.now, 0, self.now)

    async def find_stored_at(self, stream: str, sequence: int) -> datetime | None:
        """Return when a message was stored, if it is there."""
        known = {one.sequence: one.stored_at for one in self.messages[StreamName(stream)]}
        return known.get(sequence)

    async def first_stored_at(self, stream: StreamName) -> datetime | None:
        """Return when the oldest message of a stream was stored."""
        return next((one.stored_at for one in self.messages[stream]), None)

    async def read(
        self,
        stream: StreamName,
        account: tuple[str, str] | None = None,
        until: datetime | None = None,
    ) -> AsyncIterator[list[StoredMessage]]:
        """Yield all messages of a stream up to a time, or those of INBOUND of an account."""
        del account
        yield [one for one in self.messages[stream] if until is None or one.stored_at <= until]

    async def delete(self, stream: str, sequences: Iterable[int], *, overwrite: bool) -> None:
        """Delete messages for good."""
        del overwrite
        gone, name = set(sequences), StreamName(stream)
        self.messages[name] = [one for one in self.messages[name] if one.sequence not in gone]
