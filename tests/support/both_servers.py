"""Runs both embedded servers until its input ends; prints their process ids as a JSON list.

Usage: `python both_servers.py DIRECTORY`.
"""

import asyncio
import json
import sys
from pathlib import Path

from chatlane.dev.servers import open_nats, open_postgres


async def main(directory: Path) -> None:
    """Start, tell, wait, stop."""
    async with (
        open_nats(directory / "nats") as nats,
        open_postgres(directory / "postgres") as postgres,
    ):
        sys.stdout.write(f"{json.dumps([nats.pid, postgres.pid])}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
