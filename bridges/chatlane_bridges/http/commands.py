"""The command of a bridge that serves HTTP."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from chatlane_bridges.command_errors import (
    WRONG_SETTINGS,
    exit_without,
    read_settings,
    report,
    served,
)

if TYPE_CHECKING:
    from fastapi import FastAPI

    from chatlane_bridges.http.settings import HttpSettings

SettingsT = TypeVar("SettingsT", bound="HttpSettings")
DeclaredT = TypeVar("DeclaredT", bound=BaseModel)


@dataclass(frozen=True)
class Bridge(Generic[SettingsT, DeclaredT]):
    """A bridge whose packages are installed.

    Attributes:
        settings: Its settings, read from variables and options.
        declared: The content of its file.
        create_app: Returns the application.
        shown: How its address is shown, with `{}` for the address.
    """

    settings: type[SettingsT]
    declared: type[DeclaredT]
    create_app: Callable[[SettingsT, DeclaredT], "FastAPI"]
    shown: str


def http_command(
    name: str,
    purpose: str,
    *,
    content: str,
    port: int,
    load: Callable[[], Bridge[Any, Any]],
) -> typer.Typer:
    """Return the command that serves a bridge until SIGTERM.

    Args:
        name: Of the command, of the extra with its packages, and of its file.
        purpose: First sentence of its help.
        content: What the file declares, such as `agents and keys`.
        port: The port without a setting.
        load: Imports the bridge; raises ModuleNotFoundError if packages are missing.
    """
    variables = f"CHATLANE_{name.replace('-', '_').upper()}_*"
    app = typer.Typer(
        invoke_without_command=True,
        no_args_is_help=False,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        help=f"{purpose}\n\nSettings come from `{variables}`, {content} from a file.",
    )

    @app.callback()
    def command(
        *,
        file: Annotated[
            Path | None,
            typer.Option(help=f"TOML file with {content}.", show_default=f"{name}.toml"),
        ] = None,
        host: Annotated[
            str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
        ] = None,
        port: Annotated[
            int | None, typer.Option(help="Port; 0 takes a free one.", show_default=str(port))
        ] = None,
    ) -> None:
        """Serve until SIGTERM; say what is wrong with settings that cannot be read."""
        from chatlane_client.transport.json_logs import configure_logs

        try:
            bridge = load()
            from chatlane_bridges.http.server import serve
        except ModuleNotFoundError as error:
            exit_without(name, error)
        from chatlane_bridges.http.settings import read_file

        settings = read_settings(bridge.settings, {"file": file, "host": host, "port": port})
        try:
            declared = read_file(settings.file, bridge.declared)
        except ValidationError as error:
            report(error)
            raise typer.Exit(WRONG_SETTINGS) from None
        except (OSError, ValueError) as error:
            typer.echo(f"the file with {content} cannot be read: {error}", err=True)
            raise typer.Exit(WRONG_SETTINGS) from None
        configure_logs(settings.log_level)
        with served(settings.host, settings.port):
            served_app = bridge.create_app(settings, declared)
            asyncio.run(serve(served_app, settings, typer.echo, bridge.shown))

    return app
