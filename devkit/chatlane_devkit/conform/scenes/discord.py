"""The emulated Discord as a scene."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar, Final

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.discord import Channel, DiscordServer, Person, open_discord

# The person takes no messages of the bot.
_BLOCKED: Final = (403, 50007)


@dataclass(frozen=True, slots=True)
class _Talk:
    """A channel and the person who writes in it."""

    channel: Channel
    person: Person


class DiscordScene(Scene):
    """A bot of Discord: direct messages, and threads of a channel."""

    platform: ClassVar[str] = "discord"
    is_idempotent: ClassVar[bool] = True
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.ALBUMS: "a message of Discord has all its files; there are no albums",
    }

    def __init__(self, server: DiscordServer) -> None:
        self._server = server
        # The judge writes faster than people do.
        server.faults.keeps_rates = False
        bot = server.world.bot
        self.settings = f'own_ids = ["{bot.id}"]\nbot_name = "{bot.name}"\n'

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_API_URL": self._server.api_url,
            "CHATLANE_ADAPTER_TOKEN": self._server.token,
        }

    @property
    @override
    def has_adapter(self) -> bool:
        return bool(self._server.gateway.sessions)

    @override
    async def new_chat(self) -> _Talk:
        person = self._server.world.person("Ann")
        return _Talk(self._server.world.dm(person), person)

    @override
    async def new_threads(self) -> tuple[_Talk, str, str]:
        world = self._server.world
        person = world.person("Ann")
        channel = world.channel(world.guild(), "team")
        first, second = (world.thread(channel, name, person).id for name in ("one", "two"))
        return _Talk(channel, person), first, second

    @override
    async def write(self, chat: _Talk, text: str, thread: str | None = None) -> dict[str, Any]:
        place = self._place(chat, thread)
        return self._server.world.write(place, chat.person, text, to_bot=place.guild_id is not None)

    @override
    def shown(self, chat: _Talk, thread: str | None = None) -> list[str]:
        return self._place(chat, thread).said

    def _place(self, chat: _Talk, thread: str | None) -> Channel:
        return chat.channel if thread is None else self._server.world.channels[thread]

    @override
    def calls(self, chat: _Talk) -> int:
        return len(chat.channel.called_at)

    @override
    def limit(self, chat: _Talk, seconds: float) -> None:
        chat.channel.limited_until = monotonic() + seconds

    @override
    def block(self, chat: _Talk, *, is_blocked: bool) -> None:
        chat.channel.refusal = _BLOCKED if is_blocked else None

    @override
    async def rewrite(self, chat: _Talk, message: dict[str, Any], text: str) -> None:
        self._server.world.rewrite(chat.channel, message, text)

    @override
    async def remove(self, chat: _Talk, message: dict[str, Any]) -> None:
        self._server.world.remove(chat.channel, message)

    @override
    async def react(self, chat: _Talk, message: dict[str, Any]) -> None:
        self._server.world.react(chat.channel, message, chat.person, "🎉")

    @override
    async def write_twice(self, chat: _Talk, text: str) -> None:
        self._server.world.tell_again(chat.channel, await self.write(chat, text))

    @override
    def lose_answers(self, chat: _Talk) -> None:
        chat.channel.answers.clear()

    @override
    def restore_answers(self, chat: _Talk) -> None:
        chat.channel.answers.set()


@asynccontextmanager
async def open_discord_scene() -> AsyncIterator[DiscordScene]:
    """Run the emulator for the length of the block."""
    async with open_discord() as server:
        yield DiscordScene(server)
