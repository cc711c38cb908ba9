"""A standby takes over amid traffic; the old primary is dead, or answers reads only."""

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import httpx
import pytest

from chatlane_devkit.judge.verdict import Run, judge
from chatlane_servers.binaries import (
    postgres_programs,
    server_directory,
    unprivileged_identity,
)
from tests.acceptance.conftest import ReportLine
from tests.support.eventually import eventually
from tests.support.servers.postgres_pair import PostgresPair, open_postgres_pair
from tests.support.service.scene import Scene, open_scene, seconds_since

pytestmark = [pytest.mark.acceptance, pytest.mark.slow]

PER_SECOND: Final = 60
LEFT_WITHIN: Final = timedelta(seconds=10)
# What people write while nobody takes writes.
UNHEARD: Final = 60


def require_copies() -> None:
    if not (postgres_programs(unprivileged_identity()) / "pg_basebackup").exists():
        reason = "this Postgres comes without pg_basebackup"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture
async def pair() -> AsyncIterator[PostgresPair]:
    require_copies()
    with server_directory() as directory:
        async with open_postgres_pair(directory) as its:
            yield its


@pytest.fixture
async def paired(nats_url: str, pair: PostgresPair, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(tmp_path, nats_url, pair.dsn) as scene:
        await scene.start()
        yield scene


async def test_a_demoted_primary_that_answers_reads_is_left(
    pair: PostgresPair, paired: Scene, report_line: ReportLine
) -> None:
    async with paired.users.talking(PER_SECOND):
        await paired.until_answers_flow()
        await pair.demote()
        await paired.until_unheard(UNHEARD)
        await pair.promote()
        promoted_at = monotonic()
        await paired.until_answers_flow()
        flow = seconds_since(promoted_at)

        async def is_left() -> bool:
            return await pair.connections_to_old() == 0

        await eventually(is_left, LEFT_WITHIN)
        left = seconds_since(promoted_at)
    paired.recorder.close()
    await paired.verify()
    paired.require_running()
    report_line(f"answers flow {flow} after the promotion, nobody at the old primary after {left}")


@pytest.mark.long
async def test_a_primary_that_is_killed_loses_nothing_that_was_committed(
    pair: PostgresPair, paired: Scene, report_line: ReportLine
) -> None:
    async with paired.users.talking(PER_SECOND):
        await paired.until_answers_flow()
        await pair.primary.kill()
        await paired.until_unheard(UNHEARD)
        await pair.promote()
        promoted_at = monotonic()
        await paired.until_answers_flow()
        flow = seconds_since(promoted_at)
    await paired.verify()
    paired.require_running()
    report_line(f"answers flow {flow} after the promotion")


@pytest.fixture
async def loose_pair() -> AsyncIterator[PostgresPair]:
    require_copies()
    with server_directory() as directory:
        async with open_postgres_pair(directory, is_synchronous=False) as its:
            yield its


async def test_a_standby_that_is_behind_takes_over_and_every_message_is_answered(
    nats_url: str, loose_pair: PostgresPair, tmp_path: Path, report_line: ReportLine
) -> None:
    """Routers notice that the database went back, and say so; adapters deliver what comes of it."""
    async with open_scene(tmp_path, nats_url, loose_pair.dsn) as scene:
        await scene.start()
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            await loose_pair.hold_back_standby()
            # This is answered and then forgotten.
            await scene.until_answers_flow()
            await loose_pair.primary.kill()
            await loose_pair.promote()
            for name in ("router 1", "router 2"):
                await scene.process(name).until_logged("database_regressed")
            await scene.until_answers_flow()
        await scene.until_all_is_heard()
        port = scene.process("router 1").events("router_started")[-1]["port"]
        async with httpx.AsyncClient(timeout=5) as client:
            told = (await client.get(f"http://127.0.0.1:{port}/readyz")).json()
        assert told["ready"], told
        assert "database_regressed" in told["complaints"]
        scene.require_running()
        history = await scene.recorder.history(scene.users)
        report_line("\n".join(judge(Run(history)).problems) or "nothing was wrong")
