"""What commands share: where the settings are, NATS that fails soon, and a patient database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.reporting import CommandError
from chatlane.durations import format_duration, parse_duration

if TYPE_CHECKING:
    from nats.aio.client import Client

    from chatlane.settings import Settings
    from chatlane.store.pool import Store

# Written by `chatlane dev` while it runs, so that commands in its directory find it.
DEV_CONFIG: Final = Path(".chatlane/dev.toml")

_CONNECT_WITHIN: Final = timedelta(seconds=5)
_PATIENT_LOCK: Final = timedelta(seconds=5)
_PATIENT_STATEMENT: Final = timedelta(seconds=60)

Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="The chatlane.toml to use; else $CHATLANE_CONFIG, else ./chatlane.toml.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most so many.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object a line, for other programs.")
]
Principal = Annotated[
    str | None,
    typer.Option(
        "--principal",
        metavar="NAME",
        help="The name under which NATS lets you ask, where it has permissions; else nats.principal.",
        show_default=False,
    ),
]


def read_settings(config: Path | None) -> "Settings":
    """Return the settings of a process of the service."""
    from chatlane.settings import load_settings

    return load_settings(config)


def read_client_settings(config: Path | None) -> "Settings":
    """Return the settings of a command that talks to a running chatlane.

    Where nothing says which one, it is the one that `chatlane dev` runs in this directory.
    """
    import os

    from chatlane.settings import CONFIG_VARIABLE, DEFAULT_CONFIG

    if config is None and not os.environ.get(CONFIG_VARIABLE) and not DEFAULT_CONFIG.is_file():
        config = DEV_CONFIG if DEV_CONFIG.is_file() else None
    return read_settings(config)


@asynccontextmanager
async def open_patient_store(settings: "Settings") -> AsyncIterator["Store"]:
    """Open the database for work that nobody waits for."""
    from chatlane.store.pool import open_store

    async with open_store(
        settings.postgres.address,
        max_size=2,
        lock_timeout=_PATIENT_LOCK,
        statement_timeout=_PATIENT_STATEMENT,
        acquire_timeout=settings.postgres.connect_timeout,
        statement_cache_size=settings.postgres.statement_cache_size,
        application_name="chatlane-command",
    ) as store:
        yield store


@asynccontextmanager
async def open_nats(settings: "Settings", name: str) -> AsyncIterator["Client"]:
    """Connect to NATS, or say soon that nobody answers.

    Raises:
        CommandError: There is no server.
    """
    from chatlane.bus.connection import Bus
    from chatlane.bus.tasks import end_task
    from chatlane.surroundings import bus_options

    bus = Bus()
    connecting = asyncio.create_task(bus.connect(bus_options(settings, name)))
    try:
        await asyncio.wait({connecting}, timeout=_CONNECT_WITHIN.total_seconds())
        is_late = not connecting.done()
    finally:
        # Not `asyncio.timeout`: its one cancellation gets lost now and then while a server refuses us.
        await end_task(connecting)
    if is_late:
        await bus.close()
        raise _unreachable(settings.nats.url, is_refused=bus.refusal is not None)
    connecting.result()
    try:
        yield bus.client
    finally:
        await bus.close()


def _unreachable(url: str, *, is_refused: bool) -> CommandError:
    if is_refused:
        return CommandError(
            f"NATS at {url} does not let us in: check nats.nkey_seed_file (or nats.user, "
            "nats.token, nats.creds_file), and whether the user is still in the servers' "
            "configuration"
        )
    return CommandError(
        f"no NATS server answers at {url}: start one (`chatlane dev` does), or set nats.url in "
        "chatlane.toml or CHATLANE_NATS__URL"
    )


def duration_option(text: str) -> timedelta:
    """Return the span that an option names.

    Raises:
        typer.BadParameter: It names none.
    """
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def shown(span: timedelta) -> str:
    """Return a span for people: `3.2s`, `5m`, `2h10m`."""
    if span < timedelta(minutes=1):
        return f"{span.total_seconds():.3g}s"
    return format_duration(timedelta(minutes=span // timedelta(minutes=1)))
