"""Detect streams and durables that differ from the declarations, and deletions in the logs.

A router neither creates nor changes them: a new durable starts at the beginning of its stream, and
an operator has to judge whether the repeated messages are acceptable. A router that opens a reader
finds its position in a replaced or truncated log by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.log import LOGS, REPLAY_WINDOW
from chatlane.jobs import Job
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import LogAlarm
from chatlane.store.logs.log_trims import NO_HOLES, Holes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.domain.log import LogName
    from chatlane.nats.jetstream import StreamState
    from chatlane.nats.log_access import LogAccess
    from chatlane.observability.metrics import Metrics

# With jitter of up to half the interval and the time of some requests: within 15 s.
_EVERY: Final = timedelta(seconds=8)

Differences = Callable[[], Awaitable["Sequence[str]"]]

Erased = Callable[["LogName", str, int, int], Awaitable[Holes]]

_log = get_logger("drift")


async def _none_erased(_log: LogName, _generation: str, _first: int, _last: int) -> Holes:
    return NO_HOLES


class DriftWatch:
    """Compares the server with the declarations periodically.

    Args:
        differences: Returns one sentence for each difference.
        logs: Both logs.
        metrics: Shows the findings.
        replay_window: How long logs keep every message.
        erased: Returns how many messages in a sequence range of a log we deleted ourselves.
    """

    def __init__(
        self,
        differences: Differences,
        logs: LogAccess,
        metrics: Metrics,
        replay_window: timedelta = REPLAY_WINDOW,
        erased: Erased = _none_erased,
    ) -> None:
        self._erased = erased
        self._differences = differences
        self._logs = logs
        self._metrics = metrics
        self._remembered_for = replay_window.total_seconds() / 2
        self._found: frozenset[str] = frozenset()
        self._seen: dict[LogName, _Seen] = {}

    @property
    def complaints(self) -> list[str]:
        """Return the names of the problems that an operator should check."""
        return ["topology"] if self._found else []

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (
            Job("topology", _EVERY, self.look),
            Job("deletions", _EVERY, self.look_for_deletions),
        )

    async def look(self) -> None:
        """Log each new difference from the declarations once, and log when it is resolved.

        Raises:
            BusUnavailableError: The next run repeats it.
        """
        found = frozenset(await self._differences())
        for sentence in sorted(found - self._found):
            _log.error("topology_differs", detail=sentence)
        for sentence in sorted(self._found - found):
            _log.info("topology_mended", detail=sentence)
        self._found = found
        self._metrics.topology_differences.set(len(found))

    async def look_for_deletions(self) -> None:
        """Report messages of a log that are missing although the service did not delete them.

        Routers purge below every cursor, and never messages younger than the replay window. So a
        message that this process has seen lately cannot be missing, and the middle of a log never
        has holes.

        Raises:
            BusUnavailableError: The next run repeats it.
        """
        for log in LOGS:
            state, now = await self._logs.get_state(log), monotonic()
            seen = self._seen.get(log)
            if seen is not None and seen.state.generation == state.generation:
                if not _lacks(state, seen.state):
                    if now - seen.at < self._remembered_for:
                        continue
                elif not await self._is_erased(log, state, seen):
                    self._metrics.log_alarms.labels(log, LogAlarm.DELETED).inc()
                    _log.critical(
                        "log_messages_deleted",
                        log=log,
                        first_seq=state.first_sequence,
                        last_seq=state.last_sequence,
                        count=state.deleted,
                    )
            self._seen[log] = _Seen(state, now, await self._unexplained(log, state))

    async def _unexplained(self, log: LogName, state: StreamState) -> int:
        if not state.deleted:
            return 0
        holes = await self._erased(log, state.generation, state.first_sequence, state.last_sequence)
        return max(0, state.deleted - holes.deleted)

    async def _is_erased(self, log: LogName, state: StreamState, seen: _Seen) -> bool:
        """Return True if our own deletions explain every message that is missing since.

        All noted messages count, deleted or not, because they are noted before they are deleted.
        """
        first, generation = seen.state.first_sequence, state.generation
        if state.first_sequence > seen.state.last_sequence:
            cut = await self._erased(log, generation, first, state.first_sequence - 1)
            if cut.noted + seen.state.deleted < state.first_sequence - first:
                return False
        holes = await self._erased(log, generation, state.first_sequence, state.last_sequence)
        return state.deleted - holes.noted <= seen.unexplained


class _Seen(NamedTuple):
    """State of a log at one check.

    Attributes:
        at: Monotonic time of the check.
        unexplained: Number of messages missing then that the service did not delete itself.
    """

    state: StreamState
    at: float
    unexplained: int


def _lacks(state: StreamState, before: StreamState) -> bool:
    """Return True if a log lost messages between two checks, at its beginning or in the middle."""
    all_seen_is_gone = state.first_sequence > max(before.last_sequence + 1, before.first_sequence)
    return all_seen_is_gone or state.deleted > before.deleted
