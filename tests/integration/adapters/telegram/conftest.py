"""An emulated Telegram, a router, the adapter as a process and an agent, for all tests."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import pytest

from chatlane_client import Answer, NoReply, Reply, Turn
from chatlane_devkit.platforms.telegram import Chat, TelegramServer, open_telegram_server
from chatlane_schemas import Attachment, Button, Part, TextFormat
from chatlane_servers.embedded import open_nats
from tests.support.platforms.adapter_stage import AdapterStage, open_adapter_stage
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database

MARKDOWN: Final = "**bold** 🙂 [link](https://e.test/)\n\n```python\nprint(1)\n```"
LONG: Final = " ".join(f"word-{number:05}" for number in range(1000)) + " 🙂" * 52


@dataclass
class Agent:
    """An agent that answers as a test needs it.

    Attributes:
        turns: What it was given, in order.
        may_end: Set while answers that are shown as they are written may end.
        outcome: The answer that is shown as it is written.
    """

    turns: list[Turn] = field(default_factory=list)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Answer = "Once upon a time"

    async def answer(self, turn: Turn) -> Answer:  # noqa: PLR0911 - one word, one answer
        self.turns.append(turn)
        match (turn.text or "").rpartition(" ")[2]:
            case "show":
                file = Attachment(url="https://files.test/1.png", media_type="image/png")
                return Reply(parts=[Part(text="a photo", attachments=(file,))])
            case "choose":
                buttons = (Button(label="Red", value="red"), Button(label="Blue", value="blue"))
                return Reply(parts=[Part(text="Which?", buttons=buttons)])
            case "ask":
                choice = await turn.ask("Sure?", ["Yes", "No"], within=timedelta(minutes=1))
                return f"you said {choice.value}"
            case "format":
                return Reply(parts=[Part(text=MARKDOWN, format=TextFormat.MARKDOWN)])
            case "tell":
                return LONG
            case "nothing":
                return NoReply()
            case "write":
                await turn.delta("Once ")
                await turn.delta("upon ")
                await self.may_end.wait()
                return self.outcome
            case _:
                pass
        last = turn.messages[-1]
        kinds = [file.kind for message in turn.messages for file in message.attachments]
        # A reply that comes before the receipt of the answer has a quote only.
        answered = last.replied or last.quote
        about = "" if answered is None else f" about {answered.text}"
        return f"heard {turn.text or ' '.join(map(str, kinds))}{about}"

    @property
    def heard(self) -> list[str | None]:
        """Return the texts of its turns, in order."""
        return [turn.text for turn in self.turns]


@dataclass
class World:
    """What the tests act with."""

    telegram: TelegramServer
    agent: Agent
    stage: AdapterStage

    def new_chat(self) -> Chat:
        """Return the private chat of another person."""
        return self.telegram.people.private_chat("Ann")

    def write(
        self,
        chat: Chat,
        text: str,
        person: int | None = None,
        **more: Any,  # noqa: ANN401 - of a message
    ) -> dict[str, Any]:
        """Let a person write a message."""
        return self.telegram.people.write(chat.id, text, person, **more)

    def is_confirmed(self) -> bool:
        """Return whether the bot has confirmed every update."""
        return self.telegram.world.updates.confirmed >= self.telegram.world.updates.newest


@pytest.fixture(scope="session")
async def world(
    postgres_server: RunningPostgres,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("telegram")
    agent = Agent()
    async with (
        # With privacy mode off, so that the adapter has to tell what is meant for it.
        open_telegram_server(has_privacy=False) as telegram,
        open_database(postgres_server.url, template_database) as name,
        open_nats(directory / "nats") as nats,
        open_adapter_stage(
            directory,
            nats.url,
            postgres_server.dsn(name),
            platform="telegram",
            variables={
                "api_url": telegram.url,
                "token": telegram.token,
                "media_url": str(directory / "media"),
                "voice_command": '["sh", "-c", "wc -c < $0"]',
                "per_chat_per_second": "20",
                "per_group_in_minute": "1000",
            },
            answer=agent.answer,
            settings=(
                f'own_ids = ["{telegram.world.bot["id"]}"]\n'
                f'bot_name = "{telegram.world.bot["username"]}"\n'
            ),
        ) as stage,
    ):
        yield World(telegram, agent, stage)
