"""The database goes away for longer than leases last, and routers come back one after the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from chatlane.errors import StoreUnavailableError
from chatlane.store.logs import partitions
from tests.support.worlds.memory_logs import MemoryAccess, MemoryLogs
from tests.support.worlds.memory_store import MemoryConnection, MemoryDatabase, MemoryStore
from tests.support.worlds.small_router import LEASE, CuttableAccess, SmallRouter
from tests.support.worlds.virtual_time import VirtualTimeLoop

if TYPE_CHECKING:
    from chatlane.postgres.pool import Store

PARTITIONS: Final = 4
_LOOK_SECONDS: Final = 0.05


class AwayStore(MemoryStore):
    """A store that one router cannot reach for a while, or that lets it wait."""

    is_away = False

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.answers = asyncio.Event()
        self.answers.set()

    @override
    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[MemoryConnection]:
        await self.answers.wait()
        if self.is_away:
            raise StoreUnavailableError(kind="away")
        async with super().transaction() as connection:
            yield connection


def run(work: Awaitable[None]) -> None:
    loop = VirtualTimeLoop()
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


@asynccontextmanager
async def two_routers() -> AsyncIterator[list[tuple[SmallRouter, AwayStore]]]:
    """Start two routers and wait until each has its share."""
    database, logs = MemoryDatabase(), MemoryLogs()
    stores = [AwayStore(database), AwayStore(database)]
    async with cast("Store", stores[0]).transaction() as connection:
        for log in ("inbound", "results"):
            await partitions.ensure(connection, log, PARTITIONS)
    routers = [
        SmallRouter(
            cast("Store", store), cast("CuttableAccess", MemoryAccess(logs, max_messages=8))
        )
        for store in stores
    ]
    for router in routers:
        router.start()
    await asyncio.sleep(2 * LEASE.total_seconds())
    assert [len(router.held()) for router in routers] == [PARTITIONS // 2] * 2
    yield list(zip(routers, stores, strict=True))
    for router in routers:
        await router.kill()


def test_who_is_back_first_takes_nothing_from_the_other() -> None:
    async def work() -> None:
        async with two_routers() as both:
            before = [router.held() for router, _ in both]
            for _, store in both:
                store.is_away = True
            await asyncio.sleep(3 * LEASE.total_seconds())
            for _, store in both:
                store.is_away = False
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(3 * LEASE.total_seconds())
            assert [router.take_overs for router, _ in both] == [0, 0]
            assert [router.held() for router, _ in both] == before

    run(work())


def test_who_is_answered_first_takes_nothing_from_the_other() -> None:
    """The same for looks that began when all was well, and end when leases have ended."""

    async def work() -> None:
        async with two_routers() as both:
            before = [set(router.intake.partition_leases) for router, _ in both]
            for _, store in both:
                store.answers.clear()
            await asyncio.sleep(3 * LEASE.total_seconds())
            for _, store in both:
                store.answers.set()
                await asyncio.sleep(_LOOK_SECONDS)
            await asyncio.sleep(3 * LEASE.total_seconds())
            assert [router.take_overs for router, _ in both] == [0, 0]
            # With the same fencing numbers: nobody gave anything back, either.
            assert [set(router.intake.partition_leases) for router, _ in both] == before

    run(work())


def test_who_does_not_come_back_is_replaced_all_the_same() -> None:
    async def work() -> None:
        async with two_routers() as [(stays, its), (dies, _)]:
            its.is_away = True
            await dies.kill()
            await asyncio.sleep(3 * LEASE.total_seconds())
            its.is_away = False
            await asyncio.sleep(4 * _LOOK_SECONDS)
            assert stays.held() == set(range(PARTITIONS))
            assert stays.take_overs == 1

    run(work())
