"""Notices streams and durables that are not as declared, and logs out of which somebody deleted.

A router creates and changes none of them: a durable that is made anew starts at the beginning of
its stream, and what that repeats is for a person to weigh. What a router can do by itself, finding
its place in a log that was replaced or cut off, it does where it opens a reader.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from chatlane.domain.log import LOGS, REPLAY_WINDOW
from chatlane.jobs import Job
from chatlane.observability import metrics as its
from chatlane.observability.logs import get_logger
from chatlane.store.logs.log_trims import NO_HOLES, Holes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.domain.log import LogName
    from chatlane.nats.jetstream import StreamState
    from chatlane.observability.metrics import Metrics

# Half as much again by jitter, and the time for some requests: within 15 s.
_EVERY: Final = timedelta(seconds=8)

Differences = Callable[[], Awaitable["Sequence[str]"]]

Erased = Callable[["LogName", str, int, int], Awaitable[Holes]]

_log = get_logger("drift")


class Logs(Protocol):
    """The logs as this looks at them."""

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        ...


async def _none_erased(_log: LogName, _generation: str, _first: int, _last: int) -> Holes:
    return NO_HOLES


class DriftWatch:
    """Compares the server with what is declared, again and again.

    Args:
        differences: Returns what differs, one sentence each.
        logs: Both logs.
        metrics: Where it is shown.
        replay_window: For how long logs keep everything.
        erased: Returns how many messages of a log we deleted ourselves, between two places.
    """

    def __init__(
        self,
        differences: Differences,
        logs: Logs,
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
        """What a person should look at, in one word for all of it."""
        return ["topology"] if self._found else []

    def jobs(self) -> tuple[Job, ...]:
        """Return what to do how often."""
        return (
            Job("topology", _EVERY, self.look),
            Job("deletions", _EVERY, self.look_for_deletions),
        )

    async def look(self) -> None:
        """Say what differs from the declarations, once, and when it does no longer.

        Raises:
            BusUnavailableError: Next time.
        """
        found = frozenset(await self._differences())
        for sentence in sorted(found - self._found):
            _log.error("topology_differs", detail=sentence)
        for sentence in sorted(self._found - found):
            _log.info("topology_mended", detail=sentence)
        self._found = found
        self._metrics.show(its.TOPOLOGY_DIFFERENCES, {(): len(found)})

    async def look_for_deletions(self) -> None:
        """Raise an alarm when messages of a log are gone that nobody of us purged.

        Routers purge below every cursor, and never what is younger than the replay window. So
        what this process has seen lately cannot be gone, and nothing in the middle ever is.

        Raises:
            BusUnavailableError: Next time.
        """
        for log in LOGS:
            state, now = await self._logs.get_state(log), monotonic()
            seen = self._seen.get(log)
            if seen is not None and seen.state.generation == state.generation:
                if not _lacks(state, seen.state):
                    if now - seen.at < self._remembered_for:
                        continue
                elif not await self._is_erased(log, state, seen):
                    self._metrics.record_log_alarm(log, "deleted")
                    _log.critical(
                        "log_messages_deleted",
                        log=log,
                        first_seq=state.first_sequence,
                        last_seq=state.last_sequence,
                        count=state.deleted,
                    )
            self._seen[log] = _Seen(state, now, await self._unexplained(log, state))

    async def _unexplained(self, log: LogName, state: StreamState) -> int:
        """Return how many messages are missing that were not deleted for somebody forgotten."""
        if not state.deleted:
            return 0
        holes = await self._erased(log, state.generation, state.first_sequence, state.last_sequence)
        return max(0, state.deleted - holes.gone)

    async def _is_erased(self, log: LogName, state: StreamState, seen: _Seen) -> bool:
        """Return whether all that is missing since was deleted for people who were forgotten.

        What is noted counts, gone or not: it is noted before it goes.
        """
        first, generation = seen.state.first_sequence, state.generation
        if state.first_sequence > seen.state.last_sequence:
            cut = await self._erased(log, generation, first, state.first_sequence - 1)
            if cut.noted + seen.state.deleted < state.first_sequence - first:
                return False
        holes = await self._erased(log, generation, state.first_sequence, state.last_sequence)
        return state.deleted - holes.noted <= seen.unexplained


class _Seen(NamedTuple):
    """A log at a look.

    Attributes:
        at: Monotonic time.
        unexplained: How many messages were missing then for another reason than an erasure.
    """

    state: StreamState
    at: float
    unexplained: int


def _lacks(state: StreamState, before: StreamState) -> bool:
    """Return whether a log lost messages between two looks, at its beginning or in the middle."""
    all_seen_is_gone = state.first_sequence > max(before.last_sequence + 1, before.first_sequence)
    return all_seen_is_gone or state.deleted > before.deleted
