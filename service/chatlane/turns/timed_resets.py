"""End sessions at their reset time without waiting for a message, and announce it before."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.timed_resets import evaluate
from chatlane.jobs import Job
from chatlane.store import pending_messages
from chatlane.store.conversations import sessions, timed_resets
from chatlane.store.conversations.timed_resets import Check

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.log import LogPosition
    from chatlane.postgres.pool import Store

_AT_ONCE: Final = 200
# Transactions in a row: many sessions end at the same hour, and batches must not wait for all.
_ROUNDS: Final = 10
_SEEN_AT_ONCE: Final = 2000
# Chunks scanned in one run, so that a large table causes neither a long transaction nor a burst.
_CHUNKS: Final = 20
# Allowed difference between the clocks of the servers.
_SKEW: Final = timedelta(seconds=10)
# Ids start with the time of the first message; a session committed later may have a lower id.
_OVERLAP_MS: Final = 10 * 60 * 1000
_WALK_AGAIN: Final = timedelta(hours=6)
_START: Final = UUID(int=0)


class LogEnd(Protocol):
    """Describe the end of the inbound log."""

    @property
    def generation(self) -> str:
        """The generation of the log."""
        ...

    @property
    def last_sequence(self) -> int:
        """The sequence of the newest message ever stored."""
        ...


@dataclass(slots=True)
class TimedEnds:
    """Check sessions whose reset may be due; several routers may do so at once.

    Attributes:
        end_of_log: Returns the current end of the inbound log.
    """

    store: Store
    writer: UnitOfWorkFactory
    catalog: Catalog
    end_of_log: Callable[[], Awaitable[LogEnd]]
    _walked_to: UUID = field(default=_START, init=False)
    _walk_began: datetime | None = field(default=None, init=False)

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (
            Job("timed ends", timedelta(seconds=5), self.sweep),
            Job("sessions to watch", timedelta(seconds=30), self.arm),
        )

    async def sweep(self) -> int:
        """Check the sessions that are due; return how many there were.

        Raises:
            BusUnavailableError: The next run retries.
            StoreUnavailableError: The next run retries.
        """
        looked_at = 0
        for _ in range(_ROUNDS):
            some = await self._sweep_some()
            looked_at += some
            if some < _AT_ONCE:
                break
        return looked_at

    async def _sweep_some(self) -> int:
        async with self.store.transaction() as connection:
            due = await timed_resets.find_due(connection, _AT_ONCE)
            asked_at = await timed_resets.now(connection)
        if not due:
            return 0
        end = await self.end_of_log()
        async with self.writer.begin() as unit_of_work:
            await self._look(unit_of_work, due, end, asked_at)
        return len(due)

    async def _look(
        self, unit_of_work: UnitOfWork, due: Sequence[UUID], end: LogEnd, asked_at: datetime
    ) -> None:
        connection = unit_of_work.connection
        # Read the positions before the sessions: then the sessions contain everything that was
        # committed up to these positions.
        until = committed_until(await timed_resets.positions(connection), end, asked_at)
        locked = await sessions.lock_free(connection, due)
        announced = await timed_resets.announced(connection, locked)
        busy = await pending_messages.sessions_with_waiting(connection, locked)
        now = await timed_resets.now(connection)
        effects, checks = Effects(), []
        for session in locked.values():
            looked = evaluate(
                session,
                policy_of(self.catalog, session.session_key),
                now=now,
                committed_until=until,
                ending_at=announced[session.id],
                has_waiting=session.id in busy,
                effects=effects,
            )
            checks.append(Check(session.id, *looked))
        await timed_resets.write(connection, checks)
        ended = [session for session in locked.values() if session.ended_at is not None]
        await unit_of_work.write(effects, sessions_of=ended)

    async def arm(self) -> int:
        """Schedule checks for sessions that have none; return how many.

        Sessions are scanned by id, which is by age, so that writing a message does not have to
        schedule a check. The scan covers all sessions when the router starts and every few
        hours, and only new sessions otherwise.
        """
        platforms = self._timed_platforms()
        armed = 0
        for _ in range(_CHUNKS if platforms else 0):
            found, is_over = await self._arm_some(platforms)
            armed += found
            if is_over:
                break
        return armed

    async def _arm_some(self, platforms: Sequence[str]) -> tuple[int, bool]:
        async with self.store.transaction() as connection:
            now = await timed_resets.now(connection)
            if self._walk_began is None or now - self._walk_began > _WALK_AGAIN:
                self._walked_to, self._walk_began = _START, now
            found, last = await timed_resets.find_unchecked(
                connection, self._walked_to, platforms, _SEEN_AT_ONCE
            )
            timed = [session.id for session in found if self._is_timed(session.session_key)]
            if timed:
                await timed_resets.arm(connection, timed)
        if last is not None:
            self._walked_to = last
            return len(timed), False
        self._walked_to = min(self._walked_to, _before(now))
        return len(timed), True

    def _timed_platforms(self) -> list[str]:
        classes = ("dm", "group")
        return [
            name
            for name in self.catalog.platforms
            if any(
                self.catalog.reset_policy_for(name, chat_class).is_timed for chat_class in classes
            )
        ]

    def _is_timed(self, session_key: str) -> bool:
        return policy_of(self.catalog, session_key).is_timed


def _before(now: datetime) -> UUID:
    """Return an id that is lower than any id that may still be committed."""
    return UUID(int=max(0, round(now.timestamp() * 1000) - _OVERLAP_MS) << 80)


def committed_until(
    positions: Sequence[LogPosition], end: LogEnd, asked_at: datetime
) -> datetime | None:
    """Return a time before which every message of the inbound log is decided; None if unknown.

    All partitions count, not only those of one lane: messages of a person or a chat with
    several ids are in several partitions.

    Args:
        positions: The positions of all partitions, read after `end`.
        end: The end of the log, read after `asked_at`.
        asked_at: The time before the reads, by the clock of the database.
    """
    times = [_committed_until(position, end, asked_at) for position in positions]
    known = [time for time in times if time is not None]
    return min(known) if known and len(known) == len(times) else None


def _committed_until(position: LogPosition, end: LogEnd, asked_at: datetime) -> datetime | None:
    if position.generation == end.generation and position.cursor >= end.last_sequence:
        return asked_at - _SKEW
    return position.cursor_at
