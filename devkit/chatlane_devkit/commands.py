"""The commands that the devkit adds to `chatlane`: `demo` and `dev`.

`chatlane` finds them by the entry points of the group `chatlane.commands`.
"""

from pathlib import Path
from typing import Annotated

import typer


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
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the faults and the verdict as SVG.")
    ] = None,
) -> None:
    """Play a day of chat on real servers, kill what can be killed, and check the outcome.

    Starts nats-server, Postgres, two routers, two workers and a subscriber on free ports, and
    stops all of them at the end. Exits with 0 only if every accepted message was answered once
    and in order. Takes less than a minute.
    """
    from chatlane_devkit.demo.demo_run import main

    raise typer.Exit(main(report=report, lines_per_second=speed, is_kept=keep, picture=picture))


def dev() -> None:
    """Keep the servers and programs of the demo running, with a live log.

    Prints where everything is and what to try; meanwhile `chatlane chat` and
    `chatlane sessions` in the same directory find it by themselves. Ctrl-C stops it.
    """
    from chatlane_devkit.demo.dev_server import main

    raise typer.Exit(main())
