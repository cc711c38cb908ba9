"""The command `chatlane conform`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Judge whether programs keep to what chatlane needs of them.",
)


@app.callback()
def _options() -> None:
    """Judge whether programs keep to what chatlane needs of them."""


@app.command()
def adapter(
    *,
    command: Annotated[
        str, typer.Option("--cmd", metavar="COMMAND", help="Command line that starts the adapter.")
    ],
    platform: Annotated[
        str, typer.Option(help="What the adapter talks to.", show_default=True)
    ] = "scripted",
    check: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these checks; repeat it.")
    ] = None,
    nats_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="NATS of a router that runs; without, one is started."),
    ] = None,
    account: Annotated[str, typer.Option(help="Its account of the platform.")] = "judged",
    agent: Annotated[
        str, typer.Option(help="Agent of that account, without a worker of its own.")
    ] = "main",
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that a check waits for what should happen.")
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Judge an adapter in any language against a router and a scripted platform.

    Each check is passed, failed with what to fix, or skipped with a reason. Exits with 0 only if
    no check failed. docs/writing-an-adapter.md describes the platform and the environment of the
    adapter.
    """
    from chatlane_devkit.conform.command_run import (  # noqa: PLC0415 - slow to import
        Order,
        run_adapter,
    )

    order = Order(
        command=command,
        checks=tuple(check or ()),
        nats_url=nats_url,
        account=account,
        agent=agent,
        patience=patience,
        is_json=json,
    )
    raise typer.Exit(asyncio.run(run_adapter(order, platform, _logs())))


@app.command()
def worker(
    *,
    command: Annotated[
        str, typer.Option("--cmd", metavar="COMMAND", help="Command line that starts the worker.")
    ],
    check: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these checks; repeat it.")
    ] = None,
    nats_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="NATS of a router that runs; without, one is started."),
    ] = None,
    account: Annotated[
        str, typer.Option(help="Declared account of the platform `conform`.")
    ] = "judged",
    agent: Annotated[str, typer.Option(help="Its agent, without another worker.")] = "main",
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that a check waits for what should happen.")
    ] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Judge a turn worker in any language against a router, people, and kills.

    Each check is passed, or failed with what to fix. Exits with 0 only if no check failed.
    docs/writing-a-worker.md lists what the checks write and what the worker does then.
    """
    from chatlane_devkit.conform.command_run import (  # noqa: PLC0415 - slow to import
        Order,
        run_worker,
    )

    order = Order(
        command=command,
        checks=tuple(check or ()),
        nats_url=nats_url,
        account=account,
        agent=agent,
        patience=patience,
        is_json=json,
    )
    raise typer.Exit(asyncio.run(run_worker(order, _logs())))


def _logs() -> Path:
    logs = Path("var/conform")
    logs.mkdir(parents=True, exist_ok=True)
    return logs
