"""An agent that answers as the tests of an adapter need it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from chatlane_client import Answer, NoReply, Reply, Turn, TurnWorker, open_connection
from chatlane_schemas import Attachment, Button, Part, TextFormat
from tests.support.service.processes import TURN_AGENT

LONG: Final = " ".join(f"word-{number:05}" for number in range(2_600))
_PHOTO: Final = Attachment(url="https://files.test/1.png", media_type="image/png")
_COLOURS: Final = (Button(label="Red", value="red"), Button(label="Blue", value="blue"))
_ANSWERS: Final[Mapping[str, Answer]] = {
    "table": Reply(parts=[Part(text="| a |\n|---|\n| 1 |", format=TextFormat.MARKDOWN)]),
    "show": Reply(parts=[Part(text="a photo", attachments=(_PHOTO,))]),
    "choose": Reply(parts=[Part(text="Which?", buttons=_COLOURS)]),
    "tell": LONG,
}


class Agent:
    """An agent that answers as a test needs it.

    Attributes:
        given: What it was given, in order.
        files: Addresses of the files that it was given.
        may_end: Set while answers that are shown as they are written may end.
    """

    def __init__(self) -> None:
        self.given: list[str] = []
        self.files: list[str | None] = []
        self.may_end = asyncio.Event()

    async def answer(self, turn: Turn) -> Answer:
        """Answer a turn."""
        self.given.append(turn.text)
        self.files += [file.url for message in turn.messages for file in message.attachments]
        word = turn.text.split(" ")[-1]
        match word:
            case "ask":
                choice = await turn.ask("Sure?", ["Yes", "No"], within=timedelta(minutes=1))
                return f"you said {choice.value}"
            case "history":
                return "\n".join(row.content or "" for row in await turn.history())
            case "write" | "drop":
                await turn.delta("Once ")
                await turn.delta("upon ")
                await self.may_end.wait()
                return NoReply() if word == "drop" else "Once upon a time"
            case _:
                return _ANSWERS.get(word, f"heard {turn.text}")


@asynccontextmanager
async def working(nats_url: str, agent: Agent) -> AsyncIterator[None]:
    """Run the agent for the length of the block."""
    async with open_connection(nats_url, name="worker") as client:
        worker = TurnWorker(client, TURN_AGENT, agent.answer, slots=8, principal="worker")
        serving = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop()
            await serving
