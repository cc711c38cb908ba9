"""The number of partitions changes while routers read: nothing is lost, repeated or overtaken."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any

import asyncpg
import pytest

from chatlane.bus.division import LogDivisions
from chatlane.bus.topology import find_partition_count
from chatlane.crash_points import ChangePoint
from chatlane.domain.log import UNDIVIDED, PartitionId
from chatlane.errors import BusUnavailableError
from chatlane.routing import handover, ownership, repartition
from chatlane.routing.repartition import Progress, Repartition, RepartitionError, Stage
from chatlane.store import divisions, partitions
from chatlane.store.partitions import Advance
from chatlane.store.pool import Store, open_store
from chatlane_schemas import subjects
from tests.support.eventually import eventually
from tests.support.servers.log_streams import LogStreams, open_logs
from tests.support.worlds.small_router import SmallRouter, open_routers, prepare

pytestmark = pytest.mark.integration

FEW = 4
PATIENCE = timedelta(seconds=20)
CHATS = 24


class DiedError(Exception):
    """What a step of the command ends with where its process would be gone."""


@pytest.fixture
async def logs(nats_url: str) -> AsyncIterator[LogStreams]:
    async with open_logs(nats_url, FEW) as opened:
        yield opened


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        await prepare(opened, FEW)
        yield opened


@dataclass
class Talk:
    """Chats that go on writing; each numbers its messages."""

    logs: LogStreams
    said: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    async def say(self, chat: str) -> None:
        subject = subjects.inbound("telegram", "bot", subjects.chat_token(chat))
        body = f"{chat} {self.said[chat]}"
        await (await self.logs.publisher.publish(subject, body.encode(), body.replace(" ", "-")))
        self.said[chat] += 1

    async def round(self) -> None:
        await asyncio.gather(*(self.say(f"chat{number}") for number in range(CHATS)))

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Let all chats write, one message after the other, for the length of the block."""
        is_over = asyncio.Event()

        async def write(chat: str) -> None:
            while not is_over.is_set():
                await self.say(chat)
                await asyncio.sleep(0.05)

        writers = [asyncio.create_task(write(f"chat{number}")) for number in range(CHATS)]
        try:
            yield
        finally:
            is_over.set()
            await asyncio.gather(*writers)

    async def until_more_is_said(self) -> None:
        enough = sum(self.said.values()) + 2 * CHATS
        await eventually(lambda: sum(self.said.values()) > enough)

    async def require_read_in_order(self, store: Store) -> None:
        """Wait until everything is noted; require each message once, in the order of its chat."""

        async def all_noted() -> bool:
            return len(await bodies(store)) >= sum(self.said.values())

        await eventually(all_noted, PATIENCE)
        by_chat = defaultdict(list)
        for body in await bodies(store):
            chat, number = body.split()
            by_chat[chat].append(int(number))
        assert by_chat == {chat: list(range(said)) for chat, said in self.said.items()}


async def bodies(store: Store) -> list[str]:
    async with store.transaction() as connection:
        rows = await connection.fetch("SELECT body FROM noted ORDER BY place")
    return [row["body"] for row in rows]


async def numbers(store: Store, log: str = "inbound") -> list[int]:
    async with store.transaction() as connection:
        held = await partitions.holdings(connection)
    return [one.partition.number for one in held if one.partition.log == log]


def change_to(store: Store, logs: LogStreams, wanted: int) -> Repartition:
    return Repartition(LogDivisions(logs.jetstream), store.transaction, wanted)


async def change(store: Store, logs: LogStreams, wanted: int) -> list[Progress]:
    its = change_to(store, logs, wanted)
    return [one async for one in its.run("inbound", PATIENCE)]


async def require_divided(store: Store, logs: LogStreams, wanted: int) -> None:
    assert await numbers(store) == list(range(wanted))
    assert await find_partition_count(logs.jetstream, "inbound") == wanted


async def test_grows_and_shrinks_under_load(store: Store, logs: LogStreams) -> None:
    talk = Talk(logs)
    async with open_routers(store, logs, 3) as routers, talk.going_on():
        for router in routers:
            router.start()
        for wanted in (16, 2, 7, FEW):
            done = await change(store, logs, wanted)
            assert [one.stage for one in done if one.stage is not Stage.DRAIN] == [
                Stage.STOP,
                Stage.DIVIDE,
                Stage.DONE,
            ]
            await require_divided(store, logs, wanted)
            await talk.until_more_is_said()
        await eventually(lambda: sorted(len(one.held()) for one in routers) == [1, 1, 2])
    async with open_routers(store, logs) as (last,):
        last.start()
        await talk.require_read_in_order(store)


async def test_the_other_log_changes_by_itself(store: Store, logs: LogStreams) -> None:
    async with open_routers(store, logs) as (router,):
        router.start()
        its = change_to(store, logs, 9)
        assert [one async for one in its.run("results", PATIENCE)][-1].count == 9
        assert await numbers(store, "results") == list(range(9))
        assert await numbers(store) == list(range(FEW))
        await eventually(lambda: router.held("results") == set(range(9)))


async def test_an_empty_log_needs_no_router(store: Store, logs: LogStreams) -> None:
    await change(store, logs, 16)
    await require_divided(store, logs, 16)


async def test_nothing_is_done_twice(store: Store, logs: LogStreams) -> None:
    [done] = await change(store, logs, FEW)
    assert done.stage is Stage.DONE


async def test_without_routers_it_waits_and_can_be_finished_later(
    store: Store, logs: LogStreams
) -> None:
    talk = Talk(logs)
    await talk.round()
    its = change_to(store, logs, 16)
    with pytest.raises(RepartitionError, match="4 partitions of the inbound log are not read"):
        [one async for one in its.run("inbound", timedelta(0))]
    await talk.round()
    async with open_routers(store, logs) as (router,):
        router.start()
        await change(store, logs, 16)
        await talk.round()
        await talk.require_read_in_order(store)
    await require_divided(store, logs, 16)


@pytest.mark.parametrize(
    "point", [ChangePoint.STOPPED, ChangePoint.MAPPED, ChangePoint.BOUNDED], ids=str
)
async def test_a_command_that_died_is_run_again_for_the_same_number_or_another(
    store: Store, logs: LogStreams, monkeypatch: pytest.MonkeyPatch, point: ChangePoint
) -> None:
    talk = Talk(logs)
    async with open_routers(store, logs, 2) as routers:
        for router in routers:
            router.start()
        for wanted in (16, 2):
            async with talk.going_on():
                with monkeypatch.context() as patch:
                    patch.setattr(repartition, "reach", _dying_at(point))
                    with pytest.raises(DiedError):
                        await change(store, logs, 16 if wanted == 16 else 5)
                # Nobody waits for the command: what is written meanwhile is read.
                await until_more_is_read(store)
                await change(store, logs, wanted)
            await require_divided(store, logs, wanted)
        await talk.require_read_in_order(store)


async def until_more_is_read(store: Store) -> None:
    seen = len(await bodies(store))

    async def is_more() -> bool:
        return len(await bodies(store)) > seen + CHATS

    await eventually(is_more)


def _dying_at(point: ChangePoint) -> Callable[[ChangePoint], None]:
    def reach(reached: ChangePoint) -> None:
        if reached is point:
            raise DiedError

    return reach


@pytest.mark.parametrize("point", [ChangePoint.REACHED, ChangePoint.REPLACED], ids=str)
async def test_routers_die_in_the_middle(
    store: Store, logs: LogStreams, monkeypatch: pytest.MonkeyPatch, point: ChangePoint
) -> None:
    """Whatever a step was about to commit is gone with the router, and the next one does it."""
    talk = Talk(logs)
    deaths = count(1)

    def die(reached: Any) -> None:  # noqa: ANN401 # any point
        if reached is point and next(deaths) % 2:
            raise BusUnavailableError("died")

    module = handover if point is ChangePoint.REACHED else ownership
    monkeypatch.setattr(module, "reach", die)
    async with open_routers(store, logs, 4) as routers, talk.going_on():
        for router in routers[:2]:
            router.start()
        for wanted, victim, next_one in ((16, 0, 2), (2, 1, 3)):
            task = asyncio.create_task(change(store, logs, wanted))
            await eventually(lambda: _is_changing(store))
            await routers[victim].kill()
            routers[next_one].start()
            await task
            await require_divided(store, logs, wanted)
    assert next(deaths) > 2
    async with open_routers(store, logs) as (last,):
        last.start()
        await talk.require_read_in_order(store)


async def _is_changing(store: Store) -> bool:
    async with store.transaction() as connection:
        return (await divisions.read(connection))["inbound"].is_changing


async def test_no_cursor_gets_to_the_stop_whoever_moves_it(store: Store, logs: LogStreams) -> None:
    talk = Talk(logs)
    await talk.round()
    its = change_to(store, logs, 16)
    assert (await its.step("inbound")).stage is Stage.STOP
    router = SmallRouter(store, access=None)  # type: ignore[arg-type] # reads nothing
    async with store.transaction() as connection:
        [claim, *_] = await partitions.claim_free(
            connection, router.router_id, "inbound", except_for=(), limit=1, lease=PATIENCE
        )
    assert (claim.stop_before, claim.among) == (CHATS + 1, FEW)

    async def advance(to: int) -> set[PartitionId]:
        step = Advance(claim.partition, claim.epoch, 0, to, None)
        async with store.transaction() as connection:
            return await partitions.advance(connection, router.router_id, [step], PATIENCE)

    assert await advance(CHATS + 1) == set()
    # A release that does not ask for the stop is refused by the table.
    async with store.transaction() as connection:
        with pytest.raises(asyncpg.CheckViolationError, match="partitions_stop_check"):
            await connection.execute("UPDATE partitions SET cursor = $1", CHATS + 1)
    assert await advance(CHATS) == {claim.partition}


async def test_older_routers_are_refused(store: Store, logs: LogStreams) -> None:
    async with store.transaction() as connection:
        await connection.execute(
            "INSERT INTO routers (id, version, seen_until)"
            " VALUES (gen_random_uuid(), '0.1.0', clock_timestamp() + '1 min')"
        )
    with pytest.raises(RepartitionError, match=r"older release are running \(0\.1\.0\)"):
        await change(store, logs, 16)
    assert not await _is_changing(store)
    assert await find_partition_count(logs.jetstream, "inbound") == FEW


async def test_two_commands_do_not_work_at_once(store: Store, logs: LogStreams) -> None:
    async with store.transaction() as connection:
        assert await divisions.try_lock(connection)
        with pytest.raises(RepartitionError, match="somebody else"):
            await change(store, logs, 16)


async def test_what_the_server_divides_otherwise_is_not_read_until_it_is_changed(
    store: Store, logs: LogStreams
) -> None:
    """As after a database that was restored to before a change."""
    talk = Talk(logs)
    await talk.round()
    await LogDivisions(logs.jetstream).divide("inbound", 16)
    await talk.round()
    async with open_routers(store, logs) as (router,):
        router.start()
        await eventually(lambda: router.held("results") == set(range(FEW)))
        found = await change_to(store, logs, 16).look("inbound")
        assert (found.stage, found.count, found.stored_by) == (Stage.START_OVER, FEW, 16)
        assert await bodies(store) == []
        await change(store, logs, 16)
        await talk.round()
        await talk.require_read_in_order(store)
    await require_divided(store, logs, 16)


async def test_a_log_made_anew_in_the_middle_is_read_from_its_start(
    store: Store, logs: LogStreams
) -> None:
    """It has the number of partitions again that it had at first, and is read once it is changed."""
    talk = Talk(logs)
    for _ in range(4):
        await talk.round()
    async with open_routers(store, logs) as (router,):
        its = change_to(store, logs, 16)
        await its.step("inbound")
        router.start()
        await eventually(lambda: _holds_whole(router))
        await talk.require_read_in_order(store)
        await its.step("inbound")
        await logs.recreate()
        again = Talk(logs, defaultdict(int, talk.said))
        await again.round()
        await eventually(lambda: _is_divided(store, 16))
        await change(store, logs, 16)
        await again.round()
        await again.require_read_in_order(store)
    await require_divided(store, logs, 16)


def _holds_whole(router: SmallRouter) -> bool:
    return router.held() == {UNDIVIDED}


async def _is_divided(store: Store, wanted: int) -> bool:
    return await numbers(store) == list(range(wanted))


async def test_there_must_be_partitions(nats_url: str, database_url: str) -> None:
    async with open_logs(nats_url, FEW) as logs, open_store(database_url) as store:
        with pytest.raises(RepartitionError, match="has no partitions yet"):
            await change(store, logs, 16)


async def test_a_retry_of_a_change_waits_for_a_busy_partition(
    store: Store, logs: LogStreams
) -> None:
    """Replacing partitions never waits for one that is in work, so it holds up nobody."""
    its = change_to(store, logs, 16)
    await its.step("inbound")
    async with store.transaction() as connection:
        await connection.execute(
            "SELECT FROM partitions WHERE log = 'inbound' AND id = 2 FOR UPDATE"
        )
        async with store.transaction() as other:
            assert await divisions.hand_over(other, "inbound") is None
    with suppress(RepartitionError):
        await its.step("inbound")
    assert await numbers(store) == [UNDIVIDED]
