"""Restores a database of a million rows of transcripts, and the streams: `make restore-drill`.

Ten thousand conversations of a hundred rows are there when people begin to write; database and
streams are backed up meanwhile. Then the processes are stopped, both are restored to their backups, and
the service is started again. What is timed is the recipe of docs/operations.md, from the empty
servers to the answers of those who go on writing.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final, LiteralString

import asyncpg
from rich.console import Console
from rich.table import Table

from tests.benchmarks.existing import fill
from tests.support.backups.restore_drill import Drill, open_drill
from tests.support.service.load_users import people

RESULT: Final = Path("var/restore.json")
ROWS_EACH: Final = 100
WITHIN: Final = timedelta(minutes=10)
PER_SECOND: Final = 20
ANSWERS: Final = 20

_ROWS_SQL: Final[LiteralString] = """
-- bench: a hundred rows in each conversation
INSERT INTO messages (session_id, seq, id, role, content, created_at)
SELECT id, seq, gen_random_uuid(), CASE seq % 2 WHEN 1 THEN 'user' ELSE 'assistant' END,
    repeat('word ', 40), now()
FROM sessions CROSS JOIN generate_series(2, $1::int) AS seq ORDER BY id, seq
"""
_COUNTERS_SQL: Final[LiteralString] = """
-- bench: the next row of each
UPDATE sessions SET next_seq = $1::int + 1
"""
_PROGRESS_SQL: Final[LiteralString] = """
-- bench: and nothing is left to be made searchable
UPDATE search_progress SET seq = $1::int
"""
_COUNT_SQL: Final[LiteralString] = """
-- bench: rows of the conversations that were there
SELECT count(*) FROM messages JOIN sessions ON sessions.id = messages.session_id
WHERE sessions.platform = 'telegram'
"""


class Clock:
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[None]:
        """Count the time of the block."""
        began = monotonic()
        yield
        self.seconds[name] = monotonic() - began


async def measure(rows: int) -> tuple[int, dict[str, float]]:
    """Return how many rows came back, and the seconds of each step."""
    clock = Clock()
    with TemporaryDirectory() as directory:
        async with open_drill(Path(directory), people(12)) as drill:
            await _fill(drill, rows // ROWS_EACH)
            await drill.start()
            async with drill.users.talking(PER_SECOND):
                await drill.scene.until_answers_flow(ANSWERS)
                async with clock.step("dump the database"):
                    await drill.back_up_database()
            await drill.settle()
            async with clock.step("back the streams up"):
                await drill.back_up_streams()
            await drill.stop()
            async with clock.step("restore the database"):
                await drill.restore_database()
            async with clock.step("restore the streams"):
                await drill.restore_streams()
                await drill.widen_window()
            # One that remembers numbers may take new answers for repeats.
            drill.users.stop_adapter()
            drill.users.restart_adapter()
            async with drill.users.listening():
                async with clock.step("read what is newer"):
                    await drill.catch_up()
                async with clock.step("answer"), drill.users.talking(PER_SECOND):
                    await drill.scene.until_answers_flow(ANSWERS)
                await drill.settle()
            return await drill.scene.recorder.value(_COUNT_SQL), clock.seconds


async def _fill(drill: Drill, sessions: int) -> None:
    connection = await asyncpg.connect(drill.scene.service.dsn)
    try:
        # Of an agent that is not declared here, so that nobody waits for their answers.
        await fill(connection, sessions, "notes")
        await connection.execute(_ROWS_SQL, ROWS_EACH)
        await connection.execute(_COUNTERS_SQL, ROWS_EACH)
        await connection.execute(_PROGRESS_SQL, ROWS_EACH)
        await connection.execute("VACUUM (ANALYZE)")
    finally:
        await connection.close()


def main() -> int:
    """Measure, print, write, and fail where rows are missing or it took too long."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of transcripts")
    rows = parser.parse_args().rows // ROWS_EACH * ROWS_EACH
    restored, seconds = asyncio.run(measure(rows))
    table = Table("step", "seconds")
    for name, its in seconds.items():
        table.add_row(name, f"{its:.1f}")
    backup = sum(its for name, its in seconds.items() if name.startswith(("dump", "back")))
    total = sum(seconds.values()) - backup
    table.add_row("from the backups to answers", f"{total:.1f}")
    console = Console()
    console.print(table)
    console.print(f"{restored:,} of {rows:,} rows are back")
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps({"rows": restored, "seconds": seconds, "total": total}, indent=1))
    return 0 if restored == rows and total < WITHIN.total_seconds() else 1


if __name__ == "__main__":
    sys.exit(main())
