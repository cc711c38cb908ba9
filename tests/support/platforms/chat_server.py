"""A made-up chat platform: chats with messages, topics, photos, buttons, limits and blocked bots.

It keeps what people see, as a real platform does. A call that arrived takes effect, also if the bot
dies before the answer. `examples/chat_platform.py` has the calls of a bot.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Final

MAX_TEXT: Final = 4096
_LONGEST_POLL: Final = 1.0
_LONGEST_LINE: Final = 2**20


@dataclass(slots=True, kw_only=True)
class Message:
    """A message as people see it."""

    id: str
    topic: str | None
    sender: str
    text: str | None
    reply_to: str | None = None
    photos: list[str] = field(default_factory=list)
    buttons: list[dict[str, Any]] = field(default_factory=list)
    album: str | None = None
    version: int = 0


@dataclass(slots=True)
class Chat:
    """A chat.

    Attributes:
        shown: Its messages by id, in order.
        texts: Every text that a bot's message ever had, in order.
        called_at: Monotonic times of the calls of bots, refused ones included.
        typing: In which topics typing was shown, in order.
        is_blocked: Whether the person blocked the bot.
        limited_until: Monotonic time until which calls are refused.
        answers: Set while calls that take effect are answered.
        stops_after: Number of texts after which calls take effect and are not answered.
    """

    id: str
    kind: str
    shown: dict[str, Message] = field(default_factory=dict)
    texts: list[str | None] = field(default_factory=list)
    called_at: list[float] = field(default_factory=list)
    typing: list[str | None] = field(default_factory=list)
    is_blocked: bool = False
    limited_until: float = 0.0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    stops_after: int | None = None

    def __post_init__(self) -> None:
        self.answers.set()

    @property
    def calls(self) -> int:
        """Return the number of calls."""
        return len(self.called_at)

    @property
    def said(self) -> list[str | None]:
        """Return the texts of the bot that the chat shows, in order."""
        return [it.text for it in self.shown.values() if it.sender == "bot"]


class RefusalError(Exception):
    """The platform refuses a call."""

    def __init__(self, **answer: object) -> None:
        super().__init__(str(answer))
        self.answer = answer


class ChatServer:
    """The platform.

    Attributes:
        port: Where bots connect.
        confirmed: The last update that a bot confirmed.
    """

    def __init__(self) -> None:
        self.port = 0
        self.confirmed = 0
        self._chats: dict[str, Chat] = {}
        self._updates: list[dict[str, Any]] = []
        self._has_updates = asyncio.Event()
        self._ids: dict[str, count[int]] = defaultdict(lambda: count(1))

    def chat(self, chat_id: str, kind: str = "dm") -> Chat:
        """Return a chat; it exists from now on."""
        return self._chats.setdefault(chat_id, Chat(chat_id, kind))

    def write(
        self,
        chat: Chat,
        text: str | None,
        *,
        topic: str | None = None,
        reply_to: str | None = None,
        photos: list[str] | None = None,
        album: str | None = None,
    ) -> Message:
        """Let a person write a message."""
        message = Message(
            id=self._new_id(chat),
            topic=topic,
            sender=f"person-{chat.id}",
            text=text,
            reply_to=reply_to,
            photos=photos or [],
            album=album,
        )
        chat.shown[message.id] = message
        self._tell("message", chat, message)
        return message

    def rewrite(self, chat: Chat, message: Message, text: str) -> None:
        """Let a person edit a message."""
        message.text = text
        message.version += 1
        self._tell("edit", chat, message)

    def press(self, chat: Chat, message: Message, label: str) -> None:
        """Let a person press a button."""
        [button] = [it for it in message.buttons if it["label"] == label]
        self._tell("press", chat, message, value=button["value"] or label)

    @property
    def newest_update(self) -> int:
        """Return the id of the newest update."""
        return len(self._updates)

    def limit(self, chat: Chat, seconds: float) -> None:
        """Refuse the calls for a chat for so long."""
        chat.limited_until = monotonic() + seconds

    def _new_id(self, chat: Chat) -> str:
        return str(next(self._ids[chat.id]))

    def _tell(self, kind: str, chat: Chat, message: Message, **more: object) -> None:
        fields = ("id", "topic", "text", "reply_to", "photos", "album", "version")
        content = {name: getattr(message, name) for name in fields}
        content["chat"] = {"id": chat.id, "kind": chat.kind, "is_forum": chat.kind == "forum"}
        sender = {"id": f"person-{chat.id}", "name": f"Person {chat.id}"}
        update = {"id": len(self._updates) + 1, "kind": kind, "sender": sender, **more}
        self._updates.append({**update, "message": content})
        self._has_updates.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            try:
                answer = {"result": await self._do(**request)}
            except RefusalError as refusal:
                answer = refusal.answer
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        except (ConnectionError, ValueError):
            # The bot was killed.
            pass
        finally:
            writer.close()

    async def _do(self, *, method: str, **fields: Any) -> object:  # noqa: ANN401 - of any call
        if method == "updates":
            return await self._updates_after(fields["after"])
        chat = self._chats[fields.pop("chat")]
        if method == "typing":
            chat.typing.append(fields["topic"])
            return None
        chat.called_at.append(monotonic())
        if chat.is_blocked:
            raise RefusalError(error="blocked")
        if (seconds := chat.limited_until - monotonic()) > 0:
            raise RefusalError(error="too many requests", seconds=seconds)
        result = self._change(method, chat, fields)
        if chat.stops_after is not None and len(chat.texts) > chat.stops_after:
            chat.answers.clear()
        await chat.answers.wait()
        return result

    def _change(self, method: str, chat: Chat, fields: dict[str, Any]) -> object:
        text = fields.get("text")
        if text is not None and len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
            raise RefusalError(error="the text is too long")
        if method == "send":
            if text is None and not fields.get("photos"):
                raise RefusalError(error="the message is empty")
            message = Message(id=self._new_id(chat), sender="bot", **fields)
            chat.shown[message.id] = message
            chat.texts.append(text)
            return message.id
        found = chat.shown.get(fields["message_id"])
        if found is None or found.sender != "bot":
            raise RefusalError(error="there is no such message")
        if method == "delete":
            del chat.shown[found.id]
            return None
        if found.photos:
            raise RefusalError(error="the message has no text")
        found.text, found.buttons = text, fields.get("buttons", [])
        found.version += 1
        chat.texts.append(text)
        return None

    async def _updates_after(self, after: int) -> list[dict[str, Any]]:
        self.confirmed = max(self.confirmed, after)
        if len(self._updates) <= self.confirmed:
            self._has_updates.clear()
            try:
                async with asyncio.timeout(_LONGEST_POLL):
                    await self._has_updates.wait()
            except TimeoutError:
                return []
        return self._updates[self.confirmed :]


@asynccontextmanager
async def open_chat_server() -> AsyncIterator[ChatServer]:
    """Run the platform for the length of the block."""
    its = ChatServer()
    server = await asyncio.start_server(its._serve, "127.0.0.1", 0, limit=_LONGEST_LINE)
    its.port = server.sockets[0].getsockname()[1]
    try:
        yield its
    finally:
        server.close()
