"""An emulated Discord with a guild and a bot, a router, the adapter and an agent, for all tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final

import pytest
from aiohttp import web

from chatlane_client import Answer, Reply, Turn
from chatlane_devkit.platforms.discord import Channel, DiscordServer, Person, open_discord
from chatlane_schemas import Attachment, Button, Part
from chatlane_schemas.content.buttons import TextFormat
from chatlane_servers.embedded import open_nats
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database

_numbers: Final = count(1)
LONG: Final = " ".join(f"word-{number:05}" for number in range(900))
FORMATTED: Final = "**bold** and [a link](https://example.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |"

_ANSWERS: Final[dict[str, Answer]] = {
    "format": Reply(parts=[Part(text=FORMATTED, format=TextFormat.MARKDOWN)]),
    "long": LONG,
}


@dataclass(repr=False)
class Agent:
    """An agent that answers as a test needs it.

    Attributes:
        turns: What it was given, in order.
        recalled: Texts of the history of the last turn that asked for it.
        may_end: Set while answers that are shown as they are written may end.
        may_fail: Set while first attempts that are shown as they are written may fail.
        file_url: File of an answer.
    """

    turns: list[Turn] = field(default_factory=list)
    recalled: list[str | None] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    may_fail: asyncio.Event = field(default_factory=asyncio.Event)
    file_url: str = "https://files.test/1.png"

    async def answer(self, turn: Turn) -> Answer:
        self.turns.append(turn)
        if turn.text.startswith("recall"):
            self.recalled = [entry.content for entry in await turn.history()]
        if (answer := await self._scripted(turn)) is not None:
            return answer
        files = sum(len(message.attachments) for message in turn.messages)
        message = turn.messages[-1]
        # Until the receipt of an answer is stored, chatlane knows it only by the quote.
        answered = message.replied or message.quote
        about = f" about {answered.text}" if answered is not None else ""
        return f"heard {turn.text or f'{files} files'}{about}"

    async def _scripted(self, turn: Turn) -> Answer | None:
        match turn.text:
            case "show":
                photo = Attachment(url=self.file_url, media_type="image/png", name="red.png")
                return Reply(parts=[Part(text="a photo", attachments=(photo,))])
            case "choose":
                buttons = (Button(label="Red", value="red"), Button(label="Blue", value="blue"))
                return Reply(parts=[Part(text="Which?", buttons=buttons)])
            case "ask":
                choice = await turn.ask("Sure?", ["Yes", "No"], within=timedelta(minutes=1))
                return f"you said {choice.value}"
            case "write" | "think":
                if turn.text == "write":
                    await turn.delta("Once ")
                    await turn.delta("upon ")
                await self.may_end.wait()
                return "Once upon a time"
            case "try":
                await turn.delta("Once upon " if turn.attempt == 1 else "There was ")
                await (self.may_fail if turn.attempt == 1 else self.may_end).wait()
                if turn.attempt == 1:
                    raise RuntimeError
                return "There was a time"
            case _:
                return _ANSWERS.get(turn.text)

    def has_heard(self, text: str) -> bool:
        return any(turn.text == text for turn in self.turns)


@dataclass(repr=False)
class World:
    """What the tests act with.

    Attributes:
        server: The emulated Discord.
        agent: The agent.
        stage: The processes.
        guild: A guild of the bot.
        dsn: Of the database.
    """

    server: DiscordServer
    agent: Agent
    stage: AdapterStage
    guild: str
    dsn: str

    def someone(self) -> Person:
        return self.server.world.person(f"Person{next(_numbers)}")

    def dm(self) -> tuple[Channel, Person]:
        person = self.someone()
        return self.server.world.dm(person), person

    def channel(self) -> tuple[Channel, Person]:
        channel = self.server.world.channel(self.guild, f"channel-{next(_numbers)}")
        return channel, self.someone()

    def write(self, channel: Channel, person: Person, text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
        return self.server.world.write(channel, person, text, **more)

    def log(self) -> str:
        return self.stage.adapter.log_path.read_text("utf-8")

    async def until_said(self, channel: Channel, *texts: str) -> None:
        def has_said() -> bool:
            assert channel.said == list(texts)
            return True

        await eventually(has_said)

    async def until_stored(self) -> None:
        """Wait until the adapter has told Discord that everything so far is stored."""
        [session] = self.server.gateway.sessions.values()
        newest = session.sequence
        await eventually(lambda: session.forgotten >= newest)

    @asynccontextmanager
    async def serving_file(self, data: bytes) -> AsyncIterator[str]:
        """Serve a file, and yield its address."""

        async def serve(_: web.Request) -> web.Response:
            return web.Response(body=data, content_type="image/png")

        application = web.Application()
        application.add_routes([web.get("/red.png", serve)])
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/red.png?signature=1"
        finally:
            await runner.cleanup()

    async def until_connected(self) -> None:
        await eventually(lambda: self.server.gateway.is_connected)


@pytest.fixture(scope="session")
async def world(
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("discord")
    agent = Agent()
    async with (
        open_discord() as server,
        open_database(postgres_server.url, template_database) as name,
        open_nats(directory / "nats") as nats,
    ):
        guild = server.world.guild()
        server.gateway.heartbeat_ms = 300
        async with open_adapter_stage(
            directory,
            nats.url,
            dsn := postgres_server.dsn(name),
            platform="discord",
            variables={
                "token": server.token,
                "api_url": server.api_url,
                "log_level": "debug",
                "media_url": str(directory / "media"),
            },
            answer=agent.answer,
        ) as stage:
            its = World(server, agent, stage, guild, dsn)
            await its.until_connected()
            yield its
