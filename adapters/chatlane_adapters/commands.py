"""The command `chatlane adapter`, also installed as `chatlane-adapter`.

Each platform is a command. The library of a platform is imported when its command runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from pydantic import ValidationError

from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.runner import run_platforms
from chatlane_adapters.kit.settings import AdapterMediaSettings, AdapterSettings
from chatlane_client.media.store import MediaStoreError
from chatlane_client.transport.json_logs import configure_logs

_WRONG_SETTINGS: Final = 2

SettingsT = TypeVar("SettingsT", bound=AdapterSettings)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Connect an account of a chat platform to chatlane.",
)


@app.callback()
def _options() -> None:
    """Connect an account of a chat platform; settings come from `CHATLANE_ADAPTER_*`."""


@app.command()
def discord() -> None:
    """Serve a Discord bot."""
    from chatlane_adapters.discord.adapter import DiscordAdapter  # noqa: PLC0415 - slow to import
    from chatlane_adapters.discord.settings import DiscordSettings  # noqa: PLC0415

    _run(DiscordSettings, DiscordAdapter)


@app.command()
def matrix() -> None:
    """Serve an account of Matrix."""
    from chatlane_adapters.matrix.adapter import MatrixPlatform  # noqa: PLC0415 - slow to import
    from chatlane_adapters.matrix.settings import MatrixSettings  # noqa: PLC0415

    _run(MatrixSettings, MatrixPlatform)


@app.command("matrix-appservice")
def matrix_appservice() -> None:
    """Serve several accounts of Matrix as an application service of the homeserver."""
    from chatlane_adapters.matrix.appservice.adapter import platforms_of  # noqa: PLC0415 - slow to import
    from chatlane_adapters.matrix.appservice.settings import AppserviceSettings  # noqa: PLC0415

    _run_all(AppserviceSettings, platforms_of)


@app.command("matrix-registration")
def matrix_registration(
    file: Annotated[Path, typer.Argument(help="File to write; it must not exist.")],
    server_name: Annotated[
        str, typer.Option(help="What user ids of the homeserver end with: example.org.")
    ],
    url: Annotated[
        str, typer.Option(help="Address at which the homeserver reaches the adapter.")
    ] = "http://127.0.0.1:8009",
) -> None:
    """Write a registration file with new tokens, for the homeserver and `matrix-appservice`."""
    from chatlane_adapters.matrix.appservice.registration import Registration  # noqa: PLC0415

    try:
        Registration.new(url, server_name).save(file)
    except OSError as error:
        typer.echo(f"{file}: {error.strerror}", err=True)
        raise typer.Exit(_WRONG_SETTINGS) from None


@app.command()
def mail() -> None:
    """Serve a mailbox: mail comes by LMTP and leaves by SMTP."""
    from chatlane_adapters.mail.adapter import MailPlatform  # noqa: PLC0415 - slow to import
    from chatlane_adapters.mail.settings import MailSettings  # noqa: PLC0415

    _run(MailSettings, MailPlatform)


@app.command()
def whatsapp() -> None:
    """Serve a number of WhatsApp Cloud."""
    from chatlane_adapters.whatsapp.adapter import WhatsAppPlatform  # noqa: PLC0415 - slow to import
    from chatlane_adapters.whatsapp.settings import WhatsAppSettings  # noqa: PLC0415

    _run(WhatsAppSettings, WhatsAppPlatform)


@app.command()
def slack() -> None:
    """Serve an app of Slack, in one workspace or several."""
    from chatlane_adapters.slack.adapter import SlackPlatform  # noqa: PLC0415 - slow to import
    from chatlane_adapters.slack.settings import SlackSettings  # noqa: PLC0415

    _run(SlackSettings, SlackPlatform)


@app.command()
def telegram() -> None:
    """Serve a bot of Telegram."""
    from chatlane_adapters.telegram.adapter import TelegramPlatform  # noqa: PLC0415 - slow to import
    from chatlane_adapters.telegram.settings import TelegramSettings  # noqa: PLC0415

    _run(TelegramSettings, TelegramPlatform)


@app.command()
def capabilities() -> None:
    """Show what each platform can do whose library is installed, as a Markdown table."""
    from chatlane_adapters.kit.catalogue import capabilities_table  # noqa: PLC0415 - slow to import

    typer.echo(capabilities_table())


@app.command("delete-files")
def delete_files(
    chat: Annotated[
        str | None, typer.Option(help="Platform's id of the chat whose files are deleted.")
    ] = None,
    older_than_days: Annotated[
        float | None, typer.Option(min=0, help="Delete all files that are older.")
    ] = None,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Keys of files, as attachments name them.")
    ] = None,
) -> None:
    """Delete files of chats from the store that `CHATLANE_ADAPTER_MEDIA_URL` names.

    The chat is one of the account that `CHATLANE_ADAPTER_PLATFORM` and `CHATLANE_ADAPTER_ACCOUNT`
    name.
    """
    from chatlane_adapters.kit.media_deletion import deleted_files  # noqa: PLC0415 - slow to import

    try:
        count = asyncio.run(deleted_files(keys or [], chat, older_than_days))
    except MediaStoreError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_WRONG_SETTINGS) from None
    except ValidationError as error:
        raise _wrong_settings(error) from None
    typer.echo(f"deleted: {count}")


def _run(read: Callable[[], SettingsT], open_platform: Callable[[SettingsT], Platform]) -> None:
    """Serve an account until SIGTERM."""
    _run_all(read, lambda settings: [(open_platform(settings), settings)])


def _run_all(
    read: Callable[[], SettingsT],
    open_platforms: Callable[[SettingsT], Sequence[tuple[Platform, AdapterSettings]]],
) -> None:
    """Serve accounts until SIGTERM; say what is wrong with settings that cannot be read."""
    try:
        settings = read()
        AdapterMediaSettings()
    except ValidationError as error:
        raise _wrong_settings(error) from None
    configure_logs(settings.log_level)
    try:
        asyncio.run(run_platforms(open_platforms(settings)))
    except MediaStoreError as error:
        typer.echo(f"CHATLANE_ADAPTER_MEDIA_URL: {error}", err=True)
        raise typer.Exit(_WRONG_SETTINGS) from None


def _wrong_settings(error: ValidationError) -> typer.Exit:
    """Print each setting that cannot be read, and return how the command ends."""
    prefix = (
        "chatlane_adapter_media" if error.title == "AdapterMediaSettings" else "chatlane_adapter"
    )
    for problem in error.errors():
        name = "_".join((prefix, *map(str, problem["loc"]))).upper()
        typer.echo(f"{name}: {problem['msg']}", err=True)
    return typer.Exit(_WRONG_SETTINGS)


def main() -> None:
    """Run `chatlane-adapter`."""
    app()
