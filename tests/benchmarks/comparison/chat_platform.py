"""The chat platform of the comparison: it keeps updates until they are confirmed, and records answers."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NamedTuple

from aiohttp import web

from chatlane_servers.embedded import LOOPBACK, free_port

_MOST_AT_ONCE: Final = 100


class Message(NamedTuple):
    """A message of a person, however often the platform repeats it."""

    chat: str
    id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that reached its chat.

    Attributes:
        at: Monotonic time.
        known: How many earlier messages of the chat the agent knew.
    """

    at: float
    message: Message
    known: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What people saw.

    Attributes:
        messages: Different messages that they wrote.
        lost: Messages without an answer, in chats that answer.
        doubled: Messages with more than one answer.
        reordered: Messages whose first answer came before that of an earlier message of the chat.
        forgotten: Answers of an agent that no longer knew any earlier message of the chat.
        stuck: Chats that do not answer any more.
    """

    messages: int
    lost: int
    doubled: int
    reordered: int
    forgotten: int
    stuck: int


@dataclass(slots=True)
class ChatPlatform:
    """Hands updates to a bot and records what it sends.

    Attributes:
        url: Its address.
        written: When each message was written, in this order.
        answers: All answers, in their order.
    """

    url: str = ""
    written: dict[Message, float] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    _answered: dict[Message, float] = field(default_factory=dict)
    _updates: list[dict[str, Any]] = field(default_factory=list)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)
    _confirmed: int = 0

    def write(self, message: Message, text: str) -> None:
        """Let a person write a message, or repeat one to the bot as platforms do."""
        self.written.setdefault(message, monotonic())
        update = {"id": len(self._updates), "chat": message.chat, "message_id": message.id}
        self._updates.append({**update, "text": f"{message.id} {text}"})
        self._grown.set()

    @property
    def unanswered(self) -> list[Message]:
        """Messages without an answer, oldest first."""
        return [message for message in self.written if message not in self._answered]

    @property
    def last_answer_at(self) -> float:
        """Monotonic time of the last answer."""
        return self.answers[-1].at if self.answers else 0.0

    def waits(self, begin: float, end: float) -> list[float]:
        """Return the seconds that answered messages waited, of those written in a time."""
        return [
            self._answered[message] - at
            for message, at in self.written.items()
            if begin <= at <= end and message in self._answered
        ]

    def outcome(self, stuck: set[str]) -> Outcome:
        """Count what went wrong.

        Args:
            stuck: Chats that do not answer any more.
        """
        counts: dict[Message, int] = defaultdict(int)
        last: dict[str, int] = {}
        places = {message: place for place, message in enumerate(self.written)}
        reordered = forgotten = 0
        for answer in self.answers:
            message = answer.message
            counts[message] += 1
            if counts[message] > 1:
                continue
            before = last.get(message.chat)
            if before is not None:
                reordered += places[message] < before
                forgotten += answer.known == 0
            last[message.chat] = max(places[message], before or 0)
        lost = [message for message in self.unanswered if message.chat not in stuck]
        return Outcome(
            messages=len(self.written),
            lost=len(lost),
            doubled=sum(count > 1 for count in counts.values()),
            reordered=reordered,
            forgotten=forgotten,
            stuck=len(stuck),
        )

    async def get_updates(self, request: web.Request) -> web.Response:
        """Confirm the updates before an offset, and return those from it on."""
        offset = (await request.json())["offset"]
        self._confirmed = max(self._confirmed, offset)
        while len(self._updates) <= self._confirmed:
            self._grown.clear()
            await self._grown.wait()
        return web.json_response(self._updates[self._confirmed :][:_MOST_AT_ONCE])

    async def send_message(self, request: web.Request) -> web.Response:
        """Show a message in its chat; messages without ids of others are notices."""
        sent = await request.json()
        known, *ids = sent["text"].split(" ")
        now = monotonic()
        for place, message in enumerate(Message(sent["chat"], it) for it in ids):
            if known.isdecimal() and message in self.written:
                self._answered.setdefault(message, now)
                # An answer to several messages knows those before.
                self.answers.append(Answer(now, message, int(known) + place))
        return web.json_response({})


@asynccontextmanager
async def open_chat_platform() -> AsyncIterator[ChatPlatform]:
    """Serve a platform during the block."""
    platform = ChatPlatform()
    application = web.Application()
    application.router.add_post("/get_updates", platform.get_updates)
    application.router.add_post("/send_message", platform.send_message)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, port := free_port()).start()
    platform.url = f"http://{LOOPBACK}:{port}"
    try:
        yield platform
    finally:
        await runner.cleanup()
