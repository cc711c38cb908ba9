"""Networks that are slow, thin, torn or silent between the service and both of its servers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final, Literal

import pytest

from tests.acceptance.conftest import ReportLine
from tests.acceptance.servers.flaky_proxy import FINE, FlakyProxy, Weather
from tests.support.eventually import eventually
from tests.support.servers.lossy_link import through
from tests.support.service.load_users import people
from tests.support.service.scene import Scene, open_scene, seconds_since

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 20
# Two unanswered pings, five seconds apart, and what a busy machine takes.
NOTICED_WITHIN: Final = timedelta(seconds=60)
TURN_LEASE: Final = timedelta(seconds=10)
PATIENCE: Final = timedelta(seconds=90)
TEARS: Final = 10
# So much is written while the network is bad.
BAD_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Rough:
    """A scene whose every connection goes over one of two links; those of the recorder, too."""

    scene: Scene
    nats: FlakyProxy
    postgres: FlakyProxy


@pytest.fixture
async def rough(nats_url: str, database_url: str, tmp_path: Path) -> AsyncIterator[Rough]:
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(FlakyProxy(nats_url).open())
        postgres = await stack.enter_async_context(FlakyProxy(database_url).open())
        scene = await stack.enter_async_context(
            open_scene(
                tmp_path,
                f"nats://127.0.0.1:{nats.port}",
                through(database_url, postgres.port),
                people(20),
                turn_lease=TURN_LEASE,
                max_attempts=10,
            )
        )
        scene.patience = PATIENCE
        await scene.start(routers=2, workers=2, subscribers=1)
        yield Rough(scene, nats, postgres)


@pytest.mark.parametrize(
    "weather",
    [
        pytest.param(Weather(delay=timedelta(milliseconds=50)), id="50 ms"),
        pytest.param(
            Weather(delay=timedelta(milliseconds=100), jitter=timedelta(milliseconds=200)),
            id="100 to 300 ms",
        ),
        pytest.param(Weather(stall=timedelta(seconds=5), stalled=0.01), id="stalls"),
        pytest.param(Weather(bytes_per_second=64_000 // 8), id="64 kbit/s"),
    ],
)
@pytest.mark.long
@pytest.mark.timeout(300)
async def test_a_bad_network_costs_nothing_but_time(
    rough: Rough, weather: Weather, report_line: ReportLine
) -> None:
    scene = rough.scene
    per_second = 5 if weather.bytes_per_second else PER_SECOND
    async with scene.users.talking(per_second):
        await scene.until_answers_flow(10)
        rough.nats.weather = rough.postgres.weather = weather
        began_at, heard = monotonic(), len(scene.users.seconds)
        enough = len(scene.users.sent) + BAD_SECONDS * per_second
        await eventually(lambda: len(scene.users.sent) >= enough, PATIENCE)
        heard = len(scene.users.seconds) - heard
        rough.nats.weather = rough.postgres.weather = FINE
        await scene.until_answers_flow(10)
    await scene.verify()
    scene.require_running()
    report_line(
        f"{heard} answers to {BAD_SECONDS * per_second} messages while it was bad, "
        f"{scene.recovery(began_at)}"
    )


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_connections_that_are_reset_amid_a_message_cost_nothing_but_time(
    rough: Rough, report_line: ReportLine
) -> None:
    scene = rough.scene
    async with scene.users.talking(PER_SECOND):
        began_at = monotonic()
        for _ in range(TEARS):
            await scene.until_answers_flow(10)
            rough.nats.tear()
            rough.postgres.tear()
        await scene.until_answers_flow(10)
    await scene.verify()
    scene.require_running()
    report_line(scene.recovery(began_at))


@pytest.mark.parametrize("server", ["nats", pytest.param("postgres", marks=pytest.mark.long)])
@pytest.mark.timeout(180)
async def test_connections_that_fall_silent_are_left(
    rough: Rough, server: Literal["nats", "postgres"], report_line: ReportLine
) -> None:
    """Half-open: nobody is told that the other end is gone, as where a gateway forgot them."""
    scene = rough.scene
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow(10)
        if server == "nats":
            rough.nats.silence()
        else:
            rough.postgres.silence()
            scene.recorder.close()
        began_at = monotonic()
        async with asyncio.timeout(NOTICED_WITHIN.total_seconds()):
            await scene.until_answers_flow(10)
        flow = seconds_since(began_at)
    await scene.verify()
    scene.require_running()
    report_line(f"answers flow after {flow}, {scene.recovery(began_at)}")


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_worker_with_nothing_to_do_notices_that_its_connection_fell_silent(
    rough: Rough,
) -> None:
    """It says nothing by itself, so only pings can tell."""
    before = rough.nats.count
    rough.nats.silence()
    await eventually(lambda: rough.nats.count >= before, NOTICED_WITHIN)
