"""Periodic maintenance jobs, and the loop that runs them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.log import REPLAY_WINDOW
from chatlane.jobs import Job, attempt
from chatlane.nats.tasks import run_together
from chatlane.store import api_requests, dead_letter_shares, dead_letters, deliveries, keyed_rows
from chatlane.store.addressing import dedupe_marks, rooms
from chatlane.store.history import edits
from chatlane.store.logs import routers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from random import Random

    from chatlane.postgres.pool import Connection, Transaction

SEEN_AHEAD: Final = timedelta(days=3)
# Marks outlive their messages: purges run late, and marks are dropped by whole days.
_SEEN_MARGIN: Final = timedelta(days=2)
DEAD_KEPT: Final = timedelta(days=30)
# The marks of a day are dropped together, after the last of them has expired.
_DAY_OF_MARKS: Final = timedelta(days=1)
_INTERVAL: Final = timedelta(minutes=10)
_EXPIRED_AT_ONCE: Final = 1000
# Callers do not repeat a request for longer; a week covers a caller that was off for the holidays.
_REQUESTS_KEPT: Final = timedelta(days=7)
# Replayed messages are older than the database clock; a deleted bucket counts as a full one.
_BUCKETS_KEPT: Final = timedelta(hours=1)
# Longer than a list is valid: until then its numbers are refused and do not select from another
# list.
_LISTS_KEPT: Final = timedelta(days=7)
# Longer than a request of an adapter can be under way: it could bring back an older report.
_REPORTS_KEPT: Final = timedelta(hours=1)
_DEAD_ROUTERS_KEPT: Final = timedelta(minutes=10)


class MaintenanceLoop:
    """Runs jobs until it is cancelled; no job delays or stops another.

    Args:
        jobs: The jobs; each begins with a pause.
        jitter: Keeps routers from running the same job at the same time.
    """

    def __init__(self, jobs: Iterable[Job], jitter: Random) -> None:
        self._jobs = tuple(jobs)
        self._jitter = jitter

    async def run(self) -> None:
        """Run all jobs until cancelled."""
        await run_together((f"sweep {job.name}", self._repeat(job)) for job in self._jobs)

    async def _repeat(self, job: Job) -> None:
        while True:
            await asyncio.sleep(job.every.total_seconds() * self._jitter.uniform(0.5, 1.5))
            await attempt(job)


@dataclass(slots=True)
class TableMaintenance:
    """Maintenance jobs that need only the database.

    Attributes:
        replay_window: Period for which the logs may be read again.
        dead_kept: Period for which dead letters and late results are kept.
    """

    transaction: Transaction
    replay_window: timedelta = REPLAY_WINDOW
    dead_kept: timedelta = DEAD_KEPT

    @property
    def _seen_kept(self) -> timedelta:
        return self.replay_window + _SEEN_MARGIN

    async def create_seen_days(self) -> int:
        """Create the dedupe partitions of the coming days; also needed before the first batch."""
        async with self.transaction() as connection:
            return await dedupe_marks.create_partitions(connection, SEEN_AHEAD)

    async def drop_seen_days(self) -> int:
        """Drop the dedupe partitions that no duplicate can reach; return how many."""
        return await self._repeat(
            lambda connection: dedupe_marks.drop_oldest_partition(connection, self._seen_kept)
        )

    async def forget_early_edits(self) -> int:
        """Delete edits whose messages can no longer arrive; their marks are gone by then."""
        kept = self._seen_kept + _DAY_OF_MARKS
        return await self._repeat(
            lambda connection: edits.expire_early(connection, kept, _EXPIRED_AT_ONCE)
        )

    async def forget_unexpected_receipts(self) -> int:
        """Delete receipts about messages that no router has decided."""
        return await self._repeat(
            lambda connection: deliveries.expire_unexpected(
                connection, self._seen_kept, _EXPIRED_AT_ONCE
            )
        )

    async def expire_dead_letters(self) -> int:
        """Delete dead letters and late results after their retention; return how many."""
        expired = await self._repeat(
            lambda connection: dead_letters.expire(connection, self.dead_kept, _EXPIRED_AT_ONCE)
        )
        async with self.transaction() as connection:
            await dead_letter_shares.expire(connection, self.dead_kept)
        return expired

    async def _repeat(self, delete_some: Callable[[Connection], Awaitable[int]]) -> int:
        """Run a statement, each time in a separate transaction, until it finds nothing."""
        deleted = 0
        while True:
            async with self.transaction() as connection:
                count = await delete_some(connection)
            if not count:
                return deleted
            deleted += count

    async def forget_dead_routers(self) -> None:
        """Delete the rows of routers that died long ago; until then their outbox can be adopted."""
        async with self.transaction() as connection:
            await routers.prune(connection, _DEAD_ROUTERS_KEPT)

    async def forget_full_buckets(self) -> None:
        """Delete the buckets of chats and people that have not written for a long time."""
        await self._expire_keyed_rows(keyed_rows.EXPIRE_BUCKETS_SQL, _BUCKETS_KEPT)

    async def forget_bots(self) -> None:
        """Delete the budgets of other bots that have been silent for a long time."""
        await self._expire_keyed_rows(keyed_rows.EXPIRE_BUDGETS_SQL, _BUCKETS_KEPT)

    async def forget_shown_lists(self) -> None:
        """Delete old records of the session lists that users were shown."""
        await self._expire_keyed_rows(keyed_rows.EXPIRE_LISTS_SQL, _LISTS_KEPT)

    async def forget_room_reports(self) -> int:
        """Delete the members of rooms whose reports have ended; return how many reports."""
        return await self._repeat(
            lambda connection: rooms.expire(connection, _REPORTS_KEPT, _EXPIRED_AT_ONCE)
        )

    async def _expire_keyed_rows(self, query: LiteralString, unused: timedelta) -> None:
        await keyed_rows.expire(self.transaction, query, unused, _EXPIRED_AT_ONCE)

    async def forget_requests(self) -> int:
        """Delete stored replies of requests that callers no longer repeat."""
        return await self._repeat(
            lambda connection: api_requests.prune(connection, _REQUESTS_KEPT, _EXPIRED_AT_ONCE)
        )

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (
            Job("seen days ahead", _INTERVAL, self.create_seen_days),
            Job("seen days behind", _INTERVAL, self.drop_seen_days),
            Job("early edits", _INTERVAL, self.forget_early_edits),
            Job("receipts", _INTERVAL, self.forget_unexpected_receipts),
            Job("dead letters", _INTERVAL, self.expire_dead_letters),
            Job("dead routers", timedelta(minutes=1), self.forget_dead_routers),
            Job("requests", _INTERVAL, self.forget_requests),
            Job("admission", _INTERVAL, self.forget_full_buckets),
            Job("bots", _INTERVAL, self.forget_bots),
            Job("room reports", _INTERVAL, self.forget_room_reports),
            Job("shown lists", _INTERVAL, self.forget_shown_lists),
        )
