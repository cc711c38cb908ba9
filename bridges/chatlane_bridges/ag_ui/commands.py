"""The command `chatlane ag-ui`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from chatlane_bridges.command_errors import (
    WRONG_SETTINGS,
    exit_without,
    read_settings,
    report,
    served,
)

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Serve front ends that speak AG-UI.\n\n"
    "Settings come from `CHATLANE_AG_UI_*`, agents and keys from a file.",
)


@app.callback()
def ag_ui(
    *,
    file: Annotated[
        Path | None,
        typer.Option(help="TOML file with agents and keys.", show_default="ag-ui.toml"),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8094")
    ] = None,
) -> None:
    """Serve until SIGTERM; say what is wrong with settings that cannot be read."""
    from chatlane_client.transport.json_logs import configure_logs

    try:
        from chatlane_bridges.ag_ui.application import create_app
        from chatlane_bridges.http.server import serve
    except ModuleNotFoundError as error:
        exit_without("ag-ui", error)
    from chatlane_bridges.ag_ui.settings import AgUiSettings
    from chatlane_bridges.http.declared_agents import AgentDeclarations
    from chatlane_bridges.http.settings import read_file

    given: dict[str, Any] = {"file": file, "host": host, "port": port}
    settings = read_settings(AgUiSettings, given)
    try:
        declared = read_file(settings.file, AgentDeclarations)
    except ValidationError as error:
        report(error)
        raise typer.Exit(WRONG_SETTINGS) from None
    except (OSError, ValueError) as error:
        typer.echo(f"the file with agents and keys cannot be read: {error}", err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
    configure_logs(settings.log_level)
    with served(settings.host, settings.port):
        app = create_app(settings, declared)
        asyncio.run(serve(app, settings, typer.echo, "ag-ui: {}/agents"))
