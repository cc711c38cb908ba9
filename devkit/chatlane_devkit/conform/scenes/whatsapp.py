"""The emulated WhatsApp Cloud as a scene."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import count
from typing import ClassVar

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.whatsapp.server import (
    APP_SECRET,
    NUMBER,
    TOKEN,
    VERIFY_TOKEN,
    Person,
    WhatsAppServer,
    open_whatsapp_server,
)
from chatlane_servers.embedded import free_port

_TOO_MANY = 131056
_UNREACHABLE = 131026
# The platform names no time; one message in six seconds is allowed.
_PAIR_PAUSE = 6.0


class WhatsAppScene(Scene):
    """A number of a business, whose requests come to each process."""

    platform: ClassVar[str] = "whatsapp"
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.THREADS: "a person has one chat with a number",
        Ability.ALBUMS: "each file is a message; there are no albums",
    }

    def __init__(self, server: WhatsAppServer) -> None:
        self._server = server
        self._ports = (free_port(), free_port())
        server.webhooks = [f"http://127.0.0.1:{port}/whatsapp" for port in self._ports]
        self._numbers = count(4900)

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_API_URL": self._server.url,
            "CHATLANE_ADAPTER_PHONE_NUMBER_ID": NUMBER,
            "CHATLANE_ADAPTER_ACCESS_TOKEN": TOKEN,
            "CHATLANE_ADAPTER_APP_SECRET": APP_SECRET,
            "CHATLANE_ADAPTER_VERIFY_TOKEN": VERIFY_TOKEN,
            "CHATLANE_ADAPTER_LISTEN_PORT": str(self._ports[0]),
        }

    @override
    def variables_of_second(self) -> dict[str, str]:
        return {"CHATLANE_ADAPTER_LISTEN_PORT": str(self._ports[1])}

    @override
    async def new_chat(self) -> Person:
        return self._server.person(str(next(self._numbers)))

    @override
    async def write(self, chat: Person, text: str, thread: None = None) -> str:
        return self._server.say(chat, text)

    @override
    def shown(self, chat: Person, thread: None = None) -> list[str]:
        return chat.texts

    @override
    def calls(self, chat: Person) -> int:
        return chat.calls

    @override
    def limit(self, chat: Person, seconds: float) -> None:
        chat.refuse(_TOO_MANY, min(seconds, _PAIR_PAUSE))

    @override
    def block(self, chat: Person, *, is_blocked: bool) -> None:
        chat.refuse(_UNREACHABLE, float("inf") if is_blocked else 0.0)

    @override
    async def rewrite(self, chat: Person, message: str, text: str) -> None:
        content = {"type": "text", "text": {"body": text}}
        edit = {"original_message_id": message, "message": content}
        self._server.write(chat, type="edit", edit=edit)

    @override
    async def remove(self, chat: Person, message: str) -> None:
        self._server.write(chat, type="revoke", revoke={"original_message_id": message})

    @override
    async def react(self, chat: Person, message: str) -> None:
        reaction = {"message_id": message, "emoji": "🎉"}
        self._server.write(chat, type="reaction", reaction=reaction)

    @override
    async def write_twice(self, chat: Person, text: str) -> None:
        self._server.say(chat, text, times=2)

    @override
    def lose_answers(self, chat: Person) -> None:
        chat.answers.clear()

    @override
    def restore_answers(self, chat: Person) -> None:
        chat.answers.set()


@asynccontextmanager
async def open_whatsapp_scene() -> AsyncIterator[WhatsAppScene]:
    """Run a WhatsApp for the length of the block."""
    async with open_whatsapp_server() as server:
        yield WhatsAppScene(server)
