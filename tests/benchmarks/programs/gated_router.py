"""A router that waits before it begins, so that several begin at the same time.

Usage: `python gated_router.py CONFIG GATE`. Everything is imported, then it waits until the file
GATE exists.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Final

from chatlane.app.lifecycle import run
from chatlane.config.settings import load_settings
from chatlane.observability.logs import configure_logging

_LOOK_AGAIN_SECONDS: Final = 0.02

if __name__ == "__main__":
    configure_logging("warning", json=True)
    settings, gate = load_settings(Path(sys.argv[1]), os.environ), Path(sys.argv[2])
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    while not gate.exists():
        time.sleep(_LOOK_AGAIN_SECONDS)
    sys.exit(asyncio.run(run(settings)))
