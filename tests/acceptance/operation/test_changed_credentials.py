"""Passwords are changed and connections break: a router that runs goes on with the new ones."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.servers.locked_servers import HANG_UP_SQL, LockedNats, Secrets, login_with
from tests.support.service.processes import Process
from tests.support.service.scene import Scene, open_scene

pytestmark = pytest.mark.acceptance

PER_SECOND = 40
LOGIN = "chatlane_changing_login"


def start_router(scene: Scene, secrets: Secrets, dsn: str) -> Process:
    secrets.put(postgres__password="old", nats__password="old")  # noqa: S106 # of these servers
    places = {"CHATLANE_POSTGRES__DSN": dsn, "CHATLANE_NATS__USER": "router"}
    return scene.service.router("router 1", variables={**secrets.variables, **places})


async def until_refused(router: Process, words: str) -> None:
    await eventually(lambda: words in router.log_path.read_text("utf-8"))


async def test_a_router_goes_on_with_changed_passwords(database_url: str, tmp_path: Path) -> None:
    """They are changed on the servers first, so that it is refused for a while."""
    secrets = Secrets(tmp_path / "secrets")
    nats = LockedNats(tmp_path / "nats")
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(nats.running("old"))
        dsn = await stack.enter_async_context(login_with(database_url, LOGIN, "old"))
        scene = await stack.enter_async_context(open_scene(tmp_path, server.url, database_url))
        router = start_router(scene, secrets, dsn)
        scene.service.worker("worker-1")
        scene.service.subscriber("subscriber 1")
        await scene.service.until_started(router)
        pid = router.pid

        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow(20)
            await scene.recorder.fetch(f"ALTER ROLE {LOGIN} PASSWORD 'new'")
            await scene.recorder.fetch(HANG_UP_SQL, LOGIN)
            await until_refused(router, "sqlstate=28P01")
            secrets.put(postgres__password="new")  # noqa: S106
            await scene.until_answers_flow(20)

            await server.stop()
            await stack.enter_async_context(nats.running("new"))
            await until_refused(router, "Authorization Violation")
            secrets.put(nats__password="new")  # noqa: S106
            await scene.until_answers_flow(20)

        await scene.verify()
        assert router.pid == pid
        scene.require_running()
