"""Claim, renew and hand back partitions, so that exactly one router reads each.

Postgres always decides: the fencing numbers of a router that was frozen or cut off no longer
match, whatever its own state says. Both logs are distributed by the same rule, independently.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from chatlane.domain.log import LOGS, describe_partition_count
from chatlane.errors import PartitionCountError, TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.ingest.database_regression import HeartbeatCheck, has_moved_back
from chatlane.observability.logs import get_logger
from chatlane.store.logs import partitions, routers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import LogName, PartitionId
    from chatlane.ingest.intake import Intake
    from chatlane.postgres.pool import Transaction
    from chatlane.store.logs.partitions import Claim, PartitionOwner
    from chatlane.store.logs.routers import Heartbeat, Peer

_STOP_PATIENCE: Final = timedelta(seconds=10)
_PAUSE_AFTER_BUG: Final = timedelta(seconds=1)
# How many poll intervals the other routers get to renew after an outage; no router's is longer.
_LOOKS_LEFT_TO_OTHERS: Final = 2
# The next check comes just after a lease expires, not just before.
_SLACK_SECONDS: Final = 0.002

_log = get_logger("ownership")


def fair_share(partition_count: int, live_routers: Sequence[UUID], me: UUID) -> int:
    """Return the number of partitions for this router; the first routers take the remainder.

    Args:
        live_routers: The live routers in id order.
        me: The id of this router; its share is zero if it is not live.
    """
    if me not in live_routers:
        return 0
    share, rest = divmod(partition_count, len(live_routers))
    return share + (1 if live_routers.index(me) < rest else 0)


@dataclass(kw_only=True)
class Ownership:
    """Keep this router's share of the partitions.

    Attributes:
        on_unreadable: Called when partitions are given up because this router cannot read them.
        on_taken_over: Called when partitions were taken over from a router that has stopped.
        on_database_regressed: Called when the database has lost what it had confirmed.
        lease: How long a partition stays with a router that no longer renews.
        renew_interval: Pause between renewals of idle partitions and between heartbeats.
        poll_interval: Longest pause between two checks.
    """

    router: UUID
    version: str
    partition_count: int
    holder: Intake
    transaction: Transaction
    is_log_reachable: Callable[[], bool]
    on_unreadable: Callable[[], None] = lambda: None
    on_taken_over: Callable[[], None] = lambda: None
    on_database_regressed: Callable[[], None] = lambda: None
    lease: timedelta = timedelta(seconds=3)
    renew_interval: timedelta = timedelta(seconds=1)
    poll_interval: timedelta = timedelta(milliseconds=250)
    _heartbeats: HeartbeatCheck = field(default_factory=HeartbeatCheck, init=False)
    _seen_at: float = field(default=float("-inf"), init=False)
    _looked_at: float = field(default=float("inf"), init=False)
    _reserved_until: float = field(default=float("-inf"), init=False)
    _away_until: float = field(default=float("-inf"), init=False)
    _is_away: bool = field(default=False, init=False)
    _cannot_read: bool = field(default=False, init=False)
    _is_outage: bool = field(default=False, init=False)
    _releasing: set[PartitionId] = field(default_factory=set, init=False)
    _releases: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _next_look: float = field(default=0.0, init=False)
    _is_stopping: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._renew_seconds = self.renew_interval.total_seconds()
        self._poll_seconds = self.poll_interval.total_seconds()
        self._loop = asyncio.get_running_loop()
        self._reachable_at = self._loop.time()
        self._stopped = asyncio.Event()
        self._stopped.set()

    @property
    def can_read(self) -> bool:
        """Return whether this router can read its partitions.

        False after it gave up a partition that it could not read, and true again once all
        partitions held are read.
        """
        return not self._cannot_read

    async def run(self) -> None:
        """Check the partitions periodically until `stop` is called."""
        self._stopped.clear()
        try:
            while not self._is_stopping:
                await self._try_to_look()
                await self._pause()
        finally:
            self._stopped.set()

    async def stop(self, patience: timedelta = _STOP_PATIENCE) -> None:
        """Hand all partitions back after their current batches, and withdraw this router.

        `run` returns. The lease of a partition that cannot be handed back in time expires.

        Args:
            patience: Longest duration, because a batch may wait for an unavailable database.
        """
        self._is_stopping = True
        self.holder.lost_some.set()
        try:
            async with asyncio.timeout(patience.total_seconds()):
                await self._stopped.wait()
                held = {feed.partition for feed in self.holder.feeds} - self._releasing
                await asyncio.gather(self._hand_back(held), *self._releases)
                async with self.transaction() as connection:
                    await routers.withdraw(connection, self.router)
        except (TransientError, TimeoutError) as error:
            _log.warning("hand_back_failed", reason=str(error) or "no time left")

    async def _try_to_look(self) -> None:
        try:
            await self._look()
        except TransientError as error:
            report = _log.debug if self._is_outage else _log.warning
            report("ownership_look_failed", reason=str(error))
            self._is_outage = True
            self._next_look = self._loop.time() + self._poll_seconds
        except Exception:  # noqa: BLE001 # a bug here must not lose the partitions held
            _log.exception("ownership_look_failed")
            self._next_look = self._loop.time() + _PAUSE_AFTER_BUG.total_seconds()
        else:
            self._is_outage = False

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout_at(self._next_look):
                await self.holder.lost_some.wait()
        except TimeoutError:
            return
        finally:
            self.holder.lost_some.clear()

    async def _look(self) -> None:
        self._give_up_unreadable()
        known = dict(self.holder.positions())
        async with self.transaction() as connection:
            # Taken here, so that it counts the time that connecting to the database took.
            now = self._loop.time()
            held = {feed.partition for feed in self.holder.feeds}
            seen_at, is_away, beat = await self._show_life(connection, now)
            renewed = await self._renew_idle(connection, now)
            holdings = await partitions.holdings(connection)
            self._require_partition_count(holdings)
            peers = await routers.live(connection)
            claims: list[Claim] = []
            if not self._leaves_time_to_others():
                claims = await self._claim(connection, holdings, peers, held | self._releasing)
        if claims:
            hit(RouterPoint.PARTITIONS_CLAIMED)
        # The heartbeat counts from before it was sent, and only once it is committed.
        self._seen_at, self._is_away = seen_at, is_away
        self._looked_at = now
        is_behind = beat is not None and self._heartbeats.is_behind(beat, now)
        if is_behind or has_moved_back(known, holdings):
            # Messages that were decided since are read and decided again, from the cursors of the
            # database. The next check finds partitions claimed in this one as this router's.
            self.on_database_regressed()
            self.holder.lost(held)
            self.holder.forget_positions()
            self._next_look = now
            return
        for feed in self.holder.feeds:
            if feed.partition in renewed:
                feed.renewed_at = now
        self._drop_lost(holdings, held)
        self._take(claims)
        self._shed_surplus(holdings, peers)
        self._next_look = self._loop.time() + self._time_to_next_event(holdings, peers)

    def _leaves_time_to_others(self) -> bool:
        """Return whether leases may have expired only because no router could renew them.

        The first router to reach the database again would claim partitions that the others still
        read, and would have to hand them back at once. The time that this check itself has
        waited for the database counts, because the other routers wait for it as well.
        """
        now = self._loop.time()
        if now - self._looked_at >= self.lease.total_seconds() - self._renew_seconds:
            self._reserved_until = now + _LOOKS_LEFT_TO_OTHERS * self._poll_seconds
        return now < self._reserved_until

    def _require_partition_count(self, holdings: Sequence[PartitionOwner]) -> None:
        """Drop all partitions while the database has another number of partitions.

        A router checks the number at its start. A database that is restored while the router
        runs may be older than the streams.

        Raises:
            PartitionCountError: The number differs.
        """
        counts = Counter(row.partition.log for row in holdings)
        for log in LOGS:
            if counts[log] != self.partition_count:
                self.holder.lost([feed.partition for feed in self.holder.feeds])
                place = f"the {log} log in the database"
                raise PartitionCountError(
                    describe_partition_count(place, counts[log], self.partition_count)
                )

    def _give_up_unreadable(self) -> None:
        """Give up partitions that this router cannot read, and claim none for one lease."""
        now = self._loop.time()
        lease = self.lease.total_seconds()
        if self.is_log_reachable():
            self._reachable_at = now
        unreadable = [
            feed.partition for feed in self.holder.feeds if feed.unreadable_for(now) >= lease
        ]
        if unreadable or now - self._reachable_at >= lease:
            self._away_until = now + lease
        if unreadable:
            self._cannot_read = True
            _log.error("partitions_given_up", partitions=len(unreadable))
            self._start_release(unreadable)
            self.on_unreadable()
        elif self._cannot_read and (self.holder.feeds or now >= self._away_until + lease):
            # Claiming new partitions is not enough; they have to be read.
            self._cannot_read = any(feed.unreadable_for(now) for feed in self.holder.feeds)

    async def _show_life(
        self, connection: PoolConnectionProxy, now: float
    ) -> tuple[float, bool, Heartbeat | None]:
        """Write a heartbeat if one is due; withdraw this router's row while it stays away.

        Returns:
            The time of the last heartbeat, whether this router stays away, and the heartbeat
            that was written.
        """
        if now < self._away_until:
            if not self._is_away:
                self._heartbeats.forget()
                await routers.withdraw(connection, self.router)
            return float("-inf"), True, None
        if now - self._seen_at < self._renew_seconds:
            return self._seen_at, False, None
        beat = await routers.heartbeat(connection, self.router, self.version, self.lease)
        return now, False, beat

    async def _renew_idle(self, connection: PoolConnectionProxy, now: float) -> set[PartitionId]:
        due = [
            feed
            for feed in self.holder.feeds
            if feed.is_quiet and now - feed.renewed_at >= self._renew_seconds
        ]
        if not due:
            return set()
        return await partitions.renew_idle(
            connection,
            self.router,
            [feed.partition_lease for feed in due],
            self.lease,
            caught_up={feed.partition for feed in due if feed.is_idle},
        )

    async def _claim(
        self,
        connection: PoolConnectionProxy,
        holdings: Sequence[PartitionOwner],
        peers: Sequence[Peer],
        held: set[PartitionId],
    ) -> list[Claim]:
        claims: list[Claim] = []
        for log, rows in _by_log(holdings):
            ours = [partition.number for partition in held if partition.log == log]
            room = self._share(rows, peers) - len(ours)
            if room > 0 and any(self._is_free(row, held) for row in rows):
                claims += await partitions.claim_free(
                    connection, self.router, log, except_for=ours, limit=room, lease=self.lease
                )
        return claims

    def _take(self, claims: Sequence[Claim]) -> None:
        self.holder.hold(claims)
        if any(claim.had_owner for claim in claims):
            self.on_taken_over()
        for log, taken in groupby(claims, key=lambda claim: claim.partition.log):
            of_log = list(taken)
            _log.info(
                "partitions_claimed",
                log=log,
                partitions=[claim.partition.number for claim in of_log],
                taken_over=sum(claim.had_owner for claim in of_log),
            )

    def _drop_lost(self, holdings: Sequence[PartitionOwner], held: set[PartitionId]) -> None:
        self.holder.lost(
            row.partition
            for row in holdings
            if row.partition in held
            and row.owner != self.router
            # A partition that is being handed back is free already, or will be.
            and row.partition not in self._releasing
        )

    def _shed_surplus(self, holdings: Sequence[PartitionOwner], peers: Sequence[Peer]) -> None:
        for log, rows in _by_log(holdings):
            ours = sorted(
                feed.partition
                for feed in self.holder.feeds
                if feed.partition.log == log and feed.partition not in self._releasing
            )
            surplus = ours[self._share(rows, peers) :]
            if surplus:
                self._start_release(surplus)

    def _share(self, rows: Sequence[PartitionOwner], peers: Sequence[Peer]) -> int:
        return fair_share(len(rows), [peer.id for peer in peers], self.router)

    def _is_free(self, row: PartitionOwner, held: set[PartitionId]) -> bool:
        is_forgotten = row.owner == self.router and row.partition not in held
        has_expired = row.lease_seconds is not None and row.lease_seconds <= 0
        return row.owner is None or is_forgotten or (has_expired and row.partition not in held)

    def _time_to_next_event(
        self, holdings: Sequence[PartitionOwner], peers: Sequence[Peer]
    ) -> float:
        """Return the seconds until another router's next lease expires, or the poll interval."""
        ends = [peer.seconds_left for peer in peers if peer.id != self.router]
        ends += [row.lease_seconds or 0 for row in holdings if row.owner != self.router]
        return min([self._poll_seconds, *(end + _SLACK_SECONDS for end in ends if end > 0)])

    def _start_release(self, unwanted: Iterable[PartitionId]) -> None:
        fresh = set(unwanted) - self._releasing
        if not fresh:
            return
        self._releasing |= fresh
        task = asyncio.create_task(self._hand_back(fresh))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _hand_back(self, unwanted: Iterable[PartitionId]) -> None:
        given = set(unwanted)
        try:
            await self.holder.release(given)
            hit(RouterPoint.PARTITIONS_RELEASED)
            async with self.transaction() as connection:
                done = await partitions.hand_back(connection, self.router, given)
            hit(RouterPoint.PARTITIONS_HANDED_BACK)
            _log.info("partitions_handed_back", partitions=len(done))
        except TransientError as error:
            _log.warning("hand_back_failed", reason=str(error))
        finally:
            self._releasing -= given


def _by_log(holdings: Sequence[PartitionOwner]) -> list[tuple[LogName, list[PartitionOwner]]]:
    return [(log, list(rows)) for log, rows in groupby(holdings, lambda row: row.partition.log)]
