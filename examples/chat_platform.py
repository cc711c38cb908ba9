"""The calls of a made-up chat platform, as the library of a real one has them.

A request is a line of JSON over TCP. A text has at most 4,096 UTF-16 units, there are no idempotency
keys, and updates are kept until they are confirmed.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

MAX_TEXT = 4096


class RefusedError(Exception):
    """The platform did not do what was asked."""


class BlockedError(RefusedError):
    """The person blocked the bot."""


class TooManyRequestsError(RefusedError):
    """The platform does nothing for some seconds."""

    def __init__(self, seconds: float) -> None:
        """Keep how long to wait."""
        super().__init__(f"wait {seconds} s")
        self.seconds = seconds


@dataclass(frozen=True)
class ChatPlatform:
    """A bot on the platform."""

    host: str
    port: int

    async def updates(self, after: int) -> list[dict[str, Any]]:
        """Wait for updates; those up to `after` are confirmed and never come again."""
        updates: list[dict[str, Any]] = await self._call("updates", after=after)
        return updates

    async def send(self, chat: str, text: str | None, **content: object) -> str:
        """Send a message and return its id; `content` is topic, reply_to, photos, buttons."""
        message_id: str = await self._call("send", chat=chat, text=text, **content)
        return message_id

    async def edit(self, chat: str, message_id: str, text: str | None, **content: object) -> None:
        """Replace the text and the buttons of a message."""
        await self._call("edit", chat=chat, message_id=message_id, text=text, **content)

    async def delete(self, chat: str, message_id: str) -> None:
        """Delete a message."""
        await self._call("delete", chat=chat, message_id=message_id)

    async def show_typing(self, chat: str, topic: str | None) -> None:
        """Show for five seconds that the bot is typing."""
        await self._call("typing", chat=chat, topic=topic)

    async def _call(self, method: str, **fields: object) -> Any:  # noqa: ANN401 - any result
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**20)
        try:
            writer.write(json.dumps({"method": method, **fields}).encode() + b"\n")
            answer = json.loads(await reader.readline())
        finally:
            writer.close()
        match answer.get("error"):
            case None:
                return answer["result"]
            case "too many requests":
                raise TooManyRequestsError(answer["seconds"])
            case "blocked":
                raise BlockedError("the person blocked the bot")
            case error:
                raise RefusedError(error)
