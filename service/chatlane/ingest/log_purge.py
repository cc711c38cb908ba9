"""Purges the two logs: what every cursor has passed and nobody can ask to be read again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.domain.log import LOGS, REPLAY_WINDOW
from chatlane.observability.logs import get_logger
from chatlane.store.logs import log_marks, log_trims

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import LogName
    from chatlane.nats.jetstream import StreamState
    from chatlane.store.logs.log_marks import PurgeBounds

_MARK_EVERY: Final = timedelta(hours=1)

_log = get_logger("retention")


def purge_sequence(first_sequence: int, bounds: PurgeBounds) -> int | None:
    """Return the sequence below which a log may be purged, or None when there is nothing to do.

    The message at the least cursor stays: whoever opens a reader there compares its time.

    Args:
        first_sequence: Of the oldest message there is.
        bounds: The least cursor, and what is older than the replay window.
    """
    if bounds.least_cursor is None or bounds.marked_sequence is None:
        return None
    sequence = min(bounds.least_cursor, bounds.marked_sequence)
    return sequence if sequence > first_sequence else None


class Logs(Protocol):
    """The logs as the retention sees them."""

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        ...

    async def find_stored_at(self, log: LogName, sequence: int) -> datetime | None:
        """Return when a message was stored, if it is still there."""
        ...

    async def purge_below(self, log: LogName, sequence: int) -> int:
        """Delete every message before `sequence`."""
        ...


class LogRetention:
    """Notes once an hour how far each log has come, and purges by what was noted days ago.

    Any number of routers may do this at once: marks are written once, and a purge that was
    done already does nothing.

    Args:
        logs: The logs.
        transaction: Opens one.
        replay_window: For how long everything is kept, read or not.
    """

    def __init__(
        self,
        logs: Logs,
        transaction: Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]],
        replay_window: timedelta = REPLAY_WINDOW,
    ) -> None:
        self._logs = logs
        self._transaction = transaction
        self._replay_window = replay_window

    async def keep(self) -> int:
        """Do what is due for both logs; returns how many messages were purged.

        Raises:
            BusUnavailableError: Next time.
            StoreUnavailableError: Next time.
        """
        return sum([await self._keep(log) for log in LOGS])

    async def _keep(self, log: LogName) -> int:
        state = await self._logs.get_state(log)
        bounds = await self._mark(log, state)
        sequence = purge_sequence(state.first_sequence, bounds)
        if sequence is None or not await self._is_old(log, sequence, state.told_at):
            return 0
        purged = await self._logs.purge_below(log, sequence)
        async with self._transaction() as connection:
            await log_marks.delete_old(connection, log, self._replay_window)
            await log_trims.expire(connection, self._replay_window)
        _log.info("log_purged", log=log, count=purged, first_seq=sequence)
        return purged

    async def _mark(self, log: LogName, state: StreamState) -> PurgeBounds:
        generation = state.generation
        async with self._transaction() as connection:
            await log_marks.write(connection, log, generation, state.last_sequence, _MARK_EVERY)
            return await log_marks.read_bounds(connection, log, generation, self._replay_window)

    async def _is_old(self, log: LogName, sequence: int, now: datetime) -> bool:
        """Ask the log itself: after a loss of its tail the sequences of a mark are used again."""
        stored_at = await self._logs.find_stored_at(log, sequence)
        return stored_at is None or stored_at <= now - self._replay_window
