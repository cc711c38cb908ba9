"""The job of `chatlane dev` that carries out the erasures that people ask for in the console."""

import secrets
from typing import Final

import asyncpg

from chatlane.postgres.grants import Roles
from chatlane_devkit.demo.stack import DATABASE, Stack
from chatlane_servers.programs import Program

ERASER: Final = "eraser"

# Login role of the job in the database. Routers have fewer rights.
_LOGIN: Final = "chatlane_eraser"


def erasure_config() -> str:
    """Return the TOML of a new key of the erasure list, for routers and the job."""
    return f'\n[erasure]\nkey = "{secrets.token_hex(32)}"\n'


async def start_eraser(stack: Stack) -> None:
    """Start the job with a separate database login."""
    password = secrets.token_hex(16)
    connection = await asyncpg.connect(stack.dsn)
    try:
        membership = f"LOGIN PASSWORD '{password}' IN ROLE {Roles().retention}"
        await connection.execute(f"CREATE ROLE {_LOGIN} {membership}")
    finally:
        await connection.close()
    command = ["-m", "chatlane", "people", "erase-requested", "--every", "2s"]
    program = Program(
        ERASER,
        [*command, "--config", str(stack.config)],
        stack.directory,
        {"CHATLANE_POSTGRES__DSN": stack.postgres.dsn(DATABASE, login=(_LOGIN, password))},
    )
    stack.programs[ERASER] = program
    program.start()
