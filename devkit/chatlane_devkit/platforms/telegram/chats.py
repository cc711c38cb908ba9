"""The state of the emulated platform: the bot, people, chats and what they show."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from time import monotonic, time
from typing import Any, Final

from chatlane_devkit.platforms.telegram.updates import UpdateQueue
from chatlane_devkit.platforms.telegram.uploads import FileStore
from chatlane_devkit.platforms.telegram.wire import Json, bad_request

_KEPT_CHANGES: Final = 1000
_FIRST_SUPERGROUP: Final = 1_000_000_000_000


@dataclass(frozen=True, slots=True)
class Person:
    """A user of Telegram."""

    id: int
    first_name: str
    username: str | None = None

    @property
    def user(self) -> Json:
        """Return the person as the Bot API shows it."""
        shown: Json = {"id": self.id, "is_bot": False, "first_name": self.first_name}
        return shown if self.username is None else {**shown, "username": self.username}


@dataclass(slots=True, kw_only=True)
class Chat:
    """A chat.

    Attributes:
        messages: What it shows by id, in order.
        own: Ids of the messages of the bot.
        texts: Every text that a message of the bot ever had, in order.
        called_at: Monotonic times of calls of the bot for this chat, refused ones included.
        actions: Chat actions with their topics, in order.
        drafts: Texts of message drafts by draft id.
        topics: Ids of its topics with their names; a deleted topic is missing.
        refusal: Why the bot may not write, as the Bot API says it; None if it may.
        migrated_to: The supergroup that a group became.
        business: The business connection whose owner talks here.
    """

    id: int
    type: str
    title: str
    username: str | None = None
    is_forum: bool = False
    ids: "count[int]" = field(default_factory=lambda: count(1))
    messages: dict[int, Json] = field(default_factory=dict)
    own: set[int] = field(default_factory=set)
    texts: list[str | None] = field(default_factory=list)
    called_at: list[float] = field(default_factory=list)
    actions: list[tuple[str, int | None]] = field(default_factory=list)
    drafts: dict[int, list[str]] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    closed_topics: set[int] = field(default_factory=set)
    refusal: str | None = None
    migrated_to: int | None = None
    business: str | None = None

    @property
    def shown(self) -> Json:
        """Return the chat as the Bot API shows it."""
        shown: Json = {"id": self.id, "type": self.type}
        shown["first_name" if self.type == "private" else "title"] = self.title
        if self.username is not None:
            shown["username"] = self.username
        if self.is_forum:
            shown["is_forum"] = True
        return shown

    @property
    def said(self) -> list[str | None]:
        """Return the texts of the bot that the chat shows, in order."""
        return [text_or_caption(it) for it in self.from_bot]

    @property
    def from_bot(self) -> list[Json]:
        """Return the messages of the bot that the chat shows, in order."""
        return [it for number, it in self.messages.items() if number in self.own]


def text_or_caption(message: Json) -> str | None:
    """Return the words of a message."""
    found: str | None = message.get("text", message.get("caption"))
    return found


class World:
    """Everything that the emulator knows.

    Attributes:
        bot: The bot as `getMe` shows it.
        updates: What the bot has not confirmed.
        presses: Answers to callback queries by their id; None while there is no answer.
        changes: What people saw happen, newest last: numbered records for a terminal.
    """

    def __init__(self, username: str, *, has_privacy: bool) -> None:
        self.bot: Json = {
            "id": 7_000_000_001,
            "is_bot": True,
            "first_name": username.replace("_", " ").title(),
            "username": username,
            "can_join_groups": True,
            "can_read_all_group_messages": not has_privacy,
            "supports_inline_queries": False,
            "can_connect_to_business": True,
            "has_main_web_app": False,
        }
        self.updates = UpdateQueue()
        self.files = FileStore()
        self.commands: list[Json] = []
        self.chats: dict[int, Chat] = {}
        self.people: dict[int, Person] = {}
        self.polls: dict[str, tuple[int, int]] = {}
        self.connections: dict[str, Json] = {}
        self.presses: dict[str, Json | None] = {}
        self.changes: deque[Json] = deque(maxlen=_KEPT_CHANGES)
        self.numbers = count(1)
        self._changed = asyncio.Event()
        # Private chats and groups share the numbers of the bot's messages; a supergroup has its own.
        self._message_ids = count(1)

    def add_chat(self, kind: str, title: str, **fields: Any) -> Chat:  # noqa: ANN401 - of a chat
        """Return another chat."""
        number = next(self.numbers)
        chat_id = fields.pop("id", None)
        if chat_id is None:
            chat_id = (
                -(_FIRST_SUPERGROUP + number) if kind in {"supergroup", "channel"} else -number
            )
        ids = count(1) if kind in {"supergroup", "channel"} else self._message_ids
        chat = Chat(id=chat_id, type=kind, title=title, ids=ids, **fields)
        self.chats[chat_id] = chat
        return chat

    def chat(self, wanted: str | int | None) -> Chat:
        """Return the chat with an id or `@username`.

        Raises:
            RefusalError: There is none.
        """
        if isinstance(wanted, str) and wanted.startswith("@"):
            name = wanted[1:]
            found = next((it for it in self.chats.values() if it.username == name), None)
        else:
            try:
                found = self.chats.get(int(wanted or 0))
            except ValueError:
                found = None
        if found is None:
            raise bad_request("chat not found")
        return found

    def new_message(self, chat: Chat, author: Json | None, **content: Any) -> Json:  # noqa: ANN401
        """Add a message to a chat and return it."""
        message: Json = {"message_id": next(chat.ids), "date": int(time()), "chat": chat.shown}
        if author is not None:
            message["from"] = author
        if chat.business is not None:
            message["business_connection_id"] = chat.business
        message |= {name: value for name, value in content.items() if value is not None}
        chat.messages[message["message_id"]] = message
        return message

    def tell(self, what: str, chat: Chat, **facts: object) -> None:
        """Record what people in a chat see."""
        number = self.changes[-1]["number"] + 1 if self.changes else 1
        self.changes.append({"number": number, "what": what, "chat_id": chat.id, **facts})
        self._changed.set()

    async def changes_after(self, number: int, seconds: float) -> list[Json]:
        """Return the records behind a number, and wait for one for so long."""
        until = monotonic() + seconds
        while not self.changes or self.changes[-1]["number"] <= number:
            self._changed.clear()
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._changed.wait()
            except TimeoutError:
                return []
        return [it for it in self.changes if it["number"] > number]
