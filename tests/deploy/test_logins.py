"""The SQL of deploy/ that makes who logs in, run by psql on a real server."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from chatlane.postgres.grants import Roles, differences, grant
from chatlane.postgres.migrations import migrate
from chatlane.postgres.pool import open_store
from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import PostgresServer, open_postgres
from tests.support.servers.databases import migrated, with_login

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DATABASE = "chatlane"


@pytest.fixture
async def server() -> AsyncIterator[PostgresServer]:
    """A server of its own, for roles are those of all databases."""
    with server_directory() as directory:
        async with open_postgres(directory / "postgres") as running:
            connection = await asyncpg.connect(running.url)
            try:
                await connection.execute(f"CREATE DATABASE {DATABASE}")
            finally:
                await connection.close()
            yield running


async def run(server: PostgresServer, script: Path, **variables: str) -> None:
    """Run a script as the superuser, as the images do."""
    process = await asyncio.create_subprocess_exec(
        str(server.programs / "psql"),
        *("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"),
        f"--dbname={server.dsn(DATABASE)}",
        f"--file={script}",
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()


async def told(dsn: str, sql: str) -> str:
    connection = await asyncpg.connect(dsn)
    try:
        return str(await connection.fetchval(sql))
    finally:
        await connection.close()


async def test_routers_of_compose_log_in_with_the_rights_of_the_application(
    server: PostgresServer,
) -> None:
    dsn = server.dsn(DATABASE)
    await migrated(dsn)
    script = ROOT / "deploy/postgres/logins.sql"
    for password in ("first", "it's second"):
        await run(server, script, CHATLANE_POSTGRES_PASSWORD=password)
    router = with_login(dsn, "chatlane_router", "it's%20second")
    assert await told(router, "SELECT count(*) FROM sessions") == "0"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await told(router, "CREATE TABLE mine ()")
    is_super = "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    assert await told(router, is_super) == "False"


async def test_the_owner_of_a_local_cluster_is_no_superuser_and_can_do_all_that_is_its_own(
    server: PostgresServer, tmp_path: Path
) -> None:
    for name in ("owner", "application", "retention"):
        (tmp_path / name).write_text(f"password of the {name}")
    text = (ROOT / "deploy/kubernetes/overlays/local/roles.sql").read_text("utf-8")
    script = tmp_path / "roles.sql"
    script.write_text(text.replace("/run/secrets/postgres", str(tmp_path)), "utf-8")
    await run(server, script)

    dsn = server.dsn(DATABASE)
    owner = with_login(dsn, "chatlane_owner", "password%20of%20the%20owner")
    may = (
        "SELECT rolsuper OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
    )
    assert await told(owner, may) == "False"
    await migrate(owner)
    async with open_store(owner) as store, store.transaction() as connection:
        assert await grant(connection, Roles()) == []
    as_owner = await asyncpg.connect(owner)
    try:
        assert await differences(as_owner, Roles()) == []
    finally:
        await as_owner.close()
    for user, role in (("chatlane_router", "application"), ("chatlane_keeper", "retention")):
        login = with_login(dsn, user, f"password%20of%20the%20{role}")
        assert await told(login, "SELECT count(*) FROM sessions") == "0"
