"""Runs both embedded servers until its input ends; prints their process ids as a JSON list.

Usage: `python both_servers.py DIRECTORY FOLDER_OF_POSTGRES_PROGRAMS`.
"""

import asyncio
import json
import sys
from pathlib import Path

from chatlane_servers.embedded import open_nats, open_postgres


async def main(directory: Path, programs: Path) -> None:
    """Start, tell, wait, stop."""
    async with (
        open_nats(directory / "nats") as nats,
        open_postgres(directory / "postgres", programs=programs) as postgres,
    ):
        sys.stdout.write(f"{json.dumps([nats.pid, postgres.pid])}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:3])))
