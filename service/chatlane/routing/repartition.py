"""Changes into how many partitions a log is divided, while routers read it.

The server can only be told to divide otherwise *from now on*, and where in the log that begins
nobody can say beforehand: of several servers each begins for itself. So in between the log is read
as a whole, in its own order, by one router:

1. The partitions get a stop behind the end of the log. When all cursors stand before it, one
   partition takes their place that is the whole log.
2. The server is told the new number, and what it stores is read as a whole, under whichever
   number it was stored.
3. When nothing is stored under the former number any more, the whole log gets a stop, too, and
   behind it the new partitions begin.

Each step is committed by itself and found again by whoever asks for the same change once more.
Between any two of them messages are decided as ever, so nothing waits for the next step.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.crash_points import ChangePoint, reach
from chatlane.errors import ChatlaneError
from chatlane.store import divisions, routers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.bus.jetstream import StreamState
    from chatlane.domain.log import LogName
    from chatlane.store.divisions import Division

_PAUSE_SECONDS: Final = 0.1


class RepartitionError(ChatlaneError):
    """The partitions cannot be changed now; the text says why. What was done so far stays."""


class Stage(StrEnum):
    """What is done, or waited for, next."""

    STOP = "stop"
    """The partitions get their stop."""
    START_OVER = "start over"
    """The server divides otherwise than the database knows: everything is read once more."""
    DIVIDE = "divide"
    """The server is told the new number, and the log read as a whole gets its stop."""
    DRAIN = "drain"
    """Routers read up to the stop."""
    DONE = "done"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the change of a log is.

    Attributes:
        count: Its partitions now, 0 while it is read as a whole.
        stored_by: Into how many the server divides what it stores now; None when it does not.
        behind: How many partitions routers have yet to read up to their stop.
        cursor: How far all of them are read.
    """

    log: LogName
    stage: Stage
    count: int
    stored_by: int | None
    behind: int
    cursor: int


class Logs(Protocol):
    """The logs as a change of their division sees them."""

    async def divided_into(self, log: LogName) -> int | None:
        """Return into how many partitions the server divides a log."""
        ...

    async def get_state(self, log: LogName) -> StreamState:
        """Return how far a log goes."""
        ...

    async def divide(self, log: LogName, count: int) -> None:
        """Have the server store by another number from now on."""
        ...

    async def until_settled(self, log: LogName) -> StreamState:
        """Wait until it does, and nothing else is on its way; return how far the log goes."""
        ...


class Repartition:
    """A change of both logs to one number of partitions.

    Args:
        logs: The logs.
        transaction: Opens a transaction of the store.
        count: How many partitions each log is to have.
    """

    def __init__(
        self,
        logs: Logs,
        transaction: Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]],
        count: int,
    ) -> None:
        self._logs = logs
        self._transaction = transaction
        self._count = count

    async def look(self, log: LogName) -> Progress:
        """Return what would be done next.

        Raises:
            RepartitionError: There is no such log yet.
            TransientError: NATS or Postgres do not answer.
        """
        stored_by = await self._logs.divided_into(log)
        async with self._transaction() as connection:
            division = (await divisions.read(connection)).get(log)
        if division is None or stored_by is None:
            raise RepartitionError(
                f"the {log} log has no partitions yet: `chatlane admin apply` and the first router "
                "make them"
            )
        return self._progress(log, division, stored_by)

    async def run(self, log: LogName, patience: timedelta) -> AsyncIterator[Progress]:
        """Do step after step of one log; yield before each and whenever waiting gets on.

        Args:
            log: Which one.
            patience: How long to wait for routers without one that gets on.

        Raises:
            RepartitionError: It cannot be done now, or routers do not get on.
            TransientError: NATS or Postgres do not answer.
        """
        loop = asyncio.get_running_loop()
        last: Progress | None = None
        moved_at = loop.time()
        while True:
            progress = await self.look(log)
            if progress != last:
                last, moved_at = progress, loop.time()
                yield progress
            if progress.stage is Stage.DONE:
                return
            await self.step(log, progress.stage)
            if progress.stage is Stage.DRAIN:
                if loop.time() - moved_at > patience.total_seconds():
                    raise RepartitionError(_stalled(progress))
                await asyncio.sleep(_PAUSE_SECONDS)

    async def step(self, log: LogName, expected: Stage | None = None) -> Progress:
        """Do the next step of a log, or look whether routers have got to the stop.

        Args:
            log: Which one.
            expected: The only step to do, if any; another one is left to do.

        Returns:
            What the step was.

        Raises:
            RepartitionError: It cannot be done now.
            TransientError: NATS or Postgres do not answer.
        """
        progress = await self.look(log)
        async with self._transaction() as connection:
            if not await divisions.try_lock(connection):
                raise RepartitionError("somebody else is changing the partitions right now")
            # What was seen may be another's step ago.
            division = (await divisions.read(connection))[log]
            progress = self._progress(log, division, await self._logs.divided_into(log))
            await self._require_able_routers(connection, progress)
            if expected in {None, progress.stage}:
                await self._do(connection, progress, division)
        if progress.stage is Stage.STOP:
            reach(ChangePoint.STOPPED)
        return progress

    def _progress(self, log: LogName, division: Division, stored_by: int | None) -> Progress:
        if division.stop is not None:
            stage = Stage.DRAIN
        elif division.count == 0:
            stage = Stage.DIVIDE
        elif division.count != stored_by:
            stage = Stage.START_OVER
        elif division.count != self._count:
            stage = Stage.STOP
        else:
            stage = Stage.DONE
        return Progress(log, stage, division.count, stored_by, division.behind, division.cursor)

    async def _require_able_routers(
        self, connection: PoolConnectionProxy, progress: Progress
    ) -> None:
        if progress.stage is not Stage.DONE and (old := await routers.outdated(connection)):
            raise RepartitionError(
                f"routers of an older release are running ({', '.join(old)}), which cannot follow "
                "a change of the partitions: replace them first"
            )

    async def _do(
        self, connection: PoolConnectionProxy, progress: Progress, division: Division
    ) -> None:
        log = progress.log
        match progress.stage:
            case Stage.STOP:
                await self._stop(connection, log, division)
            case Stage.START_OVER:
                await divisions.start_over(connection, log)
            case Stage.DIVIDE:
                await self._divide(connection, log, division)
            case Stage.DRAIN:
                await self._lower_stop(connection, log, division)
                await divisions.hand_over(connection, log)
            case Stage.DONE:
                return

    async def _stop(
        self, connection: PoolConnectionProxy, log: LogName, division: Division
    ) -> None:
        # The server still divides as before, so everything of another division comes later.
        state = await self._logs.get_state(log)
        self._require_one_log(log, state, division)
        await divisions.stop(connection, log, state.last_sequence, 0)

    async def _divide(
        self, connection: PoolConnectionProxy, log: LogName, division: Division
    ) -> None:
        await self._logs.divide(log, self._count)
        reach(ChangePoint.MAPPED)
        state = await self._logs.until_settled(log)
        self._require_one_log(log, state, division)
        await divisions.stop(connection, log, state.last_sequence, self._count)
        reach(ChangePoint.BOUNDED)

    async def _lower_stop(
        self, connection: PoolConnectionProxy, log: LogName, division: Division
    ) -> None:
        """Move a stop that a log made anew will not get to for long."""
        state = await self._logs.get_state(log)
        stop = division.stop
        if stop is None or stop.before <= state.last_sequence + 1:
            return
        if division.generations == {state.generation}:
            await divisions.stop(connection, log, state.last_sequence, stop.next_count)

    def _require_one_log(self, log: LogName, state: StreamState, division: Division) -> None:
        """Require that no cursor counts in a log that is no more: it may stand anywhere."""
        if division.generations - {state.generation}:
            raise RepartitionError(
                f"the {log} log was made anew or restored, and routers have not looked at it yet: "
                "try again once they have"
            )


def _stalled(progress: Progress) -> str:
    return (
        f"{progress.behind} partitions of the {progress.log} log are not read up to their stop yet: "
        "are routers running, and do they get on? Messages are decided as ever; run this again to "
        "finish"
    )
