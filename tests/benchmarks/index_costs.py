"""Measures what an index for search costs whoever inserts: `python -m tests.benchmarks.index_costs`.

Rows of 2,000 sessions come 128 at a time, as batches write them, into a table without an index
for search and into the same table with each of those one could think of.
"""

import asyncio
import sys
from random import Random
from statistics import median, quantiles
from time import perf_counter
from typing import Final
from uuid import UUID

import asyncpg

from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_postgres
from tests.benchmarks.programs.library import Language

_TEXTS: Final = 20_000
_SESSIONS: Final = 2000
_BATCH: Final = 128
_BATCHES: Final = 120
_WARM_UP: Final = 20
_TABLE: Final = """
CREATE TABLE said (
    session_id uuid, seq bigint, content text, PRIMARY KEY (session_id, seq))
"""
_INDEXES: Final[dict[str, str | None]] = {
    "none": None,
    "full text, sorted in later": "USING gin (to_tsvector('simple', content))",
    "full text": "USING gin (to_tsvector('simple', content)) WITH (fastupdate = off)",
    "trigrams, sorted in later": "USING gin (content gin_trgm_ops)",
}
_INSERT: Final = """
-- bench: rows of a batch
INSERT INTO said SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[])
"""


async def _cost(database: asyncpg.Connection, index: str | None, texts: list[str]) -> list[float]:
    """Return microseconds for a row, of each batch."""
    await database.execute("DROP TABLE IF EXISTS said")
    await database.execute(_TABLE)
    if index is not None:
        await database.execute(f"CREATE INDEX ON said {index}")
    chance = Random(1)  # noqa: S311 - the same rows for each index
    next_seq = dict.fromkeys(range(_SESSIONS), 0)
    costs = []
    for _ in range(_BATCHES):
        rows = []
        for _ in range(_BATCH):
            session = chance.randrange(_SESSIONS)
            next_seq[session] += 1
            rows.append((UUID(int=session), next_seq[session], chance.choice(texts)))
        columns = [list(column) for column in zip(*rows, strict=True)]
        began = perf_counter()
        await database.execute(_INSERT, *columns)
        costs.append((perf_counter() - began) / _BATCH * 1e6)
    return costs[_WARM_UP:]


async def main() -> None:
    """Print a line for each index."""
    language = Language()
    texts = [language.text() for _ in range(_TEXTS)]
    settings = {"synchronous_commit": "off"}
    with server_directory("bench-") as directory:
        async with open_postgres(directory / "postgres", settings=settings) as postgres:
            database = await asyncpg.connect(postgres.url)
            await database.execute("CREATE EXTENSION pg_trgm")
            for name, index in _INDEXES.items():
                costs = await _cost(database, index, texts)
                p99 = quantiles(costs, n=100)[98]
                line = f"{name:28} median {median(costs):6.1f} us a row, p99 {p99:6.1f}\n"
                sys.stdout.write(line)
            await database.close()


if __name__ == "__main__":
    asyncio.run(main())
