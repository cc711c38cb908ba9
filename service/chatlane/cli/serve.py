"""Commands that run until someone stops them: the router and the echo worker."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from chatlane.cli.shared.options import Config, duration_option, read_client_settings, read_settings
from chatlane.observability.logs import configure_logging, log_uncaught

if TYPE_CHECKING:
    from chatlane.config.settings import Settings

Failpoints = Annotated[
    bool,
    typer.Option(
        "--enable-failpoints", hidden=True, help="Allow tests to kill or freeze this process."
    ),
]


def router(config: Config = None, *, failpoints: Failpoints = False) -> None:
    """Run a router until SIGTERM or Ctrl-C.

    Routers share the partitions: start as many as you like, and when one dies the others
    take over. `chatlane admin` creates the streams and tables. A router waits while NATS or
    Postgres is unavailable. http.port serves /livez, /readyz and /metrics.
    """
    settings = read_settings(config)
    log_as_set(settings)
    enable_failpoint(is_allowed=failpoints)
    from chatlane.app.lifecycle import run

    raise typer.Exit(asyncio.run(run(settings)))


def echo_worker(
    config: Config = None,
    *,
    agent: Annotated[str, typer.Option(help="Agent whose turns the worker takes.")] = "main",
    slots: Annotated[int, typer.Option(min=1, max=1000, help="Most turns at the same time.")] = 8,
    think: Annotated[
        timedelta,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            show_default="0s",
            help="Time that each answer takes.",
        ),
    ] = timedelta(0),
    name: Annotated[
        str | None, typer.Option(help="Name of the worker; by default host and process id.")
    ] = None,
    health: Annotated[
        bool, typer.Option("--health", help="Serve /livez and /readyz on http.host and http.port.")
    ] = False,
    failpoints: Failpoints = False,
) -> None:
    """Answer the turns of an agent by repeating each message.

    The smallest turn worker; examples/worker.py shows how to write your own.
    """
    settings = read_client_settings(config)
    log_as_set(settings)
    enable_failpoint(is_allowed=failpoints)
    asyncio.run(_echo(settings, agent=agent, slots=slots, think=think, name=name, health=health))


async def _echo(
    settings: "Settings",
    *,
    agent: str,
    slots: int,
    think: timedelta,
    name: str | None,
    health: bool,
) -> None:
    from chatlane.cli.echo_worker import serve
    from chatlane.connections import bus_options
    from chatlane.garbage import collect_rarely
    from chatlane.nats.connection import Bus, open_bus
    from chatlane.nats.tasks import end_task
    from chatlane.observability.health import open_worker_health

    collect_rarely()
    opened: list[Bus] = []

    async def serving() -> None:
        options = bus_options(settings, f"echo worker of {agent}")
        async with open_bus(options) as bus:
            opened.append(bus)
            await serve(
                bus.client,
                agent=agent,
                principal=settings.nats.principal or agent,
                slots=slots,
                think=think,
                name=name,
            )

    # The worker handles signals once it runs. Until then the first process of a container would
    # ignore SIGTERM and wait for its server until someone kills it.
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        if health:
            # Before NATS answers: a worker that waits for it is alive.
            await stack.enter_async_context(
                open_worker_health(
                    lambda: any(bus.is_connected for bus in opened),
                    settings.http.host,
                    settings.http.port,
                )
            )
        served, stopped = asyncio.create_task(serving()), asyncio.create_task(stop.wait())
        await asyncio.wait({served, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if served.done():
            served.result()
        await end_task(served)


def log_as_set(settings: "Settings") -> None:
    """Log to standard error in the format of the settings."""
    log = settings.log
    is_json = log.format == "json" or (log.format == "auto" and not sys.stderr.isatty())
    key = log.digest_key.get_secret_value().encode() if log.digest_key else None
    configure_logging(log.level, json=is_json, digest_key=key)
    log_uncaught()


def enable_failpoint(*, is_allowed: bool) -> None:
    """Enable the failpoint that the environment names, if any.

    Raises:
        SettingsError: The environment names one, and the command line does not allow it.
    """
    from chatlane.config.settings import read_failpoint
    from chatlane.failpoints import enable

    if found := read_failpoint(os.environ, is_allowed=is_allowed):
        enable(*found)
