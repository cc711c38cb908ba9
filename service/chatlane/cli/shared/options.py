"""Options, settings and connections that several commands share."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, ParamSpec, TypeVar

import typer

from chatlane.cli.shared.error_report import CommandError
from chatlane.durations import format_duration, parse_duration
from chatlane_schemas.topology.subjects import SubjectError, declared_name

if TYPE_CHECKING:
    from nats.aio.client import Client

    from chatlane.config.settings import Settings
    from chatlane.postgres.pool import Store

ParamsT = ParamSpec("ParamsT")
ResultT = TypeVar("ResultT")

# `chatlane dev` writes this file while it runs, so that commands in its directory find it.
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
        help="Path of chatlane.toml; by default $CHATLANE_CONFIG, else ./chatlane.toml.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="Most entries to show.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object per line, for other programs.")
]


def _declared_name(text: str) -> str:
    """Return the name of a principal.

    Raises:
        typer.BadParameter: It cannot stand in a subject.
    """
    try:
        return declared_name(text)
    except SubjectError as exc:
        raise typer.BadParameter("write 1 to 64 characters out of a-z, 0-9, _ and -") from exc


Principal = Annotated[
    str | None,
    typer.Option(
        "--principal",
        parser=_declared_name,
        metavar="NAME",
        help="Your principal in NATS, where it checks permissions; by default nats.principal.",
        show_default=False,
    ),
]


def run_async(
    command: Callable[ParamsT, Coroutine[Any, Any, ResultT]],
) -> Callable[ParamsT, ResultT]:
    """Turn a coroutine function into a command that runs it to its end.

    Not for a command that asks for a confirmation: the event loop would take the first Ctrl-C.
    """

    @wraps(command)
    def run(*args: ParamsT.args, **kwargs: ParamsT.kwargs) -> ResultT:
        return asyncio.run(command(*args, **kwargs))

    return run


def read_settings(config: Path | None) -> "Settings":
    """Return the settings of a process of the service."""
    from chatlane.config.settings import load_settings

    return load_settings(config)


def read_client_settings(config: Path | None) -> "Settings":
    """Return the settings of a command that talks to a running chatlane.

    Without a configuration the command talks to the `chatlane dev` of this directory.
    """
    import os

    from chatlane.config.settings import CONFIG_VARIABLE, DEFAULT_CONFIG

    if config is None and not os.environ.get(CONFIG_VARIABLE) and not DEFAULT_CONFIG.is_file():
        config = DEV_CONFIG if DEV_CONFIG.is_file() else None
    return read_settings(config)


@asynccontextmanager
async def open_patient_store(settings: "Settings") -> AsyncIterator["Store"]:
    """Open the database with timeouts for background work."""
    from chatlane.postgres.pool import open_store

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
    """Connect to NATS within a few seconds.

    Raises:
        CommandError: No server answers, or it refuses the connection.
    """
    from chatlane.connections import bus_options
    from chatlane.nats.connection import Bus
    from chatlane.nats.tasks import end_task

    bus = Bus()
    connecting = asyncio.create_task(bus.connect(bus_options(settings, name)))
    try:
        await asyncio.wait({connecting}, timeout=_CONNECT_WITHIN.total_seconds())
        is_late = not connecting.done()
    finally:
        # `asyncio.timeout` cancels once, and nats-py may lose that while a server refuses the login.
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
            f"NATS at {url} refuses the login: check nats.nkey_seed_file (or nats.user, "
            "nats.token, nats.creds_file), and that the servers' configuration has this user"
        )
    return CommandError(
        f"no NATS server answers at {url}: start one (`chatlane dev` does), or set nats.url in "
        "chatlane.toml or CHATLANE_NATS__URL"
    )


def duration_option(text: str) -> timedelta:
    """Return the duration of an option.

    Raises:
        typer.BadParameter: The text is no duration.
    """
    try:
        return parse_duration(text)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc


def shown(span: timedelta) -> str:
    """Return a duration for people: `3.2s`, `5m`, `2h10m`."""
    if span < timedelta(minutes=1):
        return f"{span.total_seconds():.3g}s"
    return format_duration(timedelta(minutes=span // timedelta(minutes=1)))
