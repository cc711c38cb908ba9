"""What people say to a running service is found, by themselves and by nobody else."""

from pathlib import Path

import pytest

from chatlane_client import TranscriptApi
from chatlane_schemas.session_api.people import Person
from tests.support.eventually import eventually
from tests.support.service import load_users
from tests.support.service.processes import ACCOUNT, PLATFORM
from tests.support.service.scene import open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

ANN, BEN = load_users.Person("ann"), load_users.Person("ben")


async def test_what_was_said_is_found_also_after_a_router_died(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, [ANN, BEN]) as scene:
        await scene.start(routers=1, workers=1, subscribers=0)

        async def found(query: str, who: load_users.Person | None = None) -> list[str]:
            person = None
            if who is not None:
                person = Person(platform=PLATFORM, account=ACCOUNT, id=who.name)
            api = TranscriptApi(scene.client, principal="reader", acting_for=person)
            return [hit.snippet async for hit in api.search(query)]

        async def finds_both() -> bool:
            return len(await found("needle")) >= 2

        await scene.users.say(ANN, "a needle in the hay")
        await scene.users.say(BEN, "部署 a needle")
        await eventually(finds_both)
        assert "a needle in the hay" in await found("needle", ANN)
        assert await found("署", ANN) == []
        assert "部署 a needle" in await found("署", BEN)

        await scene.users.say(ANN, "another straw")
        await scene.process("router 1").kill()
        scene.process("router 1").start()
        await scene.process("router 1").until_logged("router_started", 2)

        async def finds_straw() -> bool:
            return "another straw" in await found("straw", ANN)

        await eventually(finds_straw)
