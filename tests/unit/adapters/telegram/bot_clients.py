"""Two libraries behind one interface, so that one test drives the emulator with both."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from os import environ
from typing import Any, Final

import telegram
import telegram.error
from aiogram import Bot, exceptions
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import TelegramMethod
from aiogram.types import BotCommand, BufferedInputFile, InputMediaPhoto, MessageEntity
from aiogram.types import InlineKeyboardButton as Button
from aiogram.types import InlineKeyboardMarkup as Keyboard
from aiogram.types import ReactionTypeEmoji as Emoji
from aiogram.types import ReplyParameters as Reply
from telegram.request import HTTPXRequest
from typing_extensions import override

from chatlane_devkit.platforms.telegram import TelegramServer

# Else the library warns of a change to come each time that it is asked to wait.
environ["PTB_TIMEDELTA"] = "true"
ALL_UPDATES: Final = telegram.Update.ALL_TYPES


@dataclass
class Failed(Exception):  # noqa: N818 - what the platform said
    """The platform refuses a call, or its answer got lost; one library writes capital letters."""

    kind: str
    text: str = ""
    retry_after: float | None = None
    migrate_to: int | None = None


class BotClient(ABC):
    """The calls that the tests make; results are in the form of the Bot API."""

    @abstractmethod
    async def do(self, method: str, **fields: Any) -> Any:  # noqa: ANN401 - of any method
        """Call a method of the library by the name that it has in Python."""

    @abstractmethod
    async def download(self, file_id: str) -> bytes:
        """Return the bytes of a file."""

    @abstractmethod
    def entity(self, **fields: Any) -> Any:  # noqa: ANN401 - of the library
        """Return an entity of a text."""

    @abstractmethod
    def keyboard(self, label: str, value: str) -> Any:  # noqa: ANN401 - of the library
        """Return a keyboard with a button."""

    @abstractmethod
    def reply(self, message_id: int, *, anyway: bool = False) -> Any:  # noqa: ANN401 - of the library
        """Return what a message replies to."""

    @abstractmethod
    def upload(self, content: bytes, name: str) -> Any:  # noqa: ANN401 - of the library
        """Return a file to send."""

    @abstractmethod
    def photos(self, contents: list[bytes], caption: str) -> list[Any]:
        """Return the photos of an album."""

    @abstractmethod
    def command(self, name: str, about: str) -> Any:  # noqa: ANN401 - of the library
        """Return an entry of the menu."""

    @abstractmethod
    def emoji(self, emoji: str) -> Any:  # noqa: ANN401 - of the library
        """Return a reaction."""

    @abstractmethod
    async def close(self) -> None:
        """Close connections."""


class Aiogram(BotClient):
    """The library of our adapter."""

    def __init__(self, server: TelegramServer) -> None:
        api = TelegramAPIServer.from_base(server.url)
        self._bot = Bot(server.token, session=AiohttpSession(api=api, timeout=10))

    @override
    async def do(self, method: str, **fields: Any) -> Any:
        try:
            result = await getattr(self._bot, method)(**fields)
        except exceptions.TelegramRetryAfter as error:
            raise Failed("RetryAfter", retry_after=error.retry_after) from error
        except exceptions.TelegramMigrateToChat as error:
            raise Failed("Migrated", migrate_to=error.migrate_to_chat_id) from error
        except exceptions.TelegramNetworkError as error:
            raise Failed("Network") from error
        except exceptions.TelegramAPIError as error:
            kind = type(error).__name__.removeprefix("Telegram").removesuffix("Error")
            raise Failed(kind, error.message.lower()) from error
        return _plain(result)

    @override
    async def download(self, file_id: str) -> bytes:
        stream = await self._bot.download(file_id)
        assert stream is not None
        return stream.read()

    @override
    def entity(self, **fields: Any) -> Any:
        return MessageEntity(**fields)

    @override
    def keyboard(self, label: str, value: str) -> Any:
        return Keyboard(inline_keyboard=[[Button(text=label, callback_data=value)]])

    @override
    def reply(self, message_id: int, *, anyway: bool = False) -> Any:
        return Reply(message_id=message_id, allow_sending_without_reply=anyway)

    @override
    def upload(self, content: bytes, name: str) -> Any:
        return BufferedInputFile(content, name)

    @override
    def photos(self, contents: list[bytes], caption: str) -> list[Any]:
        files = [BufferedInputFile(content, "photo.png") for content in contents]
        return [
            InputMediaPhoto(media=file, caption=None if place else caption)
            for place, file in enumerate(files)
        ]

    @override
    def command(self, name: str, about: str) -> Any:
        return BotCommand(command=name, description=about)

    @override
    def emoji(self, emoji: str) -> Any:
        return Emoji(emoji=emoji)

    @override
    async def close(self) -> None:
        session = self._bot.session
        assert isinstance(session, AiohttpSession)
        # Not `session.close()`: that waits a quarter of a second.
        if session._session is not None:
            await session._session.close()


class PythonTelegramBot(BotClient):
    """The other library."""

    def __init__(self, server: TelegramServer) -> None:
        # The certificates of an HTTPS server take half a second to load.
        waits: Any = {
            "read_timeout": 10,
            "connection_pool_size": 8,
            "httpx_kwargs": {"verify": False},
        }
        self._bot = telegram.Bot(
            server.token,
            base_url=f"{server.url}/bot",
            base_file_url=f"{server.url}/file/bot",
            request=HTTPXRequest(**waits),
            get_updates_request=HTTPXRequest(**waits),
        )

    @override
    async def do(self, method: str, **fields: Any) -> Any:
        try:
            result = await getattr(self._bot, method)(**fields)
        except telegram.error.RetryAfter as error:
            raise Failed("RetryAfter", retry_after=error._retry_after.total_seconds()) from error
        except telegram.error.ChatMigrated as error:
            raise Failed("Migrated", migrate_to=error.new_chat_id) from error
        except telegram.error.BadRequest as error:
            raise Failed("BadRequest", error.message.lower()) from error
        except telegram.error.InvalidToken as error:
            raise Failed("Unauthorized") from error
        except telegram.error.TelegramError as error:
            kind = type(error).__name__.removesuffix("Error")
            kind = "Server" if "Bad Gateway" in error.message else kind
            raise Failed(kind, error.message.lower()) from error
        return _plain(result)

    @override
    async def download(self, file_id: str) -> bytes:
        file = await self._bot.get_file(file_id)
        return bytes(await file.download_as_bytearray())

    @override
    def entity(self, **fields: Any) -> Any:
        return telegram.MessageEntity(**fields)

    @override
    def keyboard(self, label: str, value: str) -> Any:
        button = telegram.InlineKeyboardButton(label, callback_data=value)
        return telegram.InlineKeyboardMarkup([[button]])

    @override
    def reply(self, message_id: int, *, anyway: bool = False) -> Any:
        return telegram.ReplyParameters(message_id, allow_sending_without_reply=anyway)

    @override
    def upload(self, content: bytes, name: str) -> Any:
        return telegram.InputFile(content, filename=name)

    @override
    def photos(self, contents: list[bytes], caption: str) -> list[Any]:
        return [
            telegram.InputMediaPhoto(content, caption=None if place else caption)
            for place, content in enumerate(contents)
        ]

    @override
    def command(self, name: str, about: str) -> Any:
        return telegram.BotCommand(name, about)

    @override
    def emoji(self, emoji: str) -> Any:
        return telegram.ReactionTypeEmoji(emoji)

    @override
    async def close(self) -> None:
        for request in self._bot._request:
            await request.shutdown()


def _plain(result: Any) -> Any:  # noqa: ANN401 - of the libraries
    """Return a result as the Bot API had it."""
    match result:
        case list() | tuple():
            return [_plain(it) for it in result]
        case telegram.TelegramObject():
            return result.to_dict()
        case TelegramMethod() | bool() | int() | str() | None:
            return result
        case _:
            return result.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
