"""The command `chatlane bot`."""

import asyncio
import os
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")

app = typer.Typer(
    invoke_without_command=True,
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Run a whole bot on this machine: servers, router, adapter and a language model.\n\n"
    "Without options it runs the bot that ran last under its name.",
)


class Printed(StrEnum):
    """What `--print` prints."""

    COMPOSE = "compose"
    HELM = "helm"


def _name(text: str) -> str:
    """Return the name of a bot, which is the name of its folder.

    Raises:
        typer.BadParameter: It cannot be one.
    """
    if not _NAME.fullmatch(text):
        raise typer.BadParameter("write 1 to 64 letters, digits, _ and -")
    return text


_NAME_OPTION: Final = typer.Option(
    "--name", parser=_name, metavar="NAME", help="Name of the bot; each has its own data."
)
Name = Annotated[str, _NAME_OPTION]
OtherName = Annotated[str | None, _NAME_OPTION]
DataPath = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIRECTORY",
        help="Where its data are.",
        show_default="~/.local/share/chatlane/NAME",
    ),
]


@app.callback()
def bot(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", metavar="FILE", help="A bot.toml.")
    ] = None,
    telegram: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Token of a Telegram bot.")
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(
            help="Another platform; its settings are in bot.toml.", show_default="terminal"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="PROVIDER:MODEL", help="Such as openai:gpt-5 or ollama:llama3.2."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Endpoint that speaks the provider's protocol."),
    ] = None,
    instructions: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the bot is to be.")
    ] = None,
    print_as: Annotated[
        Printed | None,
        typer.Option("--print", help="Print what runs on real servers, and exit."),
    ] = None,
    chat: Annotated[
        bool,
        typer.Option("--chat/--no-chat", help="Talk here, if the platform is `terminal`."),
    ] = True,
    name: Name = "bot",
    data: DataPath = None,
) -> None:
    """Run a whole bot on this machine."""
    context.obj = (name, data)
    if context.invoked_subcommand is not None:
        return
    changes = _changes(telegram, platform, model, base_url, instructions)
    directory = _directory(name, data)
    bot_config = _config(directory.bot_toml, config, changes)
    if print_as is not None:
        from chatlane_bot.printing import compose_of, helm_values_of

        printed = compose_of if print_as is Printed.COMPOSE else helm_values_of
        typer.echo(printed(bot_config), nl=False)
        return
    from chatlane_bot.bot_run import run_bot

    with directory.locked():
        asyncio.run(run_bot(directory, bot_config, _tell, chats=chat))


@app.command()
def backup(
    context: typer.Context,
    file: Annotated[Path, typer.Argument()],
    *,
    name: OtherName = None,
    data: DataPath = None,
) -> None:
    """Write all data of a bot into a file, also while it runs."""
    from chatlane_bot.backup import back_up

    typer.echo(back_up(_named_directory(context, name, data), file))


@app.command()
def restore(
    context: typer.Context,
    file: Annotated[Path, typer.Argument()],
    *,
    name: OtherName = None,
    data: DataPath = None,
) -> None:
    """Put the data of a backup into the empty directory of a bot."""
    from chatlane_bot.backup import restore as put_back

    typer.echo(put_back(_named_directory(context, name, data), file))


@app.command()
def worker(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="A bot.toml; by default its text is in the variable BOT_TOML.",
        ),
    ] = None,
    *,
    health: Annotated[
        bool, typer.Option("--health", help="Serve /livez and /readyz on http.host and http.port.")
    ] = False,
) -> None:
    """Run the language-model worker alone; NATS comes from the settings of chatlane.

    Secret values `$(NAME)` in BOT_TOML are read from the files NAME in CHATLANE_SECRETS_DIR.
    """
    from chatlane_bot.bot_config import BOT_VARIABLE, bot_config_of_text, read_bot_config
    from chatlane_bot.model_worker import serve
    from chatlane_bot.secret_values import with_secret_files

    if config is not None:
        bot_config = read_bot_config(config)
    elif directory := os.environ.get("CHATLANE_SECRETS_DIR"):
        text = os.environ.get(BOT_VARIABLE, "")
        bot_config = bot_config_of_text(
            text, lambda tables: with_secret_files(tables, Path(directory))
        )
    else:
        bot_config = bot_config_of_text(os.environ.get(BOT_VARIABLE, ""))
    asyncio.run(serve(bot_config, os.environ, has_health=health))


def _named_directory(context: typer.Context, name: str | None, data: Path | None) -> Any:  # noqa: ANN401 - imported when it is needed
    """Return the directory that options name, before the subcommand or after it."""
    name_before, data_before = context.obj
    return _directory(name or name_before, data or (None if name else data_before))


def _directory(name: str, data: Path | None) -> Any:  # noqa: ANN401 - imported when it is needed
    from chatlane_bot.data_directory import DataDirectory, default_directory

    return DataDirectory(data.absolute() if data is not None else default_directory(name))


def _changes(
    telegram: str | None,
    platform: str | None,
    model: str | None,
    base_url: str | None,
    instructions: str | None,
) -> dict[str, Any]:
    """Return options as tables of a bot.toml."""
    changes: dict[str, Any] = {}
    if telegram is not None:
        changes |= {"platform": "telegram", "adapter": {"token": telegram}}
    if platform is not None:
        changes["platform"] = platform
    if instructions is not None:
        changes["instructions"] = instructions
    named = {"name": model, "base_url": base_url}
    if given := {key: value for key, value in named.items() if value is not None}:
        changes["model"] = given
    return changes


def _config(known: Path, file: Path | None, changes: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return what the bot is: of the file, else of its last run; options replace values."""
    from chatlane_bot.bot_config import bot_config_of, read_bot_config

    if file is None and not known.exists():
        return bot_config_of(changes)
    return read_bot_config(file or known, changes)


def _tell(text: str) -> None:
    # Standard output is the chat.
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
