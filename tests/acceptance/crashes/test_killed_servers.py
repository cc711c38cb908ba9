"""SIGKILL of nats-server and of Postgres in the middle of steady traffic.

The test starts the server that it killed and touches nothing else.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic

import pytest

from tests.acceptance.conftest import ReportLine
from tests.support.servers.backends import RunningPostgres, RunningServer
from tests.support.servers.databases import migrated, open_database
from tests.support.service.scene import Scene, open_scene, seconds_since

pytestmark = pytest.mark.acceptance

PER_SECOND = 120
# What people write while the server is away.
UNHEARD = 200


@pytest.fixture
async def own_database_url(own_postgres: RunningPostgres) -> AsyncIterator[str]:
    async with open_database(own_postgres.url) as name:
        await migrated(own_postgres.dsn(name))
        yield own_postgres.dsn(name)


async def test_a_killed_nats_server_costs_nothing_but_time(
    nats_server: RunningServer, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    async with open_scene(tmp_path, nats_server.url, database_url) as scene:
        await _kill_amid_traffic(scene, nats_server, report_line)


async def test_a_killed_postgres_costs_nothing_but_time(
    nats_url: str,
    own_postgres: RunningPostgres,
    own_database_url: str,
    tmp_path: Path,
    report_line: ReportLine,
) -> None:
    async with open_scene(tmp_path, nats_url, own_database_url) as scene:
        await _kill_amid_traffic(scene, own_postgres, report_line)


async def _kill_amid_traffic(scene: Scene, server: RunningServer, report_line: ReportLine) -> None:
    await scene.start()
    async with scene.users.talking(PER_SECOND):
        await scene.until_answers_flow()
        killed_at = monotonic()
        await server.kill()
        await scene.until_unheard(UNHEARD)
        await server.start()
        started_after = seconds_since(killed_at)
        await scene.until_answers_flow(1)
        report_line(f"server back after {started_after}, answers after {seconds_since(killed_at)}")
        await scene.until_answers_flow()
    await scene.verify()
    report_line(scene.recovery(killed_at))
    scene.require_running()
