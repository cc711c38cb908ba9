"""C21: a message that kills every process that looks into it."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane_schemas import encode
from chatlane_schemas.topology import subjects
from tests.acceptance.conftest import ReportLine
from tests.acceptance.crashes import poisoned_router
from tests.acceptance.crashes.poisoned_router import MARK
from tests.support.eventually import eventually
from tests.support.service.load_users import Person
from tests.support.service.processes import Process
from tests.support.service.raw_publisher import publish_raw
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

ANN: Final = Person("ann")
EVE: Final = Person("eve")
PROGRAM: Final = Path(poisoned_router.__file__)
# Five are expected (ADR 0021); a full machine has taken seven.
MOST_DEATHS: Final = 12
# Two leases, a rest, and a start on a busy machine.
PATIENCE: Final = timedelta(seconds=30)


async def test_c21_a_message_that_kills_routers_is_set_aside_after_a_few_deaths(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    lease = timedelta(seconds=1)
    async with open_scene(tmp_path, nats_url, database_url, [ANN, EVE], lease=lease) as scene:
        scene.service.worker("worker-1")
        router = scene.service.router("router 1", PROGRAM)
        await scene.users.say(ANN, "ok")
        await scene.until_all_is_heard()
        poison = ANN.event(MARK.decode(), "poison")
        await publish_raw(nats_url, subjects.inbound_for(poison).encode(), encode(poison))
        await scene.users.say(ANN, "still here?")
        await scene.users.say(EVE, "other user")
        deaths = await _restart_until_all_is_heard(scene, router)
        await scene.verify(dead=["process_killer"])
        assert scene.users.told(ANN) == ["#1 heard: ok", "#3 heard: still here?"]
        assert await scene.recorder.value("SELECT body FROM dead_letters") == encode(poison)
        report_line(f"{deaths} deaths")


async def _restart_until_all_is_heard(scene: Scene, router: Process) -> int:
    """Start the router whenever it has died; return how often it had."""
    for deaths in range(MOST_DEATHS + 1):
        await eventually(lambda: router.exit_code == 9 or not scene.users.unheard, PATIENCE)
        if not scene.users.unheard:
            return deaths
        router.start()
    raise AssertionError(f"{MOST_DEATHS} deaths and no end")
