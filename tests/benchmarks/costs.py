"""What a run costs Postgres: commits, and syncs of its log, counted by Postgres itself."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple

import httpx

from chatlane.metrics import BATCHES
from tests.benchmarks.rig import Rig, Router

_LOOK_AGAIN_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 10.0
_COMMITTED: Final = re.compile(
    rf'^{re.escape(BATCHES.name)}{{outcome="committed"}} (\S+)$', re.MULTILINE
)

OTHERS_SQL: Final[LiteralString] = """
-- bench: connections besides this one; what they did is counted when they end
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
COMMITS_SQL: Final[LiteralString] = """
-- bench: transactions that were committed
SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()
"""
# Before Postgres 18 it was pg_stat_wal.wal_sync.
SYNCS_SQL: Final[LiteralString] = """
-- bench: syncs of the log to the disk
SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'
"""


class Counted(NamedTuple):
    """What Postgres has counted for others."""

    commits: int
    syncs: int


async def counted(rig: Rig) -> Counted:
    """Return what was counted since the server started; no router may run.

    Raises:
        TimeoutError: Somebody else stays connected.
    """
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await rig.value(OTHERS_SQL):  # noqa: ASYNC110 - Postgres gives no event
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    await rig.database.execute("SELECT pg_stat_force_next_flush()")
    commits = await rig.value(COMMITS_SQL)
    return Counted(commits - rig.queries, await rig.value(SYNCS_SQL))


async def at_rest(rig: Rig, routers: int) -> Counted:
    """Return what it costs that so many routers begin, share the partitions, and end."""
    if routers not in rig.at_rest:
        begin = await counted(rig)
        async with rig.routers(routers) as running:
            await rig.until_shared(running)
        end = await counted(rig)
        rig.at_rest[routers] = (end.commits - begin.commits, end.syncs - begin.syncs)
    return Counted(*rig.at_rest[routers])


async def batches(routers: Sequence[Router]) -> int:
    """Return how many batches these routers have committed."""
    async with httpx.AsyncClient() as client:
        pages = [
            (await client.get(f"http://127.0.0.1:{router.port}/metrics")).text for router in routers
        ]
    return sum(committed(page) for page in pages)


def committed(page: str) -> int:
    """Return how many batches were committed, from a page of metrics."""
    found = _COMMITTED.search(page)
    return int(float(found[1])) if found else 0
