"""The command `chatlane acp`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from chatlane_bridges.command_errors import WRONG_SETTINGS, exit_without, read_settings

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Serve an editor that speaks the Agent Client Protocol over stdin and stdout.",
)


@app.callback()
def acp(
    *,
    nats_url: Annotated[
        str | None, typer.Option("--nats", metavar="URL", help="Addresses of NATS.")
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(help="Name of this program in NATS.", show_default="editor"),
    ] = None,
    nkey_seed_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Seed of the nkey of the principal.")
    ] = None,
    credentials_file: Annotated[
        Path | None, typer.Option("--creds-file", metavar="FILE", help="A `.creds` file.")
    ] = None,
    tls_ca_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificates that NATS is checked against.")
    ] = None,
    person: Annotated[
        str | None,
        typer.Option("--as", metavar="ID", help="Your id.", show_default="user of the system"),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(help="Platform on which you have this id.", show_default="acp"),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(help="Account that you talk to there.", show_default="the principal"),
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Profile of new sessions.")] = None,
    options_file: Annotated[
        Path | None,
        typer.Option("--options", metavar="FILE", help="TOML file with models, modes and options."),
    ] = None,
) -> None:
    """Serve an editor; each option has a variable `CHATLANE_ACP_*` as well."""
    try:
        from chatlane_bridges.acp.bridge import serve
    except ModuleNotFoundError as error:
        exit_without("acp", error)
    from chatlane_bridges.acp.settings import EditorSettings, read_options

    given: dict[str, Any] = {
        "nats_url": nats_url,
        "principal": principal,
        "nkey_seed_file": nkey_seed_file,
        "credentials_file": credentials_file,
        "tls_ca_file": tls_ca_file,
        "person": person,
        "platform": platform,
        "account": account,
        "profile": profile,
        "options_file": options_file,
    }
    settings = read_settings(EditorSettings, given)
    try:
        offered = read_options(settings.options_file)
    except (OSError, ValueError) as error:
        typer.echo(f"the file with options cannot be read: {error}", err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
    asyncio.run(serve(settings, offered))
