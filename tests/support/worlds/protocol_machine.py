"""What may happen to routers in any order, as rules, over ports in memory or over real servers.

Routers read two logs, share partitions, and note each message in the transaction that moves the
cursor. Whatever is killed, frozen, cut off or left without an answer: after every step what is
noted of a partition is a beginning of what was said in it, and in the end all of it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final, Literal, TypeVar, cast
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from chatlane.errors import StoreUnavailableError
from chatlane.postgres.pool import Store, open_store
from chatlane.store.logs import partitions
from tests.support.eventually import eventually
from tests.support.servers.backends import delete_streams
from tests.support.servers.databases import open_database
from tests.support.servers.log_streams import LogStreams, open_logs
from tests.support.worlds.memory_logs import MemoryAccess, MemoryLogs
from tests.support.worlds.memory_store import MemoryDatabase, MemoryStore
from tests.support.worlds.small_router import CuttableAccess, SmallRouter, noted, prepare
from tests.support.worlds.virtual_time import VirtualTimeLoop, report

T = TypeVar("T")
Fate = Literal["lost", "unanswered"]

PARTITIONS: Final = 4
_MOST_ROUTERS: Final = 3
_SETTLED_WITHIN: Final = timedelta(seconds=60)

number = st.integers(0, _MOST_ROUTERS - 1)


class UnreliableStore:
    """A store of which now and then a commit gets lost, or the answer to one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fates: deque[Fate] = deque()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Commit at the end of the block, unless the next fate says otherwise."""
        async with self._store.transaction() as connection:
            yield connection
            if self.fates and self.fates[0] == "lost":
                self.fates.popleft()
                raise StoreUnavailableError(kind="lost before the commit")
        if self.fates:
            self.fates.popleft()
            raise StoreUnavailableError(kind="the answer to a commit was lost")


@dataclass(slots=True)
class Life:
    """One router, from its start to its end."""

    router: SmallRouter
    store: UnreliableStore
    is_frozen: bool = False


class World(ABC):
    """The servers behind the routers."""

    loop: asyncio.AbstractEventLoop
    lease: timedelta

    def run(self, work: Awaitable[T]) -> T:
        """Let the loop run until a piece of work is done."""
        return self.loop.run_until_complete(work)

    @property
    @abstractmethod
    def store(self) -> Store:
        """A store that nothing happens to."""

    @abstractmethod
    def access(self) -> CuttableAccess:
        """Return access to the logs for one router."""

    @abstractmethod
    async def open(self) -> None:
        """Make servers with empty logs."""

    @abstractmethod
    async def close(self) -> None:
        """Take the servers away."""

    @abstractmethod
    async def publish(self, partition: int, bodies: Iterable[str]) -> None:
        """Store messages of one partition, in order."""

    @abstractmethod
    async def end_leases(self, living: Iterable[UUID]) -> None:
        """Let the leases of all other routers end."""

    @abstractmethod
    async def rest(self, leases: float) -> None:
        """Let routers work for a while, in leases."""


class MemoryWorld(World):
    """Everything in memory; time is virtual."""

    def __init__(self) -> None:
        self.loop = VirtualTimeLoop()
        self.lease = timedelta(seconds=1)
        self._logs = MemoryLogs()
        self._store = MemoryStore(MemoryDatabase())

    @property
    @override
    def store(self) -> Store:
        return cast("Store", self._store)

    @override
    def access(self) -> CuttableAccess:
        return cast("CuttableAccess", MemoryAccess(self._logs, max_messages=8))

    @override
    async def open(self) -> None:
        async with self.store.transaction() as connection:
            for log in ("inbound", "results"):
                await partitions.ensure(connection, log, PARTITIONS)

    @override
    async def close(self) -> None:
        return

    @override
    async def publish(self, partition: int, bodies: Iterable[str]) -> None:
        for body in bodies:
            self._logs.publish(partition, body)

    @override
    async def end_leases(self, living: Iterable[UUID]) -> None:
        await self.rest(1.5)

    @override
    async def rest(self, leases: float) -> None:
        await asyncio.sleep(self.lease.total_seconds() * leases)


_END_LEASES: Final = """
UPDATE partitions SET lease_until = clock_timestamp() WHERE owner <> ALL ($1::uuid[]);
"""
_END_SEEN: Final = """
UPDATE routers SET seen_until = clock_timestamp()
WHERE id <> ALL ($1::uuid[]) AND seen_until > clock_timestamp()
"""


class RealWorld(World):
    """Both servers; leases of those who died are ended by hand, so that nobody waits for them.

    Args:
        nats_url: A server whose streams may be deleted.
        postgres_url: A server.
        template: A migrated database.
    """

    def __init__(
        self, nats_url: str, postgres_url: str, dsn: Callable[[str], str], template: str
    ) -> None:
        self.loop = asyncio.new_event_loop()
        # Nobody who lives may lose anything to a busy machine: that is another rule.
        self.lease = timedelta(seconds=20)
        self._nats_url = nats_url
        self._postgres_url = postgres_url
        self._dsn = dsn
        self._template = template
        self._stack = AsyncExitStack()
        self._logs: LogStreams
        self._opened: Store

    @property
    @override
    def store(self) -> Store:
        return self._opened

    @override
    def access(self) -> CuttableAccess:
        return CuttableAccess(self._logs.bus, PARTITIONS)

    @override
    async def open(self) -> None:
        await delete_streams(self._nats_url)
        enter = self._stack.enter_async_context
        name = await enter(open_database(self._postgres_url, self._template))
        self._opened = await enter(open_store(self._dsn(name)))
        self._logs = await enter(open_logs(self._nats_url, PARTITIONS))
        await prepare(self._opened, PARTITIONS)

    @override
    async def close(self) -> None:
        await self._stack.aclose()

    @override
    async def publish(self, partition: int, bodies: Iterable[str]) -> None:
        await self._logs.publish(partition, bodies)

    @override
    async def end_leases(self, living: Iterable[UUID]) -> None:
        async with self._opened.transaction() as connection:
            await connection.execute(_END_LEASES, list(living))
            await connection.execute(_END_SEEN, list(living))
        await self.rest(1)

    @override
    async def rest(self, leases: float) -> None:
        await asyncio.sleep(0.05 * leases)


@dataclass(slots=True)
class Said:
    """What was said, by partition, each text once."""

    by_partition: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    count: int = 0

    def more(self, partition: int, count: int) -> list[str]:
        """Return new texts, and remember them."""
        texts = [f"{self.count + n} in {partition}" for n in range(count)]
        self.count += count
        self.by_partition[partition] += texts
        return texts


class ProtocolMachine(RuleBasedStateMachine):
    """The rules; see the module.

    Args:
        make_world: Makes what the routers run on, new for each example.
    """

    def __init__(self, make_world: Callable[[], World]) -> None:
        super().__init__()
        self.world = make_world()
        self.errors = report(self.world.loop)
        self.lives: list[Life] = []
        self.made = 0
        self.said = Said()
        self.world.run(self.world.open())

    # What people do.

    @rule(partition=st.integers(0, PARTITIONS - 1), count=st.integers(1, 12))
    def say(self, partition: int, count: int) -> None:
        """Somebody writes."""
        self.world.run(self.world.publish(partition, self.said.more(partition, count)))

    # What happens to routers.

    @precondition(lambda self: len(self.lives) < _MOST_ROUTERS)
    @rule()
    def start(self) -> None:
        """A router is started."""
        self.world.run(self._start())

    async def _start(self) -> None:
        self.made += 1
        store = UnreliableStore(self.world.store)
        router = SmallRouter(
            cast("Store", store),
            self.world.access(),
            lease=self.world.lease,
            router_id=UUID(int=self.made),
            max_messages=8,
            jitter=Random(self.made),  # noqa: S311 - the same every time
        )
        router.start()
        self.lives.append(Life(router, store))

    @precondition(lambda self: self.lives)
    @rule(of=number)
    def kill(self, of: int) -> None:
        """A router ends and hands nothing back."""
        life = self.lives.pop(of % len(self.lives))
        self.world.run(life.router.kill())

    @precondition(lambda self: any(not life.is_frozen for life in self.lives))
    @rule(of=number)
    def stop(self, of: int) -> None:
        """A router ends in good order."""
        life = self._awake(of)
        self.lives.remove(life)
        life.store.fates.clear()
        life.router.access.is_cut = False
        self.world.run(life.router.stop())

    @precondition(lambda self: any(not life.is_frozen for life in self.lives))
    @rule(of=number)
    def freeze(self, of: int) -> None:
        """A router does nothing more, and does not know it."""
        life = self._awake(of)
        life.is_frozen = True
        self.world.run(life.router.freeze())

    @precondition(lambda self: any(life.is_frozen for life in self.lives))
    @rule()
    def thaw(self) -> None:
        """A frozen router goes on with what it believes."""
        life = next(life for life in self.lives if life.is_frozen)
        life.is_frozen = False
        self.world.run(_call(life.router.start))

    # What happens between routers and servers.

    @precondition(lambda self: self.lives)
    @rule(of=number)
    def cut(self, of: int) -> None:
        """A router loses the logs."""
        router = self.lives[of % len(self.lives)].router
        router.access.is_cut = True
        for feed in router.intake.feeds:
            feed.break_off("disconnected")

    @precondition(lambda self: self.lives)
    @rule(of=number)
    def mend(self, of: int) -> None:
        """A router has the logs again."""
        self.lives[of % len(self.lives)].router.access.is_cut = False

    @precondition(lambda self: self.lives)
    @rule(
        of=number, fates=st.lists(st.sampled_from(["lost", "unanswered"]), min_size=1, max_size=3)
    )
    def lose(self, of: int, fates: list[Fate]) -> None:
        """The next commits of a router get lost, or their answers do."""
        self.lives[of % len(self.lives)].store.fates.extend(fates)

    @precondition(lambda self: any(not life.is_frozen for life in self.lives))
    @rule(of=number)
    def check_idle(self, of: int) -> None:
        """A router looks after the partitions in which nothing happens."""
        life = self._awake(of)
        if not life.router.access.is_cut and not life.store.fates:
            self.world.run(life.router.idle_check.check())

    # What time does.

    @rule(leases=st.sampled_from([0.01, 0.05, 0.3, 1.0]))
    def rest(self, leases: float) -> None:
        """Time passes."""
        self.world.run(self.world.rest(leases))

    @rule()
    def end_leases(self) -> None:
        """The leases of the dead and the frozen end."""
        awake = [life.router.router_id for life in self.lives if not life.is_frozen]
        self.world.run(self.world.end_leases(awake))

    # What must hold.

    @invariant()
    def nothing_is_lost_doubled_or_out_of_order(self) -> None:
        """What is noted of a partition is a beginning of what was said in it."""
        found = self.world.run(noted(self.world.store))
        for partition, texts in found.items():
            assert texts == self.said.by_partition[partition][: len(texts)]

    @override
    def teardown(self) -> None:
        """One healthy router finds everything that was said."""
        try:
            self.world.run(self._settle())
            assert [told for told in self.errors if told.get("exception")] == []
        finally:
            self.world.run(self._end())
            self.world.loop.close()

    async def _settle(self) -> None:
        for life in self.lives:
            await life.router.kill()
        self.lives.clear()
        await self._start()
        await self.world.end_leases([self.lives[0].router.router_id])
        expected = {key: texts for key, texts in self.said.by_partition.items() if texts}

        async def all_is_noted() -> bool:
            assert await noted(self.world.store) == expected
            return True

        await eventually(all_is_noted, _SETTLED_WITHIN)

    async def _end(self) -> None:
        for life in self.lives:
            await life.router.kill()
        await self.world.close()

    def _awake(self, of: int) -> Life:
        awake = [life for life in self.lives if not life.is_frozen]
        return awake[of % len(awake)]


async def _call(work: Callable[[], None]) -> None:
    work()
