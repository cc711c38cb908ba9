"""A bot as a process, its model endpoint, and a person who writes to it."""

import asyncio
import os
import re
import signal
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from chatlane_client import AdapterClient, open_connection
from chatlane_devkit.model_endpoint import ModelEndpoint, open_model_endpoint
from chatlane_schemas import Chat, InboundEvent, OutboundMessage, Sender, new_envelope_id
from chatlane_servers.binaries import server_directory
from tests.integration.client.routing import running
from tests.support.command_run import CommandRun, started
from tests.support.eventually import eventually

PATIENCE: Final = timedelta(seconds=60)
_PART: Final = re.compile(r"^  (\S+) +process (\d+)$", re.MULTILINE)


@dataclass
class Person:
    """Writes to the bot in the place of the terminal, and keeps what it answers."""

    adapter: AdapterClient
    answers: list[str] = field(default_factory=list)

    async def write(self, text: str) -> None:
        await self.adapter.publish(
            InboundEvent(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                message_id=uuid4().hex,
                platform="terminal",
                account="bot",
                chat=Chat(id="ann", kind="dm"),
                sender=Sender(id="ann", name="Ann"),
                text=text,
            )
        )

    async def hold(self, message: OutboundMessage) -> None:
        self.answers.append(message.text or "")

    async def until_answered(self, words: str, times: int = 1) -> None:
        await eventually(lambda: self.count(words) >= times, timeout=PATIENCE)

    def count(self, words: str) -> int:
        return sum(words in answer for answer in self.answers)


@dataclass
class BotScene:
    """The directory of a bot and its model."""

    directory: Path
    model: ModelEndpoint

    @property
    def data(self) -> Path:
        return self.directory / "bot"

    @property
    def nats_url(self) -> str:
        settings = tomllib.loads((self.data / "chatlane.toml").read_text("utf-8"))
        return str(settings["nats"]["url"])

    def logs(self) -> str:
        """Return the logs of all parts."""
        paths = (self.data / "logs").glob("*.log")
        return "".join(path.read_text("utf-8") for path in paths)

    @asynccontextmanager
    async def bot(self, *options: str) -> AsyncIterator[CommandRun]:
        """Run the bot until the end of the block, which kills it."""
        arguments = ["-m", "chatlane", "bot", "--data", str(self.data), *options]
        async with started(self.directory, *arguments) as run:
            await run.until_printed("  look ")
            yield run

    def new_bot(self) -> tuple[str, ...]:
        return "--model", "openai:fake", "--base-url", self.model.url, "--no-chat"

    @asynccontextmanager
    async def person(self) -> AsyncIterator[Person]:
        async with open_connection(self.nats_url, name="person") as client:
            adapter = AdapterClient(client, platform="terminal", account="bot")
            person = Person(adapter)
            async with running(adapter.deliver(person.hold)):
                yield person


def parts_of(run: CommandRun) -> dict[str, int]:
    """Return the process ids of the parts, as the bot printed them last."""
    return {name: int(pid) for name, pid in _PART.findall(run.text)}


async def stopped(run: CommandRun) -> None:
    """Stop a bot in order and check that it ends without an error."""
    run.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE.total_seconds()):
        assert await run.process.wait() == 0, run.text
    assert "Traceback" not in run.text


@asynccontextmanager
async def open_bot_scene() -> AsyncIterator[BotScene]:
    with server_directory() as directory:
        async with open_model_endpoint() as model:
            yield BotScene(directory, model)


async def command(*arguments: str) -> tuple[int | None, str]:
    """Run a command to its end, and return its exit code and output."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "chatlane", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "COLUMNS": "200"},
    )
    output, _ = await process.communicate()
    return process.returncode, output.decode()
