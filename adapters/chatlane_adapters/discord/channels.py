"""Cache the kind, the name and the parent of channels."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import aiohttp

from chatlane_adapters.discord.decode import chat_of_channel
from chatlane_adapters.discord.rest import Json, Rest
from chatlane_client import RetryAfter, UndeliverableError
from chatlane_schemas import Chat

_log: Final = logging.getLogger(__name__)

_MOST_KNOWN: Final = 20_000
_PAUSE: Final = 1.0
_ATTEMPTS: Final = 3


class Channels:
    """The channels of events, the most recently used ones.

    Discord describes channels when a session begins and when they change. A process that resumes a
    session asks for those that it meets.
    """

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._known: OrderedDict[str, Chat] = OrderedDict()

    def note(self, channel: Json) -> None:
        """Keep a channel object of the API."""
        self._put(chat_of_channel(channel))

    def forget(self, channel_id: str) -> None:
        """Forget a channel that was deleted."""
        self._known.pop(channel_id, None)

    async def find(self, event: Json) -> Chat:
        """Return the channel of an event."""
        channel_id = event["channel_id"]
        if channel_id in self._known:
            self._known.move_to_end(channel_id)
            return self._known[channel_id]
        if event.get("guild_id") is None:
            # Bots have no group chats, so it is the chat of a single person.
            self._put(Chat(id=channel_id, kind="dm"))
        elif "channel" in event:
            self.note(event["channel"])
        else:
            self._put(await self._ask(channel_id))
        return self._known[channel_id]

    async def _ask(self, channel_id: str) -> Chat:
        for _ in range(_ATTEMPTS):
            try:
                return chat_of_channel(await self._rest.call("GET", f"/channels/{channel_id}"))
            except RetryAfter as exc:
                await asyncio.sleep(exc.after.total_seconds())
            except UndeliverableError:
                break
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(_PAUSE)
        # The name is lost, and the event is not.
        _log.info("channel_not_found", extra={"chat": channel_id})
        return Chat(id=channel_id, kind="channel")

    def _put(self, chat: Chat) -> None:
        assert chat.id is not None  # noqa: S101 - channels have ids
        self._known[chat.id] = chat
        self._known.move_to_end(chat.id)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


def channels_of_guild(guild: Json) -> Iterator[Json]:
    """Yield the channels and the active threads of a guild."""
    for channel in (*(guild.get("channels") or ()), *(guild.get("threads") or ())):
        yield {**channel, "guild_id": guild["id"]}
