"""All commands in one place, in the order in which a newcomer meets them."""

from typing import Annotated

import typer

from chatlane.cli import (
    admin,
    chat,
    dead_letters,
    embedded,
    explaining,
    importing,
    people,
    reading,
    serving,
    sessions,
)
from chatlane.cli.reporting import ReportingGroup

app = typer.Typer(
    cls=ReportingGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Routes chat messages to AI agents: NATS JetStream is the log, Postgres decides.\n\n"
    "New here? `chatlane demo` shows everything in a minute, on servers of its own.",
)

_TRY = "Try it (servers included)"
_RUN = "Run it"
_LOOK = "Look inside"

app.command("demo", rich_help_panel=_TRY)(embedded.demo)
app.command("dev", rich_help_panel=_TRY)(embedded.dev)
app.command("chat", rich_help_panel=_TRY)(chat.chat)
app.command("router", rich_help_panel=_RUN)(serving.router)
app.command("echo-worker", rich_help_panel=_RUN)(serving.echo_worker)
app.add_typer(admin.app, name="admin", rich_help_panel=_RUN)
app.add_typer(people.app, name="people", rich_help_panel=_RUN)
app.add_typer(importing.app, name="import", rich_help_panel=_RUN)
app.add_typer(sessions.app, name="sessions", rich_help_panel=_LOOK)
# Short for `sessions show`.
app.command("session", hidden=True)(sessions.show)
app.command("explain", rich_help_panel=_LOOK)(explaining.explain)
app.command("dead", rich_help_panel=_LOOK)(reading.dead)
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
