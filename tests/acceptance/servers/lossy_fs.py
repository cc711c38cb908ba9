"""A file system that loses at a power cut whatever nobody synced; run as a program, or opened.

Names are on disk at once, as a journal keeps them; the content of a file is what it was at its
last fsync. That is the worst that a disk may do, for a kernel would have written most of it.

Run with the folder that stays, and where to mount it.
"""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

import pytest

from tests.support.eventually import eventually

try:
    from fuse import (  # type: ignore[import-untyped]
        FUSE,
        FuseOSError,
        Operations,
        fuse_get_context,
    )
except OSError:  # libfuse is not installed
    FUSE = None

_ROOT: Final = Path(__file__).parents[3]
_MOUNTED_WITHIN: Final = timedelta(seconds=60)


class LossyFs:
    """A mounted folder whose power can be cut.

    Attributes:
        directory: Where programs see it.
        kept: What is on the disk; files that were made there were synced long ago.
    """

    def __init__(self, directory: Path, kept: Path, log: Path) -> None:
        self.directory = directory
        self.kept = kept
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def mount(self) -> None:
        """Show what is on the disk."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "tests.acceptance.servers.lossy_fs"),
                str(self.kept),
                str(self.directory),
                cwd=_ROOT,
                stdout=log,
                stderr=log,
            )
        await eventually(lambda: os.path.ismount(self.directory), _MOUNTED_WITHIN)

    async def cut(self) -> None:
        """Lose everything that was not synced; whoever uses the disk must be dead already."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await asyncio.to_thread(_unmount, self.directory)


def _unmount(directory: Path) -> None:
    subprocess.run(  # noqa: S603 - our own folder
        ["/bin/umount", "--lazy", str(directory)], check=False, capture_output=True
    )


@asynccontextmanager
async def open_lossy_fs(directory: Path) -> AsyncIterator[LossyFs]:
    """Mount a disk in a folder of `directory`; skips where FUSE is missing."""
    if FUSE is None:
        pytest.skip("libfuse is not installed")
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.W_OK):
        pytest.skip("this machine lets nobody mount a FUSE file system")
    kept, seen = directory / "kept", directory / "seen"
    kept.mkdir()
    seen.mkdir()
    disk = LossyFs(seen, kept, directory / "disk.log")
    try:
        await disk.mount()
        yield disk
    finally:
        await disk.cut()


if FUSE is not None:

    class _Files(Operations):  # type: ignore[misc] # the package is untyped
        """What the kernel asks for. One thread, so that nothing needs a lock."""

        def __init__(self, root: str) -> None:
            self._root = root
            self._content: dict[str, bytearray] = {}
            # What of a file was written since its last sync; a log of 16 MB is synced often.
            self._dirty: dict[str, tuple[int, int]] = {}

        def _path(self, path: str) -> str:
            return self._root + path

        def _loaded(self, path: str) -> bytearray:
            if path not in self._content:
                self._content[path] = bytearray(Path(self._path(path)).read_bytes())
            return self._content[path]

        def access(self, path: str, amode: int) -> None:
            if not os.access(self._path(path), amode):
                raise FuseOSError(errno.EACCES)

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            del fh
            found = os.lstat(self._path(path))
            told = {key: getattr(found, key) for key in dir(found) if key.startswith("st_")}
            if S_ISREG(found.st_mode) and path in self._content:
                told["st_size"] = len(self._content[path])
            told["st_blocks"] = -(-told["st_size"] // 512)
            return told

        def readdir(self, path: str, fh: int) -> list[str]:
            del fh
            return [".", "..", *os.listdir(self._path(path))]

        def mkdir(self, path: str, mode: int) -> None:
            os.mkdir(self._path(path), mode)
            self._give_away(path)

        def rmdir(self, path: str) -> None:
            os.rmdir(self._path(path))

        def chmod(self, path: str, mode: int) -> None:
            os.chmod(self._path(path), mode)

        def chown(self, path: str, uid: int, gid: int) -> None:
            os.chown(self._path(path), uid, gid)

        def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
            os.utime(self._path(path), times)

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(self._path(path))
            return {key: getattr(found, key) for key in dir(found) if key.startswith("f_")}

        def symlink(self, target: str, source: str) -> None:
            os.symlink(source, self._path(target))

        def readlink(self, path: str) -> str:
            return os.readlink(self._path(path))

        def link(self, target: str, source: str) -> None:
            os.link(self._path(source), self._path(target))

        def unlink(self, path: str) -> None:
            self._content.pop(path, None)
            self._dirty.pop(path, None)
            os.unlink(self._path(path))

        def rename(self, old: str, new: str) -> None:
            os.rename(self._path(old), self._path(new))
            of_paths: tuple[dict[str, Any], ...] = (self._content, self._dirty)
            for kept in of_paths:
                kept.pop(new, None)
                for path in [it for it in kept if it == old or it.startswith(old + "/")]:
                    kept[new + path[len(old) :]] = kept.pop(path)

        def create(self, path: str, mode: int, fi: object = None) -> int:
            del fi
            os.close(os.open(self._path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode))
            self._content[path] = bytearray()
            self._dirty.pop(path, None)
            self._give_away(path)
            return 0

        def _give_away(self, path: str) -> None:
            """Let whoever asked own a new file: the program itself runs as root."""
            uid, gid, _ = fuse_get_context()
            os.chown(self._path(path), uid, gid)

        def open(self, path: str, flags: int) -> int:
            self._loaded(path)
            if flags & os.O_TRUNC:
                self._content[path] = bytearray()
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            del fh
            return bytes(self._loaded(path)[offset : offset + size])

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            del fh
            content = self._loaded(path)
            if offset > len(content):
                content.extend(bytes(offset - len(content)))
            content[offset : offset + len(data)] = data
            begin, end = self._dirty.get(path, (offset, offset))
            self._dirty[path] = min(begin, offset), max(end, offset + len(data))
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> None:
            del fh
            content = self._loaded(path)
            del content[length:]
            content.extend(bytes(length - len(content)))

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            del datasync, fh
            with contextlib.suppress(FileNotFoundError), open(self._path(path), "r+b") as file:
                content = self._loaded(path)
                begin, end = self._dirty.pop(path, (0, 0))
                file.truncate(len(content))
                file.seek(begin)
                file.write(content[begin:end])
            return 0

        def flush(self, path: str, fh: int) -> int:
            del path, fh
            return 0

        def release(self, path: str, fh: int) -> int:
            del path, fh
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            del path, datasync, fh
            return 0


def main() -> None:
    """Serve until killed."""
    kept, seen = sys.argv[1:]
    FUSE(_Files(kept), seen, foreground=True, nothreads=True, allow_other=True, big_writes=True)


if __name__ == "__main__":
    main()
