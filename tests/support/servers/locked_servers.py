"""Servers that want a password from routers, and the directory in which routers find it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chatlane_servers.embedded import NatsServer
from tests.support.servers.databases import execute, with_login

HANG_UP_SQL: Final = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"


@dataclass(frozen=True)
class Secrets:
    """A directory of secrets, of which one is replaced at a time."""

    directory: Path

    @property
    def variables(self) -> dict[str, str]:
        """What makes a process read them."""
        return {"CHATLANE_SECRETS_DIR": str(self.directory)}

    def put(self, **secrets: str) -> None:
        """Write secrets under the names of their settings, such as `nats__password`."""
        self.directory.mkdir(exist_ok=True)
        for name, value in secrets.items():
            new = self.directory.with_name(f"new-{name}")
            new.write_text(value, "utf-8")
            new.replace(self.directory / f"CHATLANE_{name.upper()}")


class LockedNats:
    """A NATS server on which routers log in as `router`, and the others need not."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port: int | None = None

    @asynccontextmanager
    async def running(self, password: str) -> AsyncIterator[NatsServer]:
        """Run it with this password; on the same port, with the same data, however often."""
        users = f'[{{user: "anybody", password: "-"}}, {{user: "router", password: "{password}"}}]'
        config = f'authorization {{ users: {users} }}\nno_auth_user: "anybody"'
        server = NatsServer(self._directory, self._port, extra_config=config)
        await server.start()
        self._port = server.port
        try:
            yield server
        finally:
            await server.stop()


@asynccontextmanager
async def login_with(dsn: str, user: str, password: str) -> AsyncIterator[str]:
    """Make a user with the rights of routers; yield `dsn` for it, without the password."""
    await execute(dsn, f"DROP ROLE IF EXISTS {user}")
    role = f"LOGIN PASSWORD '{password}' IN ROLE chatlane_application"
    await execute(dsn, f"CREATE ROLE {user} {role}")
    try:
        yield with_login(dsn, user, "")
    finally:
        await execute(dsn, HANG_UP_SQL, user)
        await execute(dsn, f"DROP ROLE {user}")
