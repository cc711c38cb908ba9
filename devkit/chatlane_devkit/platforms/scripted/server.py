"""A made-up chat platform: topics, edits, photos, reactions, buttons, limits and blocked bots.

It keeps what people see, as a real platform does. A call that arrived takes effect, also if the bot
dies before the answer. `examples/chat_platform.py` has the calls of a bot, and
`docs/writing-an-adapter.md` describes its HTTP.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from time import monotonic
from typing import Any, Final

from aiohttp import web

from chatlane_devkit.platforms.scripted.chats import BOT, Chat, Message

MAX_TEXT: Final = 4096
_LONGEST_POLL: Final = 1.0
_LARGEST_REQUEST: Final = 2**20
_REFUSED, _BLOCKED, _UNKNOWN, _LIMITED = 400, 403, 404, 429


class RefusalError(Exception):
    """The platform refuses a call."""

    def __init__(self, error: str, status: int = _REFUSED, seconds: float = 0) -> None:
        super().__init__(error)
        self.status = status
        self.answer: dict[str, object] = {"error": error}
        if seconds:
            self.answer["seconds"] = seconds


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
        self._repeated: list[dict[str, Any]] = []
        self._has_updates = asyncio.Event()
        self._ids: dict[str, count[int]] = defaultdict(lambda: count(1))

    @property
    def url(self) -> str:
        """Return the address that a bot gets."""
        return f"http://127.0.0.1:{self.port}"

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

    def remove(self, chat: Chat, message: Message) -> None:
        """Let a person delete a message."""
        del chat.shown[message.id]
        self._tell("delete", chat, message)

    def react(self, chat: Chat, message: Message, emoji: str) -> None:
        """Let a person react to a message."""
        self._tell("reaction", chat, message, value=emoji)

    def press(self, chat: Chat, message: Message, label: str) -> None:
        """Let a person press a button."""
        [button] = [it for it in message.buttons if it["label"] == label]
        self._tell("press", chat, message, value=button["value"] or label)

    def repeat(self, updates: int) -> None:
        """Tell the newest updates a second time, confirmed or not."""
        self._repeated += self._updates[-updates:]
        self._has_updates.set()

    @property
    def newest_update(self) -> int:
        """Return the id of the newest update."""
        return len(self._updates)

    def limit(self, chat: Chat, seconds: float) -> None:
        """Refuse the calls for a chat for so long."""
        chat.limited_until = monotonic() + seconds

    def application(self) -> web.Application:
        """Return the HTTP of the platform."""
        application = web.Application(client_max_size=_LARGEST_REQUEST)
        message = "/chats/{chat}/messages/{message}"
        application.add_routes(
            [
                web.get("/updates", self._answer(self._read_updates)),
                web.post("/chats/{chat}/messages", self._answer(self._send)),
                web.put(message, self._answer(self._edit)),
                web.delete(message, self._answer(self._delete)),
                web.post("/chats/{chat}/typing", self._answer(self._show_typing)),
            ]
        )
        return application

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

    def _answer(
        self, do: Callable[[web.Request], Awaitable[dict[str, object]]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            try:
                return web.json_response(await do(request))
            except RefusalError as refusal:
                seconds = refusal.answer.get("seconds")
                headers = {"Retry-After": f"{seconds}"} if seconds else {}
                return web.json_response(refusal.answer, status=refusal.status, headers=headers)

        return answer

    async def _read_updates(self, request: web.Request) -> dict[str, object]:
        self.confirmed = max(self.confirmed, int(request.query.get("after", "0")))
        if len(self._updates) <= self.confirmed and not self._repeated:
            self._has_updates.clear()
            try:
                async with asyncio.timeout(_LONGEST_POLL):
                    await self._has_updates.wait()
            except TimeoutError:
                pass
        told = self._repeated + self._updates[self.confirmed :]
        self._repeated = []
        return {"updates": told}

    async def _show_typing(self, request: web.Request) -> dict[str, object]:
        self._chat_of(request).typing.append((await request.json()).get("topic"))
        return {}

    async def _send(self, request: web.Request) -> dict[str, object]:
        chat, content = self._called(request), await request.json()
        text = _checked(content.get("text"))
        photos = content.get("photos") or []
        if text is None and not photos:
            raise RefusalError("the message is empty")
        message = Message(
            id=self._new_id(chat),
            sender=BOT,
            topic=content.get("topic"),
            text=text,
            reply_to=content.get("reply_to"),
            photos=photos,
            buttons=content.get("buttons") or [],
        )
        chat.shown[message.id] = message
        chat.texts.append(text)
        chat.sent.append(text)
        return await _answered(chat, {"id": message.id})

    async def _edit(self, request: web.Request) -> dict[str, object]:
        chat, content = self._called(request), await request.json()
        found = _own(chat, request)
        if found.photos:
            raise RefusalError("the message has no text")
        found.text = _checked(content.get("text"))
        found.buttons = content.get("buttons") or []
        found.version += 1
        chat.texts.append(found.text)
        return await _answered(chat, {})

    async def _delete(self, request: web.Request) -> dict[str, object]:
        chat = self._called(request)
        del chat.shown[_own(chat, request).id]
        return await _answered(chat, {})

    def _called(self, request: web.Request) -> Chat:
        """Note a call for a chat, and return the chat.

        Raises:
            RefusalError: The bot may not write now.
        """
        chat = self._chat_of(request)
        chat.called_at.append(monotonic())
        if chat.is_blocked:
            raise RefusalError("the person blocked the bot", _BLOCKED)
        if (seconds := chat.limited_until - monotonic()) > 0:
            raise RefusalError("too many requests", _LIMITED, math.ceil(seconds * 1000) / 1000)
        return chat

    def _chat_of(self, request: web.Request) -> Chat:
        chat = self._chats.get(request.match_info["chat"])
        if chat is None:
            raise RefusalError("there is no such chat", _UNKNOWN)
        return chat


def _own(chat: Chat, request: web.Request) -> Message:
    found = chat.shown.get(request.match_info["message"])
    if found is None or found.sender != BOT:
        raise RefusalError("there is no such message", _UNKNOWN)
    return found


def _checked(text: str | None) -> str | None:
    if text is not None and len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
        raise RefusalError("the text is too long")
    return text


async def _answered(chat: Chat, answer: dict[str, object]) -> dict[str, object]:
    """Return the answer of a call that took effect, once the chat answers."""
    if chat.stops_after is not None and len(chat.texts) > chat.stops_after:
        chat.answers.clear()
    await chat.answers.wait()
    return answer


@asynccontextmanager
async def open_chat_server() -> AsyncIterator[ChatServer]:
    """Run the platform for the length of the block."""
    server = ChatServer()
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        await runner.cleanup()
