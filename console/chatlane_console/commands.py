"""The command `chatlane console`."""

import asyncio
from typing import Annotated, Final

import typer
from pydantic import ValidationError

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Serve the HTTP API of conversations, and the console that uses it.\n\n"
    "Settings come from `CHATLANE_CONSOLE_*`.",
)

_WRONG_SETTINGS: Final = 2
_NO_ADDRESS: Final = 1


@app.callback()
def console(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.", show_default="8090")
    ] = None,
) -> None:
    """Serve until SIGTERM; say what is wrong with settings that cannot be read."""
    from chatlane_client.transport.json_logs import configure_logs
    from chatlane_console.server import serve
    from chatlane_console.settings import ConsoleSettings

    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    try:
        settings = ConsoleSettings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        for problem in error.errors():
            name = "_".join(("chatlane_console", *map(str, problem["loc"]))).upper()
            typer.echo(f"{name}: {problem['msg']}", err=True)
        raise typer.Exit(_WRONG_SETTINGS) from None
    configure_logs(settings.log_level)
    try:
        asyncio.run(serve(settings, typer.echo))
    except OSError as error:
        typer.echo(f"cannot listen on {settings.host}:{settings.port}: {error.strerror}", err=True)
        raise typer.Exit(_NO_ADDRESS) from None
