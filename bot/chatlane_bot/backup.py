"""Copies of a bot's data: both servers at the same moment, while both are stopped."""

import os
import signal
import tarfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_bot.data_directory import DataDirectory, DataDirectoryError
from chatlane_servers.binaries import unprivileged_identity

_KEPT: Final = ("nats", "postgres", "media", "about.json", "bot.toml", "erasure.key")
_REQUEST: Final = "backup-request"
_PATIENCE: Final = timedelta(minutes=10)
_LOOK_EVERY: Final = timedelta(milliseconds=200)
_PRIVATE: Final = 0o600


def back_up(directory: DataDirectory, file: Path) -> str:
    """Write the data of a bot into a file, and return a sentence about it.

    A running bot stops its parts for the time of the copy; what people write meanwhile waits on
    the platform.

    Raises:
        DataDirectoryError: There are no data, or the running bot did not make the copy.
    """
    if directory.is_empty():
        raise DataDirectoryError(f"there are no data in {directory.path}")
    file = file.absolute()
    holder = directory.holder()
    if holder is None:
        with directory.locked():
            return _write(directory, file)
    request = directory.path / _REQUEST
    request.write_text(str(file), "utf-8")
    os.kill(holder, signal.SIGUSR1)
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    while request.exists():
        if time.monotonic() > deadline or directory.holder() is None:
            raise DataDirectoryError("the bot did not make the copy; its terminal says why")
        time.sleep(_LOOK_EVERY.total_seconds())
    if not file.exists():
        raise DataDirectoryError("the bot did not make the copy; its terminal says why")
    return _sentence(file)


def take_requested_backup(directory: DataDirectory) -> str:
    """Write the copy that `chatlane bot backup` asked for; the parts are stopped."""
    request = directory.path / _REQUEST
    try:
        return _write(directory, Path(request.read_text("utf-8")))
    except OSError as exc:
        return f"no backup: {exc.strerror}: {exc.filename}"
    finally:
        request.unlink(missing_ok=True)


def restore(directory: DataDirectory, file: Path) -> str:
    """Put the data of a file into an empty directory, and return a sentence about it.

    Raises:
        DataDirectoryError: The directory has data, or the file is no backup.
    """
    with directory.locked():
        if not directory.is_empty():
            raise DataDirectoryError(
                f"{directory.path} has data: move it away first, or choose another --name"
            )
        try:
            with tarfile.open(file) as archive:
                names = {name.partition("/")[0] for name in archive.getnames()}
                if not {"nats", "postgres"} & names or names - {*_KEPT}:
                    raise DataDirectoryError(f"{file} is no backup of a bot")
                # Checked by `tarfile.data_filter`.
                archive.extractall(directory.path, filter=_with_modes_of_folders)  # noqa: S202
        except (OSError, tarfile.TarError) as exc:
            directory.remove_data()
            raise DataDirectoryError(f"cannot restore {file}: {exc}") from exc
        _give_to_postgres(directory.path / "postgres")
        directory.require_known()
    return f"restored into {directory.path}; `chatlane bot` starts it"


def _with_modes_of_folders(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Refuse what leads out of the directory; Postgres wants its folders closed, as they were."""
    checked = tarfile.data_filter(member, path)
    return checked.replace(mode=member.mode & 0o777) if member.isdir() else checked


def _write(directory: DataDirectory, file: Path) -> str:
    partial = file.with_name(f"{file.name}.partial")
    # It holds what people said, and the token of the bot.
    partial.touch(mode=_PRIVATE)
    try:
        with tarfile.open(partial, "w:gz", compresslevel=1) as archive:
            for name in _KEPT:
                if (directory.path / name).exists():
                    archive.add(directory.path / name, name)
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return _sentence(file)


def _sentence(file: Path) -> str:
    return f"backup in {file} ({file.stat().st_size / 1024 / 1024:.1f} MiB)"


def _give_to_postgres(folder: Path) -> None:
    """Give restored files to the user that Postgres runs as, if we are root."""
    user = unprivileged_identity()
    if user is None or not folder.exists():
        return
    # The folder itself holds the log, which we write.
    for path in folder.rglob("*"):
        os.chown(path, user.uid, user.gid)
