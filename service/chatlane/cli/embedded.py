"""Commands that bring their own servers; they need the extra `dev`."""

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from chatlane.cli.reporting import CommandError


def demo(
    report: Annotated[
        Path, typer.Option("--report", metavar="FILE", help="Where the JSON report goes.")
    ] = Path("var/demo-report.json"),
    *,
    speed: Annotated[
        float, typer.Option(min=1, help="Events a second.", show_default=True)
    ] = 110.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the logs even when all is well.")
    ] = False,
) -> None:
    """Play a day of chat on real servers, kill what can be killed, and check the outcome.

    Starts nats-server, Postgres, two routers, two workers and a subscriber on free ports, and
    stops all of them at the end. Exits with 0 only if every accepted message was answered once
    and in order. Takes less than a minute.
    """
    module = _dev_module("chatlane.dev.demo")
    raise typer.Exit(module.main(report=report, lines_per_second=speed, is_kept=keep))


def dev() -> None:
    """Keep the servers and programs of the demo running, with a live log.

    Prints where everything is and what to try; meanwhile `chatlane chat` and
    `chatlane sessions` in the same directory find it by themselves. Ctrl-C stops it.
    """
    raise typer.Exit(_dev_module("chatlane.dev.live").main())


def _dev_module(name: str) -> ModuleType:
    """Import a module of the embedded servers.

    Raises:
        CommandError: The extra is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as exc:
        if exc.name is not None and exc.name.startswith("chatlane"):
            raise
        raise CommandError(
            f"this command needs {exc.name}, which comes with the extra `dev`: "
            "install chatlane[dev]"
        ) from exc
