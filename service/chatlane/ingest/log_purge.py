"""Purge messages from the two logs that every cursor has passed and no replay can request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.log import LOGS, REPLAY_WINDOW
from chatlane.observability.logs import get_logger
from chatlane.store.logs import log_marks, log_trims
from chatlane_schemas.topology.streams import ROUTED_MAX_AGE

if TYPE_CHECKING:
    from chatlane.domain.log import LogName
    from chatlane.nats.jetstream import StreamState
    from chatlane.nats.log_access import LogAccess
    from chatlane.postgres.pool import Transaction
    from chatlane.store.logs.log_marks import PurgeBounds

_MARK_EVERY: Final = timedelta(hours=1)

_log = get_logger("retention")


def purge_sequence(first_sequence: int, bounds: PurgeBounds) -> int | None:
    """Return the sequence below which a log may be purged, or None if there is nothing to purge.

    The message at the least cursor stays: a reader that is opened there compares its time.

    Args:
        first_sequence: The sequence of the oldest message in the log.
        bounds: The least cursor, and the sequence that is older than the replay window.
    """
    if bounds.least_cursor is None or bounds.marked_sequence is None:
        return None
    sequence = min(bounds.least_cursor, bounds.marked_sequence)
    return sequence if sequence > first_sequence else None


@dataclass(slots=True)
class LogRetention:
    """Record the end of each log once an hour, and purge by the records of days ago.

    Several routers may do this at once: marks are written once, and a repeated purge does
    nothing.

    Attributes:
        replay_window: How long every message is kept, read or not.
    """

    logs: LogAccess
    transaction: Transaction
    replay_window: timedelta = REPLAY_WINDOW

    async def keep(self) -> int:
        """Mark and purge both logs; return how many messages were purged.

        Raises:
            BusUnavailableError: The next run retries.
            StoreUnavailableError: The next run retries.
        """
        return sum([await self._keep(log) for log in LOGS])

    async def _keep(self, log: LogName) -> int:
        state = await self.logs.get_state(log)
        bounds = await self._mark(log, state)
        sequence = purge_sequence(state.first_sequence, bounds)
        if sequence is None or not await self._is_old(log, sequence, state.answered_at):
            return 0
        purged = await self.logs.purge_below(log, sequence)
        async with self.transaction() as connection:
            await log_marks.delete_old(connection, log, self.replay_window)
            # ROUTED keeps messages longer, and the holes between them.
            await log_trims.expire(connection, max(self.replay_window, ROUTED_MAX_AGE))
        _log.info("log_purged", log=log, count=purged, first_seq=sequence)
        return purged

    async def _mark(self, log: LogName, state: StreamState) -> PurgeBounds:
        generation = state.generation
        async with self.transaction() as connection:
            await log_marks.write(connection, log, generation, state.last_sequence, _MARK_EVERY)
            return await log_marks.read_bounds(connection, log, generation, self.replay_window)

    async def _is_old(self, log: LogName, sequence: int, now: datetime) -> bool:
        """Check the age in the log itself: a log that lost its tail reuses marked sequences."""
        stored_at = await self.logs.find_stored_at(log, sequence)
        return stored_at is None or stored_at <= now - self.replay_window
