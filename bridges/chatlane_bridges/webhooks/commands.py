"""The command `chatlane webhooks`."""

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
)

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Send events of the service to HTTPS addresses, with signatures of Standard Webhooks.\n\n"
    "Settings come from `CHATLANE_WEBHOOKS_*`, endpoints from a file.",
)


@app.callback()
def webhooks(
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with endpoints, or a folder with several.",
            show_default="webhooks.toml",
        ),
    ] = None,
) -> None:
    """Send until SIGTERM; say what is wrong with settings that cannot be read."""
    from chatlane_client.transport.json_logs import configure_logs

    try:
        from chatlane_bridges.webhooks.service import serve
    except ModuleNotFoundError as error:
        exit_without("webhooks", error)
    from chatlane_bridges.webhooks.settings import WebhookSettings, read_declarations

    given: dict[str, Any] = {"file": file}
    settings = read_settings(WebhookSettings, given)
    try:
        declared = read_declarations(settings.file)
        for endpoint in declared.endpoints.values():
            endpoint.keys()
    except ValidationError as error:
        report(error)
        raise typer.Exit(WRONG_SETTINGS) from None
    except (OSError, ValueError) as error:
        typer.echo(f"the file with endpoints, or a secret, cannot be used: {error}", err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
    configure_logs(settings.log_level)
    asyncio.run(serve(settings, declared, typer.echo))
