"""The emulated Discord, held against two clients that know nothing of chatlane."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import discord
import hikari
import pytest
import yarl
from discord.gateway import DiscordWebSocket

from chatlane_devkit.platforms.discord import Channel, DiscordServer, Person, open_discord
from tests.support.eventually import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@dataclass
class Bot:
    """What a client has seen."""

    texts: list[str | None] = field(default_factory=list)
    direct: list[str | None] = field(default_factory=list)
    reactions: list[str] = field(default_factory=list)

    def see(self, text: str | None, *, is_direct: bool) -> None:
        (self.direct if is_direct else self.texts).append(text)


@asynccontextmanager
async def discord_py(server: DiscordServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bot]:
    bot = Bot()
    monkeypatch.setattr(discord.http.Route, "BASE", server.api_url)
    monkeypatch.setattr(DiscordWebSocket, "DEFAULT_GATEWAY", yarl.URL(server.gateway.url))

    class Client(discord.Client):
        async def on_message(self, message: discord.Message) -> None:
            bot.see(message.content, is_direct=message.guild is None)
            if message.content == "ping":
                # The second one has the nonce of the first.
                for _ in range(2):
                    await message.reply("pong", nonce="a-nonce")

        async def on_raw_reaction_add(self, payload: discord.RawReactionActionEvent) -> None:
            bot.reactions.append(str(payload.emoji))

    intents = discord.Intents.default()
    intents.message_content = True
    client = Client(intents=intents)
    running = asyncio.create_task(client.start(server.token))
    await eventually(client.is_ready)
    try:
        yield bot
    finally:
        await client.close()
        await running


@asynccontextmanager
async def hikari_bot(server: DiscordServer, _: pytest.MonkeyPatch) -> AsyncIterator[Bot]:
    bot = Bot()
    intents = hikari.Intents.ALL_UNPRIVILEGED | hikari.Intents.MESSAGE_CONTENT
    client = hikari.GatewayBot(
        server.token, rest_url=server.api_url, banner=None, intents=intents, logs=None
    )

    @client.listen()
    async def on_message(event: hikari.MessageCreateEvent) -> None:
        bot.see(event.content, is_direct=isinstance(event, hikari.DMMessageCreateEvent))
        if event.content == "ping":
            await event.message.respond("pong", reply=True)

    @client.listen()
    async def on_reaction(event: hikari.ReactionAddEvent) -> None:
        bot.reactions.append(str(event.emoji_name))

    await client.start(check_for_updates=False)
    try:
        yield bot
    finally:
        await client.close()


@pytest.mark.parametrize("open_bot", [discord_py, hikari_bot])
async def test_clients_agree_with_it(
    open_bot: Callable[..., AsyncIterator[Bot]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_discord() as server, open_bot(server, monkeypatch) as bot:  # type: ignore[attr-defined]
        world = server.world
        channel, ann = world.channel(world.guild(), "general"), world.person("Ann")
        ping = world.write(channel, ann, "ping")
        await eventually(lambda: channel.said == ["pong"])
        assert list(channel.messages.values())[-1]["referenced_message"]["id"] == ping["id"]
        world.react(channel, ping, ann, "👍")
        world.write(world.dm(ann), ann, "a secret")
        await eventually(lambda: bot.direct == ["a secret"] and bot.reactions == ["👍"])
        await resumes(server, channel, ann, bot)
        assert channel.said == ["pong"]


async def resumes(server: DiscordServer, channel: Channel, ann: Person, bot: Bot) -> None:
    """Drop the connection, and expect what was written meanwhile once."""
    server.gateway.drop()
    for number in range(3):
        server.world.write(channel, ann, f"meanwhile {number}")
    await eventually(lambda: bot.texts[-1] == "meanwhile 2")
    assert bot.texts == ["ping", "pong", *(f"meanwhile {number}" for number in range(3))]
    assert (server.gateway.identified, server.gateway.resumed) == (1, 1)
