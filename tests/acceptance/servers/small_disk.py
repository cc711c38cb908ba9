"""A disk that can be filled to its last byte and emptied again; root only."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

_BLOCK: Final = b"\0" * 65_536


class SmallDisk:
    """A file system in memory.

    Attributes:
        directory: Where it is.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"

    def fill(self) -> None:
        """Leave no room for anything."""
        with self._filler.open("ab", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(_BLOCK):
                pass

    def empty(self) -> None:
        """Take away what `fill` wrote."""
        self._filler.unlink()


@contextlib.contextmanager
def open_small_disk(directory: Path, mebibytes: int) -> Iterator[SmallDisk]:
    """Mount a disk of this size, and unmount it at the end; skips where nobody may mount.

    Args:
        directory: An empty folder; it belongs to the same user afterwards.
    """
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    owner = directory.stat()
    options = f"size={mebibytes}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    mount = subprocess.run(  # noqa: S603 - our own folder
        ["/bin/mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mount.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {mount.stderr.strip()}")
    try:
        yield SmallDisk(directory)
    finally:
        subprocess.run(  # noqa: S603 - our own folder
            ["/bin/umount", "--lazy", str(directory)], check=True
        )
