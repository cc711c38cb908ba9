"""What a restart must not cost: accepted messages, waiting messages, order, and what was seen."""

import asyncio
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Literal

import pytest

from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.service.load_users import Person, people
from tests.support.service.processes import TURN_AGENT, TURN_LEASE
from tests.support.service.scene import ALL_PARTITIONS, Scene, open_scene, seconds_since

pytestmark = pytest.mark.acceptance

ANN = Person("ann")
ROUNDS = 12
# Each of them starts a conversation while the router has at most so long to live.
NEWCOMERS = 4
LONGEST_LIFE = timedelta(milliseconds=200)
SHORT_LEASE = timedelta(seconds=1)
STARTS_WITHIN = timedelta(seconds=2)


@pytest.mark.timeout(180)
@pytest.mark.slow
async def test_c17_what_was_accepted_runs_once_wherever_the_router_dies(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    members = people(ROUNDS * NEWCOMERS, [TURN_AGENT])
    async with open_scene(tmp_path, nats_url, database_url, members, lease=SHORT_LEASE) as scene:
        await scene.start(routers=1, workers=1, subscribers=0)
        router = scene.process("router 1")
        began_at = monotonic()
        for number in range(ROUNDS):
            await _die_amid(scene, members[number * NEWCOMERS : (number + 1) * NEWCOMERS])
            router.start()
            await router.until_logged("router_started", number + 2)
            await scene.recorder.until_owned(ALL_PARTITIONS)
            await scene.recorder.until_settled(scene.users)
        await scene.verify()
        turns = await scene.recorder.value("SELECT count(*) FROM turns")
        assert turns == ROUNDS * NEWCOMERS
        report_line(
            f"{ROUNDS} deaths within {LONGEST_LIFE} of a message, {seconds_since(began_at)}"
        )


async def _die_amid(scene: Scene, newcomers: list[Person]) -> None:
    """Let people write at random moments before the router is killed at a random one."""
    chance = scene.users.chance
    life = chance.uniform(0, LONGEST_LIFE.total_seconds())
    speaking = [
        asyncio.create_task(_say_after(scene, person, chance.uniform(0, life)))
        for person in newcomers
    ]
    await asyncio.sleep(life)
    await scene.process("router 1").kill()
    await asyncio.gather(*speaking)


async def _say_after(scene: Scene, person: Person, seconds: float) -> None:
    await asyncio.sleep(seconds)
    await scene.users.say(person)


@pytest.mark.parametrize("end", ["SIGTERM", "SIGKILL"])
async def test_c18_messages_behind_a_running_turn_survive_a_restart(
    nats_url: str,
    database_url: str,
    tmp_path: Path,
    end: Literal["SIGTERM", "SIGKILL"],
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN]) as scene:
        await scene.start(routers=1, workers=0, subscribers=0)
        scene.service.worker("worker-1", think=timedelta(seconds=1.5))
        await _begin_a_long_job(scene)
        for _ in range(10):
            await scene.users.say(ANN)
        await _until_waiting(scene, 10)
        await _end(scene, "router 1", end)
        scene.process("router 1").start()
        await scene.verify()
        heard = [text for answer in scene.users.received for text in answer.heard]
        assert heard == ["long job", *(f"ann {number}" for number in range(2, 12))]


async def test_c19_what_the_platform_replays_after_a_restart_starts_nothing(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN]) as scene:
        await scene.start(routers=1, workers=1, subscribers=0)
        sent = [await scene.users.say(ANN) for _ in range(5)]
        await scene.recorder.until_settled(scene.users)
        dead = await scene.recorder.owners()
        await _end(scene, "router 1", "SIGKILL")
        scene.users.restart_adapter()
        scene.process("router 1").start()
        for one in sent:
            await scene.users.repeat(ANN, one)
        await scene.process("router 1").until_logged("router_started", 2)
        await scene.recorder.until_owned(ALL_PARTITIONS, besides=dead)
        written_at = monotonic()
        await scene.users.say(ANN, "new one")
        await scene.verify()
        assert scene.users.slowest_since(written_at) < STARTS_WITHIN


async def test_c20_a_turn_of_dead_processes_holds_nobody_up_beyond_its_lease(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN]) as scene:
        await scene.start(routers=1, workers=0, subscribers=0)
        worker = scene.service.worker("worker-1", think=timedelta(minutes=1))
        await _begin_a_long_job(scene)
        await asyncio.gather(worker.kill(), scene.process("router 1").kill())
        scene.process("router 1").start()
        scene.service.worker("worker-2")
        written_at = monotonic()
        await scene.users.say(ANN, "hello?")
        await scene.verify()
        assert await scene.recorder.value("SELECT count(*) FROM sessions") == 1
        report_line(
            f"both were answered after {seconds_since(written_at)}, the lease being {TURN_LEASE}"
        )


async def _begin_a_long_job(scene: Scene) -> None:
    await scene.users.say(ANN, "long job")

    async def is_claimed() -> bool:
        query = "SELECT EXISTS (SELECT FROM turns WHERE state = 'claimed')"
        return bool(await scene.recorder.value(query))

    await eventually(is_claimed)


async def _until_waiting(scene: Scene, count: int) -> None:
    async def are_waiting() -> bool:
        return (await scene.recorder.left_over())["waiting messages"] == count

    await eventually(are_waiting)


async def _end(scene: Scene, name: str, how: Literal["SIGTERM", "SIGKILL"]) -> None:
    process = scene.process(name)
    await (process.stop() if how == "SIGTERM" else process.kill())
    assert process.exit_code == (0 if how == "SIGTERM" else -9)
