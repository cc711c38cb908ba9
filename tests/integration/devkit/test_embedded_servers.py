import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import nats
import psutil
import pytest

from chatlane_servers import embedded
from chatlane_servers.binaries import (
    _copy_programs,
    postgres_programs,
    require_passable,
    server_directory,
    unprivileged_identity,
)
from chatlane_servers.embedded import NatsServer, PostgresServer, open_nats, open_postgres
from chatlane_servers.processes import Identity, ServerStartError
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

BOTH_SERVERS = Path(__file__).with_name("both_servers.py")


@pytest.fixture
def directory() -> Iterator[Path]:
    # Not tmp_path: as root, Postgres runs as a user who cannot pass through it.
    with server_directory() as path:
        yield path


async def stored_messages(server: NatsServer) -> int:
    client = await nats.connect(server.url)
    try:
        info = await client.jetstream().stream_info("KEPT")
        return info.state.messages
    finally:
        await client.close()


async def store_message(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    try:
        jetstream = client.jetstream()
        await jetstream.add_stream(name="KEPT", subjects=["kept"])
        await jetstream.publish("kept", b"x")
    finally:
        await client.close()


async def fetch(server: PostgresServer, query: str) -> object:
    connection = await asyncpg.connect(server.url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_nats_keeps_port_and_data_after_sigkill(directory: Path) -> None:
    async with open_nats(directory / "nats") as server:
        await store_message(server)
        before = server.url
        await server.kill()
        assert not server.is_running
        await server.start()
        assert server.url == before
        assert await stored_messages(server) == 1


async def test_nats_keeps_its_data_when_opened_again(directory: Path) -> None:
    async with open_nats(directory / "nats") as server:
        await store_message(server)
    async with open_nats(directory / "nats") as server:
        assert await stored_messages(server) == 1


async def test_nats_takes_sync_payload_limit_and_further_configuration(directory: Path) -> None:
    async with open_nats(
        directory / "nats",
        sync_always=True,
        max_payload_bytes=4096,
        extra_config='authorization { user: "ann", password: "pw" }',
    ) as server:
        client = await nats.connect(server.url, user="ann", password="pw")  # noqa: S106
        assert client.max_payload == 4096
        await client.close()
    assert "sync_interval" in (directory / "nats" / "nats-server.conf").read_text("utf-8")


async def test_postgres_keeps_port_and_data_after_sigkill(directory: Path) -> None:
    async with open_postgres(directory / "postgres") as server:
        await fetch(server, "CREATE TABLE kept AS SELECT 7 AS n")
        before = server.url
        await server.kill()
        await server.start()
        assert server.url == before
        assert await fetch(server, "SELECT n FROM kept") == 7


async def test_postgres_keeps_its_data_over_an_immediate_stop_and_a_new_opening(
    directory: Path,
) -> None:
    async with open_postgres(directory / "postgres") as server:
        await fetch(server, "CREATE TABLE kept AS SELECT 7 AS n")
        await server.stop(is_immediate=True)
    async with open_postgres(directory / "postgres") as server:
        assert await fetch(server, "SELECT n FROM kept") == 7


async def test_postgres_is_utf8_with_the_c_locale_and_takes_settings(directory: Path) -> None:
    settings = {"synchronous_commit": "off"}
    async with open_postgres(directory / "postgres", settings=settings) as server:
        assert await fetch(server, "SHOW server_encoding") == "UTF8"
        assert await fetch(server, "SELECT datcollate FROM pg_database LIMIT 1") == "C"
        assert await fetch(server, "SHOW fsync") == "on"
        assert await fetch(server, "SHOW max_connections") == "200"
        assert await fetch(server, "SHOW synchronous_commit") == "off"


async def test_postgres_refuses_a_wrong_password(directory: Path) -> None:
    async with open_postgres(directory / "postgres") as server:
        wrong = f"postgres://chatlane:wrong@127.0.0.1:{server.port}/postgres"
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(wrong)


async def test_two_of_each_run_at_once(directory: Path) -> None:
    async with (
        open_nats(directory / "n1") as first_nats,
        open_nats(directory / "n2") as second_nats,
        open_postgres(directory / "p1") as first_postgres,
        open_postgres(directory / "p2") as second_postgres,
    ):
        running = [first_nats, second_nats, first_postgres, second_postgres]
        assert len({server.port for server in running}) == 4
        assert all(server.is_running for server in running)


@pytest.mark.parametrize("kind", [NatsServer, PostgresServer])
async def test_a_port_taken_meanwhile_is_replaced_by_another(
    directory: Path, monkeypatch: pytest.MonkeyPatch, kind: type[NatsServer | PostgresServer]
) -> None:
    """The port was free when chosen and taken when the server wanted it."""
    taken = socket.create_server((embedded.LOOPBACK, 0))
    honest = embedded.free_port
    offers = iter([taken.getsockname()[1]])
    monkeypatch.setattr(embedded, "free_port", lambda: next(offers, None) or honest())
    server = kind(directory / "server")
    with taken:
        try:
            await server.start()
            assert server.port != taken.getsockname()[1]
        finally:
            await server.stop()


async def test_a_paused_server_goes_on_when_resumed(directory: Path) -> None:
    async with open_nats(directory / "nats") as server:
        server.pause()

        async def is_silent() -> bool:
            try:
                await asyncio.wait_for(embedded._nats_greeting(server.port), 0.2)
            except TimeoutError:
                return True
            return False

        # A signal takes a moment to stop every thread.
        await eventually(is_silent)
        server.resume()
        assert await asyncio.wait_for(embedded._nats_greeting(server.port), 10)


async def test_a_start_that_cannot_succeed_tells_the_log(directory: Path) -> None:
    with pytest.raises(ServerStartError, match="Parse error"):
        async with open_nats(directory / "nats", extra_config="unfinished {"):
            pass
    with pytest.raises(ServerStartError, match="no_such_setting"):
        async with open_postgres(directory / "postgres", settings={"no_such_setting": "1"}):
            pass


@pytest.fixture
async def owner(directory: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that runs both servers and waits for the end of its input."""
    process = await asyncio.create_subprocess_exec(
        *as_normal_user(),
        sys.executable,
        str(BOTH_SERVERS),
        str(directory),
        str(postgres_programs(unprivileged_identity())),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    yield process
    if process.returncode is None:
        process.kill()
    await process.wait()


def as_normal_user() -> list[str]:
    """Return the start of a command that gives up being root.

    One capability stays, so that the interpreter of this environment can be read and the
    servers' directory be written wherever they are.
    """
    if os.geteuid() != 0:
        return []
    program = shutil.which("setpriv")
    assert program, "as root, this test needs setpriv of util-linux"
    kept = "-all,+dac_override"
    identity = ["--reuid=65534", "--regid=65534", "--clear-groups"]
    return [program, *identity, f"--inh-caps={kept}", f"--ambient-caps={kept}"]


async def server_pids(owner: asyncio.subprocess.Process) -> list[int]:
    assert owner.stdout is not None
    line = await asyncio.wait_for(owner.stdout.readline(), 30)
    pids: list[int] = json.loads(line)
    return [*pids, *(child.pid for pid in pids for child in psutil.Process(pid).children())]


def lives(pid: int) -> bool:
    # In a container without an init process nobody collects an orphan: a zombie is dead.
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_normal_user_runs_both_servers(owner: asyncio.subprocess.Process) -> None:
    pids = await server_pids(owner)
    assert all(psutil.Process(pid).uids().real != 0 for pid in pids)
    assert owner.stdin is not None
    owner.stdin.close()
    assert await asyncio.wait_for(owner.wait(), 30) == 0
    assert not any(lives(pid) for pid in pids)


async def test_no_server_outlives_a_killed_owner(owner: asyncio.subprocess.Process) -> None:
    pids = await server_pids(owner)
    assert len(pids) > 2
    owner.send_signal(signal.SIGKILL)
    await eventually(lambda: not any(lives(pid) for pid in pids))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
async def test_postgres_of_root_runs_as_somebody_else(directory: Path) -> None:
    async with open_postgres(directory / "postgres") as server:
        assert server.pid is not None
        assert psutil.Process(server.pid).uids().real != 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes users")
async def test_programs_that_the_other_user_cannot_reach_are_copied(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = unprivileged_identity()
    installed = postgres_programs(identity).parent
    hidden = directory / "hidden"
    hidden.mkdir(mode=0o700)
    installation = hidden / installed.parent.name / installed.name
    _copy_programs(installed, hidden)
    monkeypatch.setattr("chatlane_servers.binaries._wheel_installation", lambda: installation)
    monkeypatch.setattr("chatlane_servers.binaries._SHARED_CACHE", directory / "shared")
    copy = postgres_programs(identity)
    assert copy.is_relative_to(directory / "shared")
    assert copy == postgres_programs(identity)
    async with open_postgres(directory / "postgres") as server:
        assert await fetch(server, "SELECT 1") == 1


def test_a_closed_folder_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    somebody = Identity("somebody", 65534, 65534)
    with pytest.raises(ServerStartError, match="somebody, who cannot enter"):
        require_passable(closed / "data", somebody)


def test_a_server_directory_can_be_passed_but_not_listed_and_goes_away() -> None:
    with server_directory() as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o711
    assert not path.exists()
