"""The scripted platform as a scene."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import ClassVar
from uuid import uuid4

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Scene
from chatlane_devkit.platforms.scripted.chats import Chat, Message
from chatlane_devkit.platforms.scripted.server import ChatServer, open_chat_server


class ScriptedScene(Scene):
    """The made-up platform of `docs/writing-an-adapter.md`: it can do all that is judged."""

    platform: ClassVar[str] = "scripted"

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        # A router that judged before has the messages of that run.
        self._name = uuid4().hex[:8]
        self._numbers = count(1)

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "NATS_URL": nats_url,
            "PLATFORM": self.platform,
            "ACCOUNT": account,
            "CHAT_URL": self._server.url,
        }

    @override
    async def new_chat(self, kind: str = "dm") -> Chat:
        return self._server.chat(f"{self._name}-{next(self._numbers)}", kind)

    @override
    async def new_threads(self) -> tuple[Chat, str, str]:
        return await self.new_chat("forum"), "7", "8"

    @override
    async def write(self, chat: Chat, text: str, thread: str | None = None) -> Message:
        return self._server.write(chat, text, topic=thread)

    @override
    def shown(self, chat: Chat, thread: str | None = None) -> list[str]:
        ours = [it for it in chat.shown.values() if it.sender == "bot"]
        return [it.text or "" for it in ours if thread is None or it.topic == thread]

    @override
    def calls(self, chat: Chat) -> int:
        return chat.calls

    @override
    def limit(self, chat: Chat, seconds: float) -> None:
        self._server.limit(chat, seconds)

    @override
    def block(self, chat: Chat, *, is_blocked: bool) -> None:
        chat.is_blocked = is_blocked

    @override
    async def rewrite(self, chat: Chat, message: Message, text: str) -> None:
        self._server.rewrite(chat, message, text)

    @override
    async def remove(self, chat: Chat, message: Message) -> None:
        self._server.remove(chat, message)

    @override
    async def react(self, chat: Chat, message: Message) -> None:
        self._server.react(chat, message, "🎉")

    @override
    async def send_album(self, chat: Chat, text: str) -> int:
        for number in range(3):
            photo = [f"https://files.test/{number}.png"]
            self._server.write(chat, None if number else text, photos=photo, album=text)
        return 3

    @override
    async def write_twice(self, chat: Chat, text: str) -> None:
        self._server.write(chat, text)
        self._server.repeat(1)

    @override
    def lose_answers(self, chat: Chat) -> None:
        chat.answers.clear()

    @override
    def restore_answers(self, chat: Chat) -> None:
        chat.answers.set()


@asynccontextmanager
async def open_scripted_scene() -> AsyncIterator[ScriptedScene]:
    """Run the scripted platform for the length of the block."""
    async with open_chat_server() as server:
        yield ScriptedScene(server)
