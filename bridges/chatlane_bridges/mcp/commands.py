"""The command `chatlane mcp`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from chatlane_bridges.command_errors import exit_without, read_settings, served

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Serve an operator's agent that speaks the Model Context Protocol, over stdin and stdout or "
    "HTTP.\n\nEach option has a variable `CHATLANE_MCP_*` as well.",
)


@app.callback()
def mcp(
    *,
    nats_url: Annotated[
        str | None, typer.Option("--nats", metavar="URL", help="Addresses of NATS.")
    ] = None,
    principal: Annotated[
        str | None, typer.Option(help="Name of this program in NATS.", show_default="mcp")
    ] = None,
    nkey_seed_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Seed of the nkey of the principal.")
    ] = None,
    allow_changes: Annotated[
        bool | None,
        typer.Option("--allow-changes", help="Add tools that change sessions."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Serve over HTTP on this port; 0 takes a free one.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Bearer token of clients over HTTP.")
    ] = None,
) -> None:
    """Serve until the client is gone, or over HTTP until SIGTERM."""
    from chatlane_client.transport.json_logs import configure_logs

    try:
        from chatlane_bridges.mcp.server import serve_http, serve_stdio
    except ModuleNotFoundError as error:
        exit_without("mcp", error)
    from chatlane_bridges.mcp.settings import McpSettings

    given: dict[str, Any] = {
        "nats_url": nats_url,
        "principal": principal,
        "nkey_seed_file": nkey_seed_file,
        "allow_changes": allow_changes,
        "host": host,
        "port": port,
        "token_file": token_file,
    }
    settings = read_settings(McpSettings, given)
    configure_logs(settings.log_level)
    if settings.port is None:
        asyncio.run(serve_stdio(settings))
        return
    with served(settings.host, settings.port):
        asyncio.run(serve_http(settings, typer.echo))
