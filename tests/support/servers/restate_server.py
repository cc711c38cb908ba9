"""Run restate-server, which comes from npm, beside the servers of chatlane."""

import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from typing_extensions import override

from chatlane_servers.embedded import LOOPBACK, EmbeddedServer, free_port

_FINDER: Final = Path(__file__).parents[3] / ".ci" / "restate"
_WITHIN_SECONDS: Final = 300
_CONFIG: Final = """
node-name = "node"
listen-mode = "tcp"
base-dir = "{directory}/data"
bind-address = "{address}:{node_port}"
default-num-partitions = 4
rocksdb-total-memory-size = "256MB"
log-filter = "warn"
log-disable-ansi-codes = true
disable-telemetry = true

[ingress]
bind-address = "{address}:{port}"

[admin]
bind-address = "{address}:{admin_port}"
"""


def restate_program() -> Path:
    """Return restate-server, installed from npm on first use.

    Raises:
        subprocess.CalledProcessError: It cannot be installed; the reason was printed.
    """
    command = [str(_FINDER)]
    found = subprocess.run(  # noqa: S603 - a script of this repository
        command, check=True, stdout=subprocess.PIPE, text=True, timeout=_WITHIN_SECONDS
    )
    return Path(found.stdout.strip())


def require_restate() -> Path:
    """Return restate-server; only outside CI a test is skipped for the lack of it."""
    try:
        return restate_program()
    except subprocess.SubprocessError:
        reason = "restate-server is not there, and cannot be installed from npm"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


class RestateServer(EmbeddedServer):
    """A Restate server with one node.

    Attributes:
        admin_url: Address of its admin API.
    """

    name = "restate-server"

    def __init__(self, directory: Path, program: Path) -> None:
        super().__init__(directory, None)
        self._program = program
        self._admin_port = free_port()
        self._node_port = free_port()

    @property
    @override
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def admin_url(self) -> str:
        return f"http://{LOOPBACK}:{self._admin_port}"

    async def register(self, handlers_url: str) -> bool:
        """Make the handlers at an address known; return whether they answered."""
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            url = f"{self.admin_url}/deployments"
            answer = await http.post(url, json={"uri": handlers_url, "force": True})
            return answer.is_success

    @property
    @override
    def _stop_signal(self) -> signal.Signals:
        return signal.SIGTERM

    @property
    @override
    def _parent_death_signal(self) -> signal.Signals:
        return signal.SIGKILL

    @override
    def _arguments(self) -> list[str]:
        config = self.directory / "restate.toml"
        config.write_text(
            _CONFIG.format(
                directory=self.directory,
                address=LOOPBACK,
                port=self.port,
                admin_port=self._admin_port,
                node_port=self._node_port,
            )
        )
        return [str(self._program), "--no-logo", "--config-file", str(config)]

    @override
    async def _answers(self) -> bool:
        async with httpx.AsyncClient(trust_env=False, timeout=2) as http:
            try:
                ingress = await http.get(f"{self.url}/restate/health")
                admin = await http.get(f"{self.admin_url}/health")
            except httpx.HTTPError:
                return False
        return ingress.is_success and admin.is_success


@contextlib.asynccontextmanager
async def open_restate(directory: Path, program: Path) -> AsyncIterator[RestateServer]:
    """Run a Restate server until the end of the block."""
    server = RestateServer(directory, program)
    await server.start()
    try:
        yield server
    finally:
        # Its data is not needed any more.
        await server.kill()
