"""Keep the chats of the scripted platform."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

BOT = "bot"


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
        sent: The text of each message that a bot sent, in order.
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
    sent: list[str | None] = field(default_factory=list)
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
        return [it.text for it in self.shown.values() if it.sender == BOT]
