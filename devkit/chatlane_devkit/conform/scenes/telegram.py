"""The emulated Telegram as a scene."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.telegram import Chat, TelegramServer, open_telegram_server
from chatlane_devkit.platforms.telegram.chats import text_or_caption

_ALBUM = 3


@dataclass(frozen=True, slots=True)
class _Talk:
    """A chat and the person who writes in it."""

    chat: Chat
    person_id: int


class TelegramScene(Scene):
    """A bot of Telegram that polls: private chats, and topics of a forum."""

    platform: ClassVar[str] = "telegram"
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.DELETES: "Telegram tells a bot of deleted messages in business chats only",
    }

    def __init__(self, server: TelegramServer) -> None:
        self._server = server
        bot = server.world.bot
        self.settings = f'own_ids = ["{bot["id"]}"]\nbot_name = "{bot["username"]}"\n'

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_API_URL": self._server.url,
            "CHATLANE_ADAPTER_TOKEN": self._server.token,
            "CHATLANE_ADAPTER_GROUPS": "all",
            "CHATLANE_ADAPTER_PER_CHAT_PER_SECOND": "20",
            "CHATLANE_ADAPTER_PER_GROUP_IN_MINUTE": "1000",
        }

    @override
    async def new_chat(self) -> _Talk:
        chat = self._server.people.private_chat("Ann")
        return _Talk(chat, chat.id)

    @override
    async def new_threads(self) -> tuple[_Talk, int, int]:
        people = self._server.people
        chat, person = people.group("Team", is_forum=True), people.person("Ann")
        first, second = (people.open_topic(chat.id, name, person.id) for name in ("one", "two"))
        return _Talk(chat, person.id), first, second

    @override
    async def write(self, chat: _Talk, text: str, thread: int | None = None) -> int:
        written = self._server.people.write(chat.chat.id, text, chat.person_id, topic=thread)
        message_id: int = written["message_id"]
        return message_id

    @override
    def shown(self, chat: _Talk, thread: int | None = None) -> list[str]:
        return [
            text_or_caption(message) or ""
            for message in chat.chat.from_bot
            if thread is None or _topic_of(message) == thread
        ]

    @override
    def calls(self, chat: _Talk) -> int:
        return len(chat.chat.called_at) - len(chat.chat.actions)

    @override
    def limit(self, chat: _Talk, seconds: float) -> None:
        self._server.faults.limit(seconds, chat_id=chat.chat.id)

    @override
    def block(self, chat: _Talk, *, is_blocked: bool) -> None:
        if is_blocked:
            self._server.people.block(chat.chat.id)
        else:
            chat.chat.refusal = None

    @override
    async def rewrite(self, chat: _Talk, message: int, text: str) -> None:
        self._server.people.edit(chat.chat.id, message, text)

    @override
    async def react(self, chat: _Talk, message: int) -> None:
        self._server.people.react(chat.chat.id, message, ["🎉"])

    @override
    async def send_album(self, chat: _Talk, text: str) -> int:
        return len(self._server.people.album(chat.chat.id, _ALBUM, text))

    @override
    async def write_twice(self, chat: _Talk, text: str) -> None:
        await self.write(chat, text)
        self._server.world.updates.repeat(1)

    @override
    def lose_answers(self, chat: _Talk) -> None:
        self._server.faults.unanswered.add(chat.chat.id)

    @override
    def restore_answers(self, chat: _Talk) -> None:
        self._server.faults.unanswered.discard(chat.chat.id)


def _topic_of(message: dict[str, Any]) -> int | None:
    topic: int | None = message.get("message_thread_id")
    return topic


@asynccontextmanager
async def open_telegram_scene() -> AsyncIterator[TelegramScene]:
    """Run the emulator for the length of the block."""
    async with open_telegram_server(has_privacy=False) as server:
        yield TelegramScene(server)
