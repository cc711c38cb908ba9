"""The calls of a made-up chat platform, as the library of a real one has them.

`docs/writing-an-adapter.md` describes its HTTP. A text has at most 4,096 UTF-16 units, there are no
idempotency keys, and updates are kept until they are confirmed.
"""

from dataclasses import dataclass
from typing import Any

import aiohttp

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

    http: aiohttp.ClientSession

    async def updates(self, after: int) -> list[dict[str, Any]]:
        """Wait for updates; those up to `after` are confirmed and never come again."""
        answer = await self._call("GET", f"/updates?after={after}")
        updates: list[dict[str, Any]] = answer["updates"]
        return updates

    async def send(self, chat: str, text: str | None, **content: object) -> str:
        """Send a message and return its id; `content` is topic, reply_to, photos, buttons."""
        answer = await self._call("POST", f"/chats/{chat}/messages", text=text, **content)
        return str(answer["id"])

    async def edit(self, chat: str, message_id: str, text: str | None, **content: object) -> None:
        """Replace the text and the buttons of a message."""
        await self._call("PUT", f"/chats/{chat}/messages/{message_id}", text=text, **content)

    async def delete(self, chat: str, message_id: str) -> None:
        """Delete a message."""
        await self._call("DELETE", f"/chats/{chat}/messages/{message_id}")

    async def show_typing(self, chat: str, topic: str | None) -> None:
        """Show for five seconds that the bot is typing."""
        await self._call("POST", f"/chats/{chat}/typing", topic=topic)

    async def _call(self, method: str, path: str, **fields: object) -> dict[str, Any]:
        async with self.http.request(method, path, json=fields) as response:
            answer: dict[str, Any] = await response.json()
        match response.status:
            case 200:
                return answer
            case 429:
                raise TooManyRequestsError(answer["seconds"])
            case 403:
                raise BlockedError(answer["error"])
            case _:
                raise RefusedError(answer["error"])
