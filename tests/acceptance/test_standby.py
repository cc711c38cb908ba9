"""A synchronous standby takes over amid traffic; the old primary is dead, or answers reads only."""

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

import pytest

from chatlane.dev.binaries import postgres_programs, server_directory, unprivileged_identity
from tests.acceptance.conftest import Tell
from tests.support.eventually import eventually
from tests.support.postgres_pair import PostgresPair, open_postgres_pair
from tests.support.scene import Scene, open_scene, seconds_since

pytestmark = pytest.mark.acceptance

PER_SECOND: Final = 60
LEFT_WITHIN: Final = timedelta(seconds=10)
# What people write while nobody takes writes.
UNHEARD: Final = 60


@pytest.fixture
async def pair() -> AsyncIterator[PostgresPair]:
    if not (postgres_programs(unprivileged_identity()) / "pg_basebackup").exists():
        reason = "this Postgres comes without pg_basebackup"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    with server_directory() as directory:
        async with open_postgres_pair(directory) as its:
            yield its


@pytest.fixture
async def paired(nats_url: str, pair: PostgresPair, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(tmp_path, nats_url, pair.dsn) as scene:
        await scene.start()
        yield scene


async def test_a_demoted_primary_that_answers_reads_is_left(
    pair: PostgresPair, paired: Scene, tell: Tell
) -> None:
    async with paired.crowd.talking(PER_SECOND):
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
    paired.witness.close()
    await paired.verify()
    paired.require_running()
    tell(f"answers flow {flow} after the promotion, nobody at the old primary after {left}")


@pytest.mark.long
async def test_a_primary_that_is_killed_loses_nothing_that_was_committed(
    pair: PostgresPair, paired: Scene, tell: Tell
) -> None:
    async with paired.crowd.talking(PER_SECOND):
        await paired.until_answers_flow()
        await pair.primary.kill()
        await paired.until_unheard(UNHEARD)
        await pair.promote()
        promoted_at = monotonic()
        await paired.until_answers_flow()
        flow = seconds_since(promoted_at)
    await paired.verify()
    paired.require_running()
    tell(f"answers flow {flow} after the promotion")
