"""`chatlane import`: import conversations of other systems."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.sessions.filters import person_named
from chatlane.cli.shared.audit import audited
from chatlane.cli.shared.error_report import WRONG_SETTINGS, CommandError
from chatlane.cli.shared.options import AsJson, Config, read_settings
from chatlane.cli.shared.terminal import one_line
from chatlane.domain.prompts.sanitize import json_line
from chatlane_schemas.session_api.people import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from zoneinfo import ZoneInfo

    from rich.progress import Progress

    from chatlane.config.settings import Settings
    from chatlane.importer.exports.adoption import Destination
    from chatlane.importer.exports.conversation import Conversation
    from chatlane.importer.records import Omissions, Report
    from chatlane.postgres.pool import Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Import conversations of another system. Needs the database; routers may run.",
)

_MOST_NAMED: Final = 5

ExportFile = Annotated[Path, typer.Argument(metavar="FILE", help="File of the export.")]
ForProfile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Profile to import to.")
]
ForPerson = Annotated[
    Person | None,
    typer.Option(
        "--person",
        parser=person_named,
        metavar="PLATFORM/ACCOUNT/ID",
        help="Person who owns the conversations and sees them; by default only operators do.",
    ),
]
Continued = Annotated[
    bool,
    typer.Option(
        "--continue",
        help="Leave the conversations open, so that they can go on; by default they are read only.",
    ),
]


@app.command("claude-code")
def claude_code(
    directory: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIRECTORY]",
            help="Directory of projects; by default that of Claude Code for this user.",
        ),
    ] = None,
    config: Config = None,
    *,
    person: ForPerson = None,
    profile: ForProfile = None,
    is_continued: Continued = False,
    as_json: AsJson = False,
) -> None:
    """Import sessions of Claude Code.

    Reads its files and changes none. A second import adds what is new. Exits with 1 where a file is
    damaged, after it has imported the rest.
    """
    from chatlane.importer.exports.claude_code import conversations, default_directory

    chosen = default_directory() if directory is None else directory.expanduser()
    _import_export(
        config,
        lambda omissions: conversations(chosen, omissions),
        person=person,
        profile=profile,
        is_continued=is_continued,
        as_json=as_json,
    )


@app.command()
def chatgpt(
    file: ExportFile,
    config: Config = None,
    *,
    person: ForPerson = None,
    profile: ForProfile = None,
    is_continued: Continued = False,
    as_json: AsJson = False,
) -> None:
    """Import an export of ChatGPT: `conversations.json`, or the archive that holds it.

    The branch of a conversation that was shown last becomes the session. A second import adds what
    is new. Exits with 1 where the file is damaged, after it has imported the rest.
    """
    from chatlane.importer.exports.chatgpt import conversations

    _import_export(
        config,
        lambda omissions: conversations(file.expanduser(), omissions),
        person=person,
        profile=profile,
        is_continued=is_continued,
        as_json=as_json,
    )


@app.command("open-webui")
def open_webui(
    file: ExportFile,
    config: Config = None,
    *,
    person: ForPerson = None,
    profile: ForProfile = None,
    is_continued: Continued = False,
    as_json: AsJson = False,
) -> None:
    """Import an export of Open WebUI: a JSON file of all chats, or of one.

    The branch of a chat that was shown last becomes the session. A second import adds what is new.
    Exits with 1 where the file is damaged, after it has imported the rest.
    """
    from chatlane.importer.exports.open_webui import conversations

    _import_export(
        config,
        lambda omissions: conversations(file.expanduser(), omissions),
        person=person,
        profile=profile,
        is_continued=is_continued,
        as_json=as_json,
    )


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
    _finish(report, as_json=as_json)


def _finish(report: "Report", *, as_json: bool) -> None:
    """Print the report of an import.

    Raises:
        CommandError: A file is damaged, or nothing could be imported.
    """
    if as_json:
        _print_json(report)
    else:
        _print_report(report)
    if damaged := report.omitted.damaged():
        more = len(damaged) - _MOST_NAMED
        names = [one_line(name) for name in damaged[:_MOST_NAMED]]
        named = ", ".join(names) + (f" and {more} more" if more > 0 else "")
        raise CommandError(f"damaged: {named}; what was readable is imported")
    if not report.done.total() and report.omitted.counts:
        raise CommandError("nothing was imported; the report lists the reasons")


def _import_export(
    config: Path | None,
    read: "Callable[[Omissions], Iterable[Conversation]]",
    *,
    person: Person | None,
    profile: str | None,
    is_continued: bool,
    as_json: bool,
) -> None:
    """Import the conversations that another program wrote, and print the report."""
    settings = read_settings(config)
    report = asyncio.run(
        _adopted(settings, read, person=person, profile=profile, is_continued=is_continued)
    )
    _finish(report, as_json=as_json)


async def _adopted(
    settings: "Settings",
    read: "Callable[[Omissions], Iterable[Conversation]]",
    *,
    person: Person | None,
    profile: str | None,
    is_continued: bool,
) -> "Report":
    from chatlane.importer.exports.adoption import ExportAdoption
    from chatlane.importer.records import Report

    report = Report()
    async with _opened(settings) as store:
        destination = await _destination(settings, store, person, profile)
        destination = destination._replace(is_continued=is_continued)
        adoption = ExportAdoption(store, report, destination)
        async with audited(store, "import") as details:
            with _progress_bar() as bar:
                task = bar.add_task("sessions", total=None)
                await adoption.run(
                    read(report.omitted), lambda done: bar.update(task, completed=done)
                )
            details["imported"] = dict(report.done)
    return report


async def _destination(
    settings: "Settings", store: "Store", person: Person | None, profile: str | None
) -> "Destination":
    """Return where the conversations of an import go.

    Raises:
        CommandError: chatlane.toml has no such profile, or the id is that of no person.
    """
    from chatlane.domain.catalog import canonical_profile
    from chatlane.importer.exports.adoption import Destination
    from chatlane.store.addressing import identities

    name, catalog = canonical_profile(profile), settings.catalog()
    agent = catalog.profiles.get(name)
    if agent is None:
        raise CommandError(
            f"profile {name!r} is not declared in chatlane.toml", exit_code=WRONG_SETTINGS
        )
    if person is None:
        return Destination(name, agent)
    async with store.transaction() as connection:
        identity = await identities.find(connection, person)
    if identity is None:
        raise CommandError("--person: names no person", exit_code=WRONG_SETTINGS)
    return Destination(name, agent, identity.owner)


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
    from chatlane.importer.hermes_files import open_home
    from chatlane.importer.importer import Adoption
    from chatlane.importer.records import Report

    catalog = settings.catalog()
    report = Report()
    with open_home(home, zone, report.omitted) as opened:
        async with _opened(settings) as store:
            adoption = Adoption(opened, store, catalog, report, accounts=accounts, profile=profile)
            async with audited(store, "import") as details:
                with _progress_bar() as bar:
                    task = bar.add_task("sessions", total=None)
                    await adoption.run(
                        lambda done, total: bar.update(task, completed=done, total=total)
                    )
                details["imported"] = dict(report.done)
    return report


@asynccontextmanager
async def _opened(settings: "Settings") -> "AsyncIterator[Store]":
    """Open the database, whose schema must be that of this release."""
    from chatlane.connections import store_of
    from chatlane.postgres.migrations import verify_schema

    async with store_of(settings) as store:
        async with store.transaction() as connection:
            await verify_schema(connection)
        yield store


def _progress_bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    # On standard error, because a program may read the report on standard output.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


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
    done = {kind: count for kind, count in sorted(report.done.items()) if count}
    for kind, count in done.items():
        console.print(f"{count:>8,} {kind}")
    if not done:
        console.print("nothing new to import")
    if not report.omitted.counts:
        return
    console.print("\nLeft out:")
    for omission, count in report.omitted.counts.most_common():
        examples = ", ".join(report.omitted.examples[omission])
        line = f"{count:>8,} {omission.what}: {omission.reason} (such as {examples})"
        console.print(plain(line), soft_wrap=True)
