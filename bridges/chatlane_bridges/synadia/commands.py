"""The commands `chatlane synadia worker` and `chatlane synadia offer`."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from chatlane_bridges.command_errors import WRONG_SETTINGS, exit_without, read_settings, report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Agents on NATS that speak the Synadia Agent Protocol: let one answer, or offer yours.\n\n"
    "Each option has a variable `CHATLANE_SYNADIA_*` as well.",
)


@app.command()
def worker(
    *,
    agent: Annotated[str | None, typer.Option(help="Agent of chatlane to serve.")] = None,
    host: Annotated[str | None, typer.Option(help="Type of the agent on NATS.")] = None,
    owner: Annotated[str | None, typer.Option(help="Its owner.")] = None,
    session: Annotated[
        str | None, typer.Option(help="Its session.", show_default="{session}")
    ] = None,
    session_key: Annotated[
        str | None, typer.Option(help="Key of the only conversation that it answers.")
    ] = None,
    forgets: Annotated[
        bool | None, typer.Option("--forgets", help="Send the history with each prompt.")
    ] = None,
) -> None:
    """Let an agent on NATS answer the turns of an agent of chatlane."""
    from chatlane_client.transport.json_logs import configure_logs

    try:
        from chatlane_bridges.synadia.worker import serve_turns
    except ModuleNotFoundError as error:
        exit_without("synadia", error)
    from chatlane_bridges.synadia.settings import WorkerSettings

    given: dict[str, Any] = {
        "agent": agent,
        "host": host,
        "owner": owner,
        "session": session,
        "session_key": session_key,
        "forgets": forgets,
    }
    settings = read_settings(WorkerSettings, given)
    configure_logs(settings.log_level)
    try:
        asyncio.run(serve_turns(settings))
    except (OSError, ValueError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(WRONG_SETTINGS) from None


@app.command()
def offer(
    *,
    file: Annotated[
        Path | None, typer.Option(help="TOML file with the agents.", show_default="synadia.toml")
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="Owner of the agents.", show_default="chatlane")
    ] = None,
) -> None:
    """Offer agents of chatlane on NATS until SIGTERM."""
    from chatlane_client.transport.json_logs import configure_logs

    try:
        from chatlane_bridges.synadia.offer import offer_agents
        from chatlane_client.media.store import MediaStoreError
    except ModuleNotFoundError as error:
        exit_without("synadia", error)
    from chatlane_bridges.synadia.settings import OfferSettings, read_declarations

    settings = read_settings(OfferSettings, {"file": file, "owner": owner})
    try:
        declared = read_declarations(settings.file)
    except ValidationError as error:
        report(error)
        raise typer.Exit(WRONG_SETTINGS) from None
    except (OSError, ValueError) as error:
        typer.echo(f"the file with the agents cannot be read: {error}", err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
    configure_logs(settings.log_level)
    try:
        asyncio.run(offer_agents(settings, declared, typer.echo))
    except MediaStoreError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(WRONG_SETTINGS) from None
