"""The commands that the devkit adds to `chatlane`: `demo`, `dev` and `emulate`.

`chatlane` finds them by the entry points of the group `chatlane.commands`.
"""

from pathlib import Path
from typing import Annotated

import typer

from chatlane_devkit.demo.sabotage import Sabotage


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
    sabotage: Annotated[
        Sabotage | None,
        typer.Option(help="Break a promise on one answer: the verdict must find it."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the faults and the verdict as SVG.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Start a console for a browser, and wait for Enter.")
    ] = False,
) -> None:
    """Play a day of chat on real servers, kill what can be killed, and check the outcome.

    Starts nats-server, Postgres, two routers, two workers and a subscriber on free ports, and
    stops all of them at the end. A simple bot without chatlane gets the same messages and kills. Exits with 0 only if every accepted message was answered once
    and in order. Takes less than a minute.
    """
    from chatlane_devkit.demo.demo_run import main

    raise typer.Exit(
        main(
            report=report,
            lines_per_second=speed,
            is_kept=keep,
            picture=picture,
            sabotage=sabotage,
            is_watched=watch,
        )
    )


def dev(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="Use agents, platforms and limits of this chatlane.toml.",
        ),
    ] = None,
    *,
    no_workers: Annotated[
        bool, typer.Option("--no-workers", help="Start no echo workers: your own ones answer.")
    ] = False,
    telegram_emulator: Annotated[
        bool,
        typer.Option(
            "--telegram-emulator",
            help="Start the adapter for Telegram on an emulated Bot API, and chat there from this "
            "terminal; the log goes to files.",
        ),
    ] = False,
) -> None:
    """Run embedded servers and routers with a live log, until Ctrl-C.

    Prints the addresses and what to try. `chatlane chat` and `chatlane sessions` in the same
    directory find it by themselves. One can run per directory.
    """
    from chatlane_devkit.dev.server import main

    raise typer.Exit(main(config, has_workers=not no_workers, has_telegram=telegram_emulator))


def emulate(
    config: Annotated[
        Path,
        typer.Option("--config", "-c", metavar="FILE", help="The bot.toml that is written."),
    ] = Path("emulated.toml"),
) -> None:
    """Emulate Telegram and a language model for a bot, until Ctrl-D.

    `chatlane bot --config FILE` in another terminal starts a bot on both, without an account and
    without a key. What you type here is written to it by Ann, in her private chat. The bot may be
    killed and started again meanwhile.
    """
    from chatlane_devkit.dev.emulation import main

    raise typer.Exit(main(config))
