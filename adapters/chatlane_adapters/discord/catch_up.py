"""Publish messages that were written while no session of the bot could tell of them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import aiohttp
from discord import utils

from chatlane_adapters.discord.rest import Json, Rest
from chatlane_client import RetryAfter, UndeliverableError

_log: Final = logging.getLogger(__name__)

_PAGE: Final = 100
_AT_ONCE: Final = 8
_PAUSE: Final = 1.0
_ATTEMPTS: Final = 10
# Messages of different channels may reach the bot in another order than that of their ids.
_MARGIN: Final = timedelta(minutes=1)


def first_missing(newest_stored: int, within: timedelta) -> int:
    """Return the id after which messages may be missing.

    Args:
        newest_stored: Id of the newest message that is stored.
        within: How old a message may be.
    """
    at = utils.snowflake_time(newest_stored) - _MARGIN
    return utils.time_snowflake(max(at, datetime.now(UTC) - within))


class CatchUp:
    """Reads the messages of channels over the REST API.

    Args:
        rest: Makes the calls.
        publish: Stores a message of a channel, given as an object of the API.
    """

    def __init__(self, rest: Rest, publish: Callable[[Json, Json], Awaitable[None]]) -> None:
        self._rest = rest
        self._publish = publish
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def run(self, channels: Iterable[Json], after: int) -> None:
        """Publish what came after an id, each channel in its order.

        Args:
            channels: Channel objects; those whose last message is known to be older are skipped.
            after: An id.
        """
        async with asyncio.TaskGroup() as tasks:
            for channel in channels:
                last = channel.get("last_message_id", after + 1)
                if last is not None and int(last) > after:
                    tasks.create_task(self._read(channel, after))

    async def _read(self, channel: Json, after: int) -> None:
        async with self._slots:
            count = 0
            async for message in self._messages(channel["id"], after):
                await self._publish(channel, message)
                count += 1
            if count:
                _log.info("channel_caught_up", extra={"chat": channel["id"], "count": count})

    async def _messages(self, channel_id: str, after: int) -> AsyncIterator[Json]:
        """Yield the messages after an id, oldest first."""
        while True:
            page = sorted(await self._page(channel_id, after), key=lambda it: int(it["id"]))
            for message in page:
                yield message
            if len(page) < _PAGE:
                return
            after = int(page[-1]["id"])

    async def _page(self, channel_id: str, after: int) -> list[Json]:
        path, query = f"/channels/{channel_id}/messages", {"after": str(after), "limit": str(_PAGE)}
        for _ in range(_ATTEMPTS):
            try:
                page: list[Json] = await self._rest.call("GET", path, query=query)
            except RetryAfter as exc:
                await asyncio.sleep(exc.after.total_seconds())
            except UndeliverableError:
                # A channel that the bot may not read.
                return []
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(_PAUSE)
            else:
                return page
        _log.error("channel_not_caught_up", extra={"chat": channel_id})
        return []
