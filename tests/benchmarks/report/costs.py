"""What a run costs Postgres: transactions that write, and syncs of its log, as it counts them."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final, LiteralString, NamedTuple, Self

import httpx

from tests.benchmarks.rig import WRITTEN_SQL, Rig, Router

_LOOK_AGAIN_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 10.0
_COMMITTED: Final = re.compile(r'^chatlane_batches_total{outcome="committed"} (\S+)$', re.MULTILINE)

OTHERS_SQL: Final[LiteralString] = """
-- bench: connections besides this one; their syncs are counted when they end
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
# Before Postgres 18 it was pg_stat_wal.wal_sync.
SYNCS_SQL: Final[LiteralString] = """
-- bench: syncs of the log to the disk that somebody waited for; others come by time
SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io
WHERE object = 'wal' AND backend_type = 'client backend'
"""


class Counted(NamedTuple):
    """What Postgres has counted.

    Attributes:
        written: Transactions that wrote something.
        syncs: Of its log to the disk, by who wrote.
    """

    written: int
    syncs: int

    def syncs_per_commit(self, before: Self) -> float:
        """Return the syncs for each transaction that wrote since then; 0 where none did."""
        written = self.written - before.written
        return (self.syncs - before.syncs) / written if written else 0.0


async def counted(rig: Rig) -> Counted:
    """Return what was counted since the server started; no router may run.

    Raises:
        TimeoutError: Somebody else stays connected.
    """
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while await rig.value(OTHERS_SQL):  # noqa: ASYNC110 - Postgres gives no event
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    return Counted(await rig.value(WRITTEN_SQL), await rig.value(SYNCS_SQL))


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
