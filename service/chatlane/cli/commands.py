"""Register all commands in the order in which `chatlane --help` lists them."""

from importlib.metadata import entry_points
from typing import Annotated

import typer

from chatlane.cli import (
    admin,
    chat,
    check,
    dead_letters,
    explain,
    imports,
    people,
    serve,
    smoke,
    transcripts,
)
from chatlane.cli.sessions import commands as session_commands
from chatlane.cli.shared.error_report import ReportingGroup

app = typer.Typer(
    cls=ReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Route chat messages to AI agents over NATS JetStream and Postgres.",
)

_COMMANDS_GROUP = "chatlane.commands"
_TRY = "Try it"
_RUN = "Run it"
_LOOK = "Look inside"

# Packages add commands by entry points: chatlane-devkit adds `demo` and `dev`, chatlane-adapters the
# group `adapter`.
for _entry_point in sorted(entry_points(group=_COMMANDS_GROUP), key=lambda found: found.name):
    _command = _entry_point.load()
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_entry_point.name, rich_help_panel=_RUN)
    else:
        app.command(_entry_point.name, rich_help_panel=_TRY)(_command)
app.command("chat", rich_help_panel=_TRY)(chat.chat)
app.command("router", rich_help_panel=_RUN)(serve.router)
app.command("echo-worker", rich_help_panel=_RUN)(serve.echo_worker)
app.command("smoke", rich_help_panel=_RUN)(smoke.smoke)
app.command("check", rich_help_panel=_RUN)(check.check)
app.add_typer(admin.app, name="admin", rich_help_panel=_RUN)
app.add_typer(people.app, name="people", rich_help_panel=_RUN)
app.add_typer(imports.app, name="import", rich_help_panel=_RUN)
app.add_typer(session_commands.app, name="sessions", rich_help_panel=_LOOK)
app.add_typer(transcripts.app, name="transcripts", rich_help_panel=_LOOK)
app.command("explain", rich_help_panel=_LOOK)(explain.explain)
app.add_typer(dead_letters.app, name="dead-letters", rich_help_panel=_LOOK)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - called by typer
    if wanted:
        from importlib.metadata import version

        typer.echo(f"chatlane {version('chatlane')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    del version
