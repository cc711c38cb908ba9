"""Keep the workspaces of a Slack for tests: channels, threads and messages."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]


class Stamps:
    """Timestamps of messages: the time in microseconds, and never the same twice."""

    def __init__(self) -> None:
        self._last = 0

    def next_ts(self) -> str:
        """Return a timestamp that is later than all before."""
        self._last = max(self._last + 1, round(time() * 1_000_000))
        return f"{self._last // 1_000_000}.{self._last % 1_000_000:06}"


_stamps: Final = Stamps()


def new_ts() -> str:
    """Return the next timestamp; Slack names messages by them."""
    return _stamps.next_ts()


@dataclass(slots=True, kw_only=True)
class Message:
    """A message as people see it.

    Attributes:
        is_streaming: Whether `chat.stopStream` has not ended it yet.
        metadata: Data of the app that people do not see.
    """

    ts: str
    user: str
    text: str
    thread_ts: str | None = None
    bot_id: str | None = None
    blocks: list[Json] = field(default_factory=list)
    files: list[Json] = field(default_factory=list)
    metadata: Json | None = None
    edited_ts: str | None = None
    is_streaming: bool = False

    @property
    def shown(self) -> str:
        """Return the text that people read: that of the blocks, if there are any."""
        parts = [text for block in self.blocks for text in _texts_of(block)]
        return "\n".join(parts) if parts else self.text

    @property
    def buttons(self) -> list[Json]:
        """Return the buttons, in order."""
        rows = (block["elements"] for block in self.blocks if block["type"] == "actions")
        return [button for row in rows for button in row]

    def as_json(self, *, with_metadata: bool = False) -> Json:
        """Return the message as events and the history have it."""
        shown: Json = {"type": "message", "user": self.user, "text": self.text, "ts": self.ts}
        if self.bot_id is not None:
            shown["bot_id"] = self.bot_id
        if self.thread_ts is not None:
            shown["thread_ts"] = self.thread_ts
        if self.blocks:
            shown["blocks"] = self.blocks
        if self.files:
            shown["files"] = self.files
        if self.edited_ts is not None:
            shown["edited"] = {"user": self.user, "ts": self.edited_ts}
        if self.metadata is not None:
            event_type = {"event_type": self.metadata["event_type"]}
            shown["metadata"] = self.metadata if with_metadata else event_type
        return shown


def _texts_of(block: Json) -> Iterator[str]:
    """Yield the texts of a block that people read."""
    match block["type"]:
        case "markdown":
            yield block["text"]
        case "section":
            yield block["text"]["text"]
        case "rich_text":
            for part in block["elements"]:
                yield "".join(element.get("text", "") for element in part["elements"])
        case _:
            pass


@dataclass(slots=True)
class Channel:
    """A channel, or a conversation of a few people.

    Attributes:
        kind: `channel`, `group`, `mpim` or `im`.
        messages: By their timestamps, in order.
        posted: The keys of the metadata of each message that the bot posted, in order.
        refusal: The error that each call for it gets, such as `is_archived`.
        limited_until: Monotonic time until which calls are refused with 429.
        posts: Number of calls that posted a message, refused ones included.
        lost_answers: How many posts are done whose caller gets no answer.
        answers: Set while calls that were done are answered.
        statuses: What the bot showed while it worked, as thread and status.
    """

    id: str
    kind: str = "channel"
    messages: dict[str, Message] = field(default_factory=dict)
    posted: list[str | None] = field(default_factory=list)
    refusal: str | None = None
    limited_until: float = 0.0
    posts: int = 0
    lost_answers: int = 0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    statuses: list[tuple[str | None, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers.set()

    def limit(self, seconds: float) -> None:
        """Refuse the calls for this channel for so long."""
        self.limited_until = monotonic() + seconds

    def answers_shown(self, thread_ts: str | None = None) -> list[str]:
        """Return the texts of the bot, in order, of the channel or of one thread."""
        return [
            message.shown
            for message in self.messages.values()
            if message.bot_id is not None and message.thread_ts == thread_ts
        ]


@dataclass(slots=True)
class Workspace:
    """A workspace that installed the app.

    Attributes:
        is_agent: Whether the app is declared as an agent: streams, status and stop button.
        revoked: The error of each call once the token is revoked.
        homes: The texts of the Home tab of each person, by section.
    """

    team: str
    token: str
    bot_user: str
    bot_id: str
    is_agent: bool = True
    channels: dict[str, Channel] = field(default_factory=dict)
    revoked: str | None = None
    homes: dict[str, list[str]] = field(default_factory=dict)

    def channel(self, channel_id: str, kind: str = "channel") -> Channel:
        """Return a channel; it exists from now on."""
        return self.channels.setdefault(channel_id, Channel(channel_id, kind))
