"""Where the servers of tests keep their data: in memory, if there is room.

Each test has a database of its own, which is 500 files. To make and remove them on a disk takes a
tenth to half a second of a processor, in memory a twentieth. Who kills a server and not the machine
loses as much here as there.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from chatlane_servers.binaries import server_directory

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - with directories of our own in it
# Four processes that run tests have a Postgres and some NATS servers each.
_ROOM: Final = 4 * 1024**3


@contextmanager
def open_memory_directory() -> Iterator[Path]:
    """Make a data directory for servers, and remove it at the end."""
    with server_directory(parent=_MEMORY if _has_room() else None) as directory:
        yield directory


def _has_room() -> bool:
    if not _MEMORY.is_dir():
        return False
    free = shutil.disk_usage(_MEMORY).free
    return min(free, psutil.virtual_memory().available) >= _ROOM
