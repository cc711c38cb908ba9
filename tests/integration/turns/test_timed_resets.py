"""Sessions that nobody writes in are announced to end, and end, without waiting for a message."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import pytest

from chatlane.domain.log import LogPosition
from chatlane.domain.policy import ResetPolicy
from chatlane.errors import StoreUnavailableError
from chatlane.turns.timed_resets import TimedEnds, committed_until
from chatlane_schemas.topology import subjects
from tests.integration.requests.test_session_changes import ANN, BEN, Caller
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import Fields, Kernel, catalog, event

pytestmark = pytest.mark.integration

WARNING = timedelta(minutes=5)
SESSIONS = "chat.v1.event.session.%"
IDLE = ResetPolicy("idle", idle=timedelta(hours=1), warning=WARNING)


class End(NamedTuple):
    """The end of a log as the server tells it."""

    generation: str = "log"
    last_sequence: int = 100


def from_now(**span: float) -> datetime:
    return datetime.now(UTC) + timedelta(**span)


class World:
    """A router's decisions and its sweep, over a log that is read to its end."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.end = End()
        self.ends = self.another()

    def another(self) -> TimedEnds:
        async def end_of_log() -> End:
            return self.end

        return TimedEnds(self.kernel.store, self.kernel.writer, self.kernel.catalog, end_of_log)

    async def say(self, mid: str, stored_at: datetime, who: Fields = ANN) -> UUID:
        placed = await self.kernel.say(event(**who, mid=mid, text=mid), stored_at)
        await self.kernel.run_all(stored_at)
        return placed.session

    async def sweep(self) -> None:
        """Let whatever is watched be looked at, whenever that would have been due."""
        await self.ends.arm()
        await self.kernel.fetch("UPDATE sessions SET check_at = now() WHERE check_at IS NOT NULL")
        await self.ends.sweep()

    async def let_pass(self) -> None:
        """Let the announced deadline go by."""
        await self.kernel.fetch("UPDATE sessions SET ending_at = ending_at - interval '1 hour'")

    async def told(self) -> list[tuple[str, str]]:
        """Return what was said of the ends of sessions, in order."""
        return [
            ("ending" if "deadline" in one else "ended", one["reason"])
            for one in await self.kernel.published("EVENTS", SESSIONS)
            if "reason" in one and "previous_session_id" not in one
        ]


@pytest.fixture
async def world(kernel_with: KernelWith) -> World:
    kernel = await kernel_with(catalog(reset=IDLE))
    await kernel.fetch(
        "INSERT INTO partitions (log, id, cursor, cursor_at, generation)"
        " SELECT 'inbound', number, 100, now() - interval '3 hours', 'log'"
        " FROM generate_series(0, 31) AS number"
    )
    return World(kernel)


async def test_a_session_is_announced_to_end_then_ends_once(world: World) -> None:
    """C23: without waiting for a message, and the message after it is the first of the next."""
    first = await world.say("1", from_now(minutes=-57))
    await world.sweep()
    await world.sweep()
    assert await world.told() == [("ending", "idle")]

    await last_spoken(world, "61 minutes")
    await world.sweep()
    assert await world.told() == [("ending", "idle")]
    await world.let_pass()
    await world.kernel.fetch("UPDATE sessions SET ending_at = now() - interval '30 seconds'")
    await world.sweep()
    await world.sweep()
    second = await world.kernel.say(event(**ANN, mid="2", text="2"), from_now())
    [claimed] = await world.kernel.run_all()

    assert await world.told() == [("ending", "idle"), ("ended", "idle")]
    assert second.session != first
    assert (claimed.reset_reason, claimed.reset_had_activity) == ("idle", True)
    notices = [one for one in await world.kernel.published("OUTBOUND") if one["kind"] == "notice"]
    assert [one["session_id"] for one in notices] == [str(second.session)]


async def test_f05_a_sweep_counts_from_the_end_of_the_turn(world: World) -> None:
    placed = await world.kernel.say(event(**ANN, mid="1", text="1"), from_now(hours=-3))
    await world.kernel.run_turn(placed.session, "slow", from_now(minutes=-40))
    await world.sweep()
    assert await world.told() == []
    await world.kernel.fetch(
        "UPDATE sessions SET asked_turn_ended_at = now() - interval '61 minutes'"
    )
    await world.sweep()
    assert await world.told() == [("ending", "idle")]


async def last_spoken(world: World, before: str) -> None:
    """Let everything that anybody said have been said so long ago."""
    await world.kernel.fetch(
        "UPDATE sessions SET last_activity_at = now() - $1::text::interval,"
        " asked_turn_ended_at = now() - $1::text::interval",
        before,
    )


async def expired(world: World) -> UUID:
    """Return a session whose announced end has passed, so that the next sweep ends it."""
    session = await world.say("1", from_now(hours=-2))
    await world.sweep()
    await world.kernel.fetch("UPDATE sessions SET ending_at = now() - interval '30 seconds'")
    return session


async def is_open(world: World, session: UUID) -> bool:
    return bool(
        await world.kernel.value("SELECT ended_at IS NULL FROM sessions WHERE id = $1", session)
    )


async def test_an_end_is_announced_also_when_nobody_swept_in_time(world: World) -> None:
    """After an outage: the deadline that is told lies ahead."""
    session = await world.say("1", from_now(hours=-2))
    await world.sweep()

    [ending] = [
        one for one in await world.kernel.published("EVENTS", SESSIONS) if "deadline" in one
    ]
    deadline = datetime.fromisoformat(ending["deadline"])
    assert timedelta(minutes=4) < deadline - datetime.now(UTC) <= WARNING
    await world.sweep()
    assert await is_open(world, session)


async def test_the_workers_of_the_agent_are_told_by_themselves(world: World) -> None:
    """Nobody else's: they may not hear what `session.ending` says of all agents."""
    await world.say("1", from_now(minutes=-57))
    await world.sweep()

    [ending] = [
        one for one in await world.kernel.published("EVENTS", SESSIONS) if "deadline" in one
    ]
    [told] = await world.kernel.published("EVENTS", subjects.ending("main"))
    assert told.pop("id") != ending.pop("id")
    assert told == ending
    assert len(await world.kernel.published("EVENTS", "chat.v1.event.ending.%")) == 1


async def test_who_writes_before_the_deadline_keeps_the_session(world: World) -> None:
    session = await expired(world)
    await last_spoken(world, "1 minute")
    await world.sweep()
    assert await is_open(world, session)

    await last_spoken(world, "58 minutes")
    await world.sweep()
    assert await world.told() == [("ending", "idle"), ("ending", "idle")]


async def test_several_routers_end_a_session_once(world: World) -> None:
    await expired(world)
    await world.kernel.fetch("UPDATE sessions SET check_at = now()")
    results = await asyncio.gather(
        *(world.another().sweep() for _ in range(5)), return_exceptions=True
    )
    assert all(isinstance(one, int | StoreUnavailableError) for one in results)
    await world.sweep()
    assert await world.told() == [("ending", "idle"), ("ended", "idle")]


async def test_a_message_in_the_log_is_decided_first(world: World) -> None:
    """A partition that lags may hold a message that was stored before the deadline."""
    session = await expired(world)
    lagging = "UPDATE partitions SET cursor = 99 WHERE id = 7"
    await world.kernel.fetch(lagging)
    await world.sweep()
    assert await is_open(world, session)

    await world.kernel.fetch("UPDATE partitions SET cursor_at = now() WHERE id = 7")
    await world.sweep()
    assert not await is_open(world, session)


async def test_another_log_counts_as_not_read(world: World) -> None:
    session = await expired(world)
    world.end = End(generation="restored", last_sequence=3)
    await world.sweep()
    assert await is_open(world, session)


async def test_a_running_turn_keeps_the_session(world: World) -> None:
    session = await expired(world)
    await world.kernel.say(event(**ANN, mid="t", kind="system", text="tick"), from_now(minutes=-59))
    await world.sweep()
    assert await is_open(world, session)
    await world.kernel.run_all()
    await world.sweep()
    assert not await is_open(world, session)


async def test_what_waits_keeps_the_session(world: World) -> None:
    session = await expired(world)
    await world.kernel.say(event(**ANN, mid="t", kind="system", text="tick"), from_now())
    await world.kernel.fetch("UPDATE sessions SET active_turn = NULL")
    await world.sweep()
    assert await is_open(world, session)


async def test_a_hold_keeps_the_session_until_it_is_released(world: World) -> None:
    caller = Caller(world.kernel)
    session = await expired(world)
    await caller.changed("hold", session, name="job", lasts_s=3600)
    await world.sweep()
    assert await is_open(world, session)

    await caller.changed("release", session, name="job")
    await world.sweep()
    assert not await is_open(world, session)


async def test_an_interrupted_session_ends_when_its_mark_is_too_old(world: World) -> None:
    caller = Caller(world.kernel)
    session = await expired(world)
    await caller.changed("mark", session)
    await world.sweep()
    assert await is_open(world, session)

    await world.kernel.fetch("UPDATE sessions SET resume_marked_at = now() - interval '2 hours'")
    await world.sweep()
    assert not await is_open(world, session)
    assert (await world.told())[-1] == ("ended", "resume_pending_expired")


async def test_a_suspended_session_waits_for_its_message(world: World) -> None:
    session = await expired(world)
    await Caller(world.kernel).changed("suspend", session)
    await world.sweep()
    assert await is_open(world, session)


async def test_a_session_that_no_rule_ends_is_never_looked_at(
    kernel_with: KernelWith,
) -> None:
    """C24, C25: a timer extends nothing, a restart changes nothing, none ends nothing."""
    world = World(await kernel_with(catalog()))
    await world.say("1", from_now(days=-400))
    await world.sweep()
    assert await world.kernel.value("SELECT count(check_at) FROM sessions") == 0


async def test_a_restart_and_its_sweep_change_no_time_of_a_session(world: World) -> None:
    """C25."""
    await world.say("1", from_now(hours=-2))
    before = await world.kernel.fetch("SELECT id, last_activity_at, started_at FROM sessions")
    world.kernel = world.kernel.restarted()
    world.ends = world.another()
    await world.sweep()
    after = await world.kernel.fetch("SELECT id, last_activity_at, started_at FROM sessions")
    assert after == before


async def test_new_sessions_are_found_and_each_is_looked_at_in_time(world: World) -> None:
    await world.say("1", from_now(hours=-2))
    assert await world.ends.arm() == 1
    assert await world.ends.arm() == 0
    await world.say("1", from_now(minutes=-1), BEN)
    assert await world.ends.arm() == 1
    assert await world.ends.sweep() == 2
    assert await world.ends.sweep() == 0
    rows = await world.kernel.fetch(
        "SELECT extract(epoch FROM check_at - now()) FROM sessions ORDER BY id"
    )
    soon, later = (float(row[0]) for row in rows)
    assert 200 < soon <= 301
    assert 3000 < later < 3300


async def test_a_talk_every_day_is_cut_at_its_hour_when_it_is_quiet(
    kernel_with: KernelWith,
) -> None:
    """C22, C23: in the zone of the policy, by the sweep as by a message."""
    daily = ResetPolicy("daily", at_hour=4, timezone="Asia/Shanghai", warning=timedelta(0))
    world = World(await kernel_with(catalog(reset=daily)))
    await world.kernel.fetch(
        "INSERT INTO partitions (log, id, cursor, generation) VALUES ('inbound', 0, 100, 'log')"
    )
    session = await world.say("1", from_now(days=-3))
    await world.sweep()
    await world.kernel.fetch("UPDATE sessions SET ending_at = now() - interval '30 seconds'")
    await world.sweep()

    assert not await is_open(world, session)
    assert await world.told() == [("ended", "daily")]


def test_the_least_partition_tells_how_far_is_committed() -> None:
    asked_at = datetime(2026, 5, 11, 12, tzinfo=UTC)
    early = asked_at - timedelta(hours=2)
    read_to_its_end = LogPosition(100, early, "log")
    lagging = LogPosition(99, early, "log")
    never_read = LogPosition(0, None, None)

    assert committed_until([read_to_its_end] * 3, End(), asked_at) == asked_at - timedelta(
        seconds=10
    )
    assert committed_until([read_to_its_end, lagging], End(), asked_at) == early
    assert committed_until([read_to_its_end, never_read], End(), asked_at) is None
    assert committed_until([], End(), asked_at) is None
