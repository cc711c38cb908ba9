"""One homeserver with an account and a person, a router, an adapter and an agent, for all tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncpg
import pytest
from aiohttp import web

from chatlane_adapters.matrix.appservice.registration import Registration
from chatlane_client import Answer, NoReply, Reply, Turn
from chatlane_devkit.platforms.matrix.gate import HomeserverGate
from chatlane_devkit.platforms.matrix.homeserver import (
    SERVER_NAME,
    Account,
    Homeserver,
    open_homeserver,
)
from chatlane_devkit.platforms.matrix.person import Person, open_person, person_of
from chatlane_schemas import Attachment, Button, Part, TextFormat
from chatlane_servers.embedded import free_port, open_nats
from tests.support.eventually import eventually
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database

MARKDOWN: Final = "**bold** and [a link](https://example.org)\n\n| a | b |\n|---|---|\n| 1 | 2 |"
ANSWERS: Final[dict[str, Answer]] = {
    "choose": Reply(
        parts=[
            Part(
                text="Which?",
                buttons=(Button(label="Red", value="red"), Button(label="Blue", value="blue")),
            )
        ]
    ),
    "format": Reply(parts=[Part(text=MARKDOWN, format=TextFormat.MARKDOWN)]),
    "long": " ".join(f"word-{number:05}" for number in range(3000)),
    "nothing": NoReply(),
}


@dataclass
class Agent:
    """An agent that answers as a test needs it.

    Attributes:
        turns: What it was given, in order.
        history: The rows before its last turn.
        file_url: Where the file of an answer is.
        may_end: Set while answers that are shown as they are written may end.
        may_fail: Set while first attempts that are shown as they are written may fail.
    """

    turns: list[Turn] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    file_url: str = ""
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    may_fail: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, turn: Turn) -> Answer:
        self.turns.append(turn)
        self.history = [str(row) for row in await turn.history()]
        word = turn.text.rpartition(" ")[2]
        if word == "write":
            await turn.delta("Once ")
            await turn.delta("upon ")
            await self.may_end.wait()
            return "Once upon a time"
        if word == "try":
            await turn.delta("Once upon " if turn.attempt == 1 else "There was ")
            await (self.may_fail if turn.attempt == 1 else self.may_end).wait()
            if turn.attempt == 1:
                raise RuntimeError
            return "There was a time"
        if word == "show":
            file = Attachment(url=self.file_url, media_type="image/png", name="red.png")
            return Reply(parts=[Part(text="a picture", attachments=(file,))])
        if word in ANSWERS:
            return ANSWERS[word]
        files = [str(file.name) for message in turn.messages for file in message.attachments]
        replied = turn.messages[-1].replied
        about = f" about {replied.text}" if replied is not None else ""
        return " ".join(("heard", *filter(None, (turn.text,)), *files)) + about


@dataclass
class World:
    """What the tests act with.

    Attributes:
        gate: The way of the adapter to the homeserver.
        account: What the homeserver shows to the account of the bot.
    """

    homeserver: Homeserver
    gate: HomeserverGate
    bot: Account
    account: Person
    ann: Person
    bob: Person
    agent: Agent
    stage: AdapterStage
    dsn: str

    async def open_chat(self, *others: Person, **more: object) -> str:
        """Open a room of Ann with the bot, and wait for the bot to join."""
        invited = [self.bot.user_id, *(other.account.user_id for other in others)]
        room_id = await self.ann.open_room(*invited, is_direct=not others, **more)
        for other in others:
            await other.join(room_id)
        await eventually(lambda: self.has_joined(room_id))
        return room_id

    async def has_joined(self, room_id: str) -> bool:
        return self.bot.user_id in await self.ann.members(room_id)

    async def said(self, room_id: str) -> list[str]:
        """Return what the bot says in a room, as Ann sees it."""
        return await self.ann.said(room_id, self.bot.user_id)

    async def waiting_text(self, event_id: str) -> str | None:
        """Return the present text of a message that waits for a running turn."""
        connection = await asyncpg.connect(self.dsn)
        try:
            query = "SELECT content FROM waiting WHERE platform_message_id = $1"
            text: str | None = await connection.fetchval(query, event_id)
        finally:
            await connection.close()
        return text

    def has_heard(self, text: str) -> bool:
        return any(turn.text == text for turn in self.agent.turns)

    @asynccontextmanager
    async def serving_file(self, data: bytes) -> AsyncIterator[None]:
        """Serve the file that the agent answers with."""

        async def serve(_: web.Request) -> web.Response:
            return web.Response(body=data, content_type="image/png")

        application = web.Application()
        application.add_routes([web.get("/red.png", serve)])
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.agent.file_url = f"http://127.0.0.1:{runner.addresses[0][1]}/red.png"
        try:
            yield
        finally:
            await runner.cleanup()


@pytest.fixture(scope="session")
def registration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file by which the homeserver knows the application service."""
    path = tmp_path_factory.mktemp("appservice") / "registration.yaml"
    Registration.new(f"http://127.0.0.1:{free_port()}", SERVER_NAME).save(path)
    return path


@pytest.fixture(scope="session")
async def homeserver(
    registration: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Homeserver]:
    settings = {"app_service_config_files": [str(registration)]}
    async with open_homeserver(tmp_path_factory.mktemp("homeserver"), settings=settings) as server:
        yield server


@pytest.fixture(scope="session")
async def world(
    homeserver: Homeserver,
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("matrix")
    agent = Agent()
    bot = await homeserver.register("bot")
    gate = HomeserverGate(homeserver.url)
    async with (
        gate.opened(),
        open_person(homeserver, "ann") as ann,
        open_person(homeserver, "bob") as bob,
        person_of(homeserver, bot) as account,
        open_database(postgres_server.url, template_database) as name,
        open_nats(directory / "nats") as nats,
        open_adapter_stage(
            directory,
            nats.url,
            dsn := postgres_server.dsn(name),
            platform="matrix",
            variables={
                "homeserver": gate.url,
                "access_token": bot.token,
                "directory": str(directory),
                "media_url": str(directory / "media"),
            },
            answer=agent.answer,
            settings='rooms = "members"\n[platforms.matrix]\ngroup_sessions_per_user = false\n',
        ) as stage,
    ):
        yield World(homeserver, gate, bot, account, ann, bob, agent, stage, dsn)
