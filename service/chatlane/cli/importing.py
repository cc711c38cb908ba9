"""Commands that take over what another system has kept."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chatlane.cli.auditing import audited
from chatlane.cli.options import AsJson, Config, read_settings
from chatlane.domain.inert import json_line

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from chatlane.adoption.adopting import Report
    from chatlane.settings import Settings

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Take over conversations that another system has kept.",
)


@app.callback()
def _commands() -> None:
    """Keep the name of the system a word of its own while there is only one."""


@app.command()
def hermes(
    home: Annotated[
        Path,
        typer.Argument(
            metavar="[HOME]",
            help="Its directory, with `state.db`, `sessions.json` or `<id>.jsonl` files.",
        ),
    ] = Path("~/.hermes"),
    config: Config = None,
    *,
    account: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLATFORM=ACCOUNT",
            help="Which declared account it was; needed where a platform has several.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Profile that goes on with all of it; else as it was."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="Zone its machine was in; else that of this machine."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take over the conversations of a Hermes gateway.

    Its files are only read, and it may be running. Doing it again adds what is new.
    """
    settings = read_settings(config)
    accounts = dict(map(_account, account or ()))
    zone = None if timezone is None else _zone(timezone)
    report = asyncio.run(
        _imported(settings, home.expanduser(), accounts=accounts, profile=profile, zone=zone)
    )
    if as_json:
        _print_json(report)
    else:
        _print_report(report)


def _account(text: str) -> tuple[str, str]:
    platform, equals, account = text.partition("=")
    if not (platform and equals and account):
        raise typer.BadParameter(f"{text}: write --account PLATFORM=ACCOUNT")
    return platform, account


def _zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo

    from chatlane.setting_values import known_zone

    try:
        return ZoneInfo(known_zone(name))
    except ValueError as exc:
        raise typer.BadParameter(f"{name}: {exc}") from exc


async def _imported(
    settings: "Settings",
    home: Path,
    *,
    accounts: dict[str, str],
    profile: str | None,
    zone: "ZoneInfo | None",
) -> "Report":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from chatlane.adoption.adopting import Adoption, Report
    from chatlane.adoption.home import open_home
    from chatlane.store.migrations import verify_schema
    from chatlane.surroundings import store_of

    catalog = settings.catalog()
    report = Report()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # On standard error: what is printed at the end may be read by a program.
    bar = Progress(*columns, console=Console(stderr=True))
    with open_home(home, zone, report.omitted) as opened:
        async with store_of(settings) as store:
            async with store.transaction() as connection:
                await verify_schema(connection)
            adoption = Adoption(opened, store, catalog, report, accounts=accounts, profile=profile)
            async with audited(store, "import") as told:
                with bar:
                    task = bar.add_task("sessions", total=None)
                    await adoption.run(
                        lambda done, total: bar.update(task, completed=done, total=total)
                    )
                told["imported"] = dict(report.done)
    return report


def _print_json(report: "Report") -> None:
    import json

    omitted = [
        {
            "what": omission.what,
            "reason": omission.reason,
            "count": count,
            "examples": report.omitted.examples[omission],
        }
        for omission, count in report.omitted.counts.most_common()
    ]
    done = dict(sorted(report.done.items()))
    told = json.dumps({"imported": done, "left_out": omitted}, ensure_ascii=False)
    typer.echo(json_line(told))


def _print_report(report: "Report") -> None:
    from chatlane.cli.terminal import open_console, plain, table

    console = open_console()
    done = {what: count for what, count in sorted(report.done.items()) if count}
    for what, count in done.items():
        console.print(f"{count:>8,} {what}")
    if not done:
        console.print("there was nothing to import")
    if not report.omitted.counts:
        return
    console.print("\nLeft out:")
    shown = table("count", "what", "why", "such as")
    for omission, count in report.omitted.counts.most_common():
        examples = ", ".join(report.omitted.examples[omission])
        shown.add_row(f"{count:,}", omission.what, plain(omission.reason), plain(examples))
    console.print(shown)
