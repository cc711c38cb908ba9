"""`chatlane import`: import conversations of other systems."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chatlane.cli.shared.audit import audited
from chatlane.cli.shared.error_report import WRONG_SETTINGS, CommandError
from chatlane.cli.shared.options import AsJson, Config, read_settings
from chatlane.domain.prompts.sanitize import json_line

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from chatlane.config.settings import Settings
    from chatlane.importer.importer import Report

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Import conversations of another system.",
)


@app.callback()
def _commands() -> None:
    """Make the system a subcommand although there is only one."""


@app.command()
def hermes(
    home: Annotated[
        Path,
        typer.Argument(
            metavar="[HOME]",
            help="Directory with `state.db`, `sessions.json` or `<id>.jsonl` files.",
        ),
    ] = Path("~/.hermes"),
    config: Config = None,
    *,
    account: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PLATFORM=ACCOUNT",
            help="Account to import to; needed where a platform has several accounts.",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Profile to import to; by default that of each session."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Time zone of its files; by default that of this machine."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import the conversations of a Hermes gateway.

    Reads its files and changes none; the gateway may be running. A second import adds what is
    new. Exits with 1 where a file is damaged, after it has imported the rest.
    """
    settings = read_settings(config)
    accounts = dict(map(_account, account or ()))
    _check_declared(settings, accounts)
    zone = None if timezone is None else _zone(timezone)
    report = asyncio.run(
        _imported(settings, home.expanduser(), accounts=accounts, profile=profile, zone=zone)
    )
    if as_json:
        _print_json(report)
    else:
        _print_report(report)
    if damaged := report.omitted.damaged():
        raise CommandError(f"damaged: {', '.join(damaged)}; what was readable is imported")
    if not report.done.total() and report.omitted.counts:
        raise CommandError("nothing was imported; the report lists the reasons")


def _check_declared(settings: "Settings", accounts: dict[str, str]) -> None:
    """Check the accounts of the command line.

    Raises:
        CommandError: chatlane.toml does not declare one of them.
    """
    catalog = settings.catalog()
    for platform, name in accounts.items():
        if catalog.find_account(platform, name) is None:
            raise CommandError(
                f"account {name!r} of platform {platform!r} is not declared: "
                f"add [platforms.{platform}.accounts.{name}] to chatlane.toml",
                exit_code=WRONG_SETTINGS,
            )


def _account(text: str) -> tuple[str, str]:
    platform, equals, account = text.partition("=")
    if not (platform and equals and account):
        raise typer.BadParameter(f"{text}: write --account PLATFORM=ACCOUNT")
    return platform, account


def _zone(name: str) -> "ZoneInfo":
    from zoneinfo import ZoneInfo

    from chatlane.config.setting_values import known_zone

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

    from chatlane.connections import store_of
    from chatlane.importer.hermes_files import open_home
    from chatlane.importer.importer import Adoption, Report
    from chatlane.postgres.migrations import verify_schema

    catalog = settings.catalog()
    report = Report()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # On standard error, because a program may read the report on standard output.
    bar = Progress(*columns, console=Console(stderr=True))
    with open_home(home, zone, report.omitted) as opened:
        async with store_of(settings) as store:
            async with store.transaction() as connection:
                await verify_schema(connection)
            adoption = Adoption(opened, store, catalog, report, accounts=accounts, profile=profile)
            async with audited(store, "import") as details:
                with bar:
                    task = bar.add_task("sessions", total=None)
                    await adoption.run(
                        lambda done, total: bar.update(task, completed=done, total=total)
                    )
                details["imported"] = dict(report.done)
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
    summary = json.dumps({"imported": done, "left_out": omitted}, ensure_ascii=False)
    typer.echo(json_line(summary))


def _print_report(report: "Report") -> None:
    from chatlane.cli.shared.terminal import open_console, plain

    console = open_console()
    done = {what: count for what, count in sorted(report.done.items()) if count}
    for what, count in done.items():
        console.print(f"{count:>8,} {what}")
    if not done:
        console.print("nothing new to import")
    if not report.omitted.counts:
        return
    console.print("\nLeft out:")
    for omission, count in report.omitted.counts.most_common():
        examples = ", ".join(report.omitted.examples[omission])
        line = f"{count:>8,} {omission.what}: {omission.reason} (such as {examples})"
        console.print(plain(line), soft_wrap=True)
