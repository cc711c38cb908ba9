"""A router that tells twice a second how much memory, descriptors and tasks it has.

Usage: `python watched_router.py CONFIG`. Prints one line of JSON each time.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Final

import psutil

from chatlane.app.lifecycle import run
from chatlane.config.settings import load_settings
from chatlane.observability.logs import configure_logging

_PAUSE_SECONDS: Final = 0.5


async def main(config: Path) -> int:
    """Run a router as `chatlane router` does."""
    telling = asyncio.create_task(_tell())
    code = await run(load_settings(config, os.environ))
    telling.cancel()
    return code


async def _tell() -> None:
    process = psutil.Process()
    while True:
        reading = {
            "rss_bytes": process.memory_info().rss,
            "descriptors": process.num_fds(),
            "tasks": len(asyncio.all_tasks()),
        }
        sys.stdout.write(f"{json.dumps(reading)}\n")
        sys.stdout.flush()
        await asyncio.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    configure_logging("warning", json=True)
    sys.exit(asyncio.run(main(Path(sys.argv[1]))))
