"""The number of partitions is fixed, and operators move to another one by the documented steps."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.judge.verdict import Run, judge
from tests.support.eventually import eventually
from tests.support.service.processes import Process
from tests.support.service.scene import Scene, open_scene

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

PER_SECOND: Final = 30
FEW: Final = 4
MANY: Final = 16
ENDS_WITHIN: Final = timedelta(seconds=40)
DOCUMENT: Final = Path(__file__).parents[3] / "docs" / "operations.md"
DELETE_ROWS_SQL: Final = "DELETE FROM partitions"


def configure(scene: Scene, before: int, after: int) -> None:
    config = scene.service.config
    text = config.read_text("utf-8")
    assert f"partitions = {before}\n" in text
    config.write_text(text.replace(f"partitions = {before}\n", f"partitions = {after}\n"), "utf-8")


async def admin(scene: Scene, command: str) -> tuple[int | None, str]:
    """Run an admin command; return its exit code and what it printed."""
    arguments = ["-m", "chatlane", "admin", command, "--config", str(scene.service.config)]
    process = Process(f"admin {command}", arguments, scene.service.directory)
    printed_before = process.log_path.stat().st_size if process.log_path.exists() else 0
    process.start()
    await process.wait(ENDS_WITHIN)
    return process.exit_code, process.log_path.read_text("utf-8")[printed_before:]


async def until_drained(scene: Scene) -> None:
    """Wait until routers have decided every message of both logs."""

    async def has_none_unread() -> bool:
        return await scene.recorder.unread() == 0

    await eventually(has_none_unread, ENDS_WITHIN)


async def test_a_router_refuses_another_number_and_operators_move_to_it(
    nats_url: str, database_url: str, tmp_path: Path
) -> None:
    async with open_scene(tmp_path, nats_url, database_url, partitions=FEW) as scene:
        service, users = scene.service, scene.users
        await service.until_started(service.router("router 1"), service.router("router 2"))
        workers = [service.worker("worker-1"), service.subscriber("subscriber 1")]
        await scene.recorder.until_owned(FEW, FEW)
        async with users.talking(PER_SECOND):
            await scene.until_answers_flow()
            configure(scene, FEW, MANY)
            # The running routers go on; another one ends, and so do the commands.
            refused = service.router("router 3")
            await refused.wait(ENDS_WITHIN)
            advice = f"has {FEW} partitions, router.partitions is {MANY}: set router.partitions to"
            assert refused.exit_code == 1
            assert advice in refused.log_path.read_text("utf-8")
            for command in ("apply", "verify"):
                code, printed = await admin(scene, command)
                assert code == 1
                assert advice in " ".join(printed.split())
            await scene.until_answers_flow()

        # The steps of docs/operations.md, from here on in their order.
        await scene.until_all_is_heard()
        for process in workers:
            await process.stop()
        await until_drained(scene)
        for name in ("router 1", "router 2"):
            await scene.process(name).stop()
        before = await scene.recorder.history(users)
        for stream in ("INBOUND", "RESULTS"):
            await scene.client.jetstream().delete_stream(stream)
        assert DELETE_ROWS_SQL in DOCUMENT.read_text("utf-8")
        await scene.recorder.fetch(DELETE_ROWS_SQL)
        code, printed = await admin(scene, "apply")
        assert code == 0, printed
        await service.until_started(service.router("router 4"), service.router("router 5"))
        for process in workers:
            process.start()
        await scene.recorder.until_owned(MANY, MANY)

        async with users.talking(PER_SECOND):
            await scene.until_answers_flow()
        await scene.recorder.until_settled(users, scene.patience)
        after = await scene.recorder.history(users)
        history = replace(
            after,
            log=[*before.log, *after.log],
            results=[*before.results, *after.results],
        )
        assert judge(Run(history)).problems == []
