"""All commands, in the order in which `chatlane --help` lists them."""

from typing import Annotated, Final

import typer

from chatlane.cli.shared.error_report import ReportingGroup
from chatlane.cli.shared.lazy_commands import LazyCommands

_COMMANDS_GROUP: Final = "chatlane.commands"
_TRY: Final = "Try it"
_RUN: Final = "Run it"
_LOOK: Final = "Look inside"

# Packages add commands by entry points: chatlane-devkit adds `demo` and `dev`, chatlane-adapters the
# group `adapter`.
_OWN: Final = {
    "chat": ("chatlane.cli.chat:chat", _TRY),
    "router": ("chatlane.cli.serve:router", _RUN),
    "echo-worker": ("chatlane.cli.serve:echo_worker", _RUN),
    "smoke": ("chatlane.cli.smoke:smoke", _RUN),
    "check": ("chatlane.cli.check:check", _RUN),
    "admin": ("chatlane.cli.admin:app", _RUN),
    "people": ("chatlane.cli.people:app", _RUN),
    "import": ("chatlane.cli.imports:app", _RUN),
    "sessions": ("chatlane.cli.sessions.commands:app", _LOOK),
    "transcripts": ("chatlane.cli.transcripts:app", _LOOK),
    "explain": ("chatlane.cli.explain:explain", _LOOK),
    "dead-letters": ("chatlane.cli.dead_letters:app", _LOOK),
}


class _Commands(ReportingGroup):
    """All commands; each is imported when it is used."""

    def __init__(self, **options: object) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self.commands = LazyCommands(_OWN, _COMMANDS_GROUP, panels=(_RUN, _TRY))


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Route chat messages to AI agents over NATS JetStream and Postgres.",
)


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
