"""Bring the files of messages from Telegram into the store of files."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp
from aiogram import Bot
from aiogram.exceptions import TelegramAPIError

from chatlane_adapters.telegram.contents import FILE_KEY
from chatlane_client.media.store import MediaRefusedError, MediaStore, folder_of
from chatlane_schemas import Attachment, InboundEvent, Kind

_log: Final = logging.getLogger(__name__)

# Each holds up to the largest file in memory or on disk.
_AT_ONCE: Final = 4
_SECONDS: Final = 60


class FileKeeper:
    """Fetches files and publishes the references to them.

    Args:
        bot: The bot, which alone can read the files.
        store: Keeps them.
        publish: Publishes an event.
    """

    def __init__(
        self, bot: Bot, store: MediaStore, publish: Callable[[InboundEvent], Awaitable[object]]
    ) -> None:
        self._bot = bot
        self._store = store
        self._publish = publish
        self._room = asyncio.Semaphore(_AT_ONCE)

    async def bring(self, event: InboundEvent) -> None:
        """Publish the files of a message that was published without; none if they cannot come."""
        async with self._room:
            files = await self.kept(event)
        await self._publish(
            event.model_copy(
                update={
                    "id": f"{event.id}-files",
                    "kind": Kind.ATTACHMENTS,
                    "event_id": "files",
                    "attachments": files,
                    **dict.fromkeys(("text", "album_id", "observed", "forward", "quote")),
                    **dict.fromkeys(("reply_to", "location", "contacts", "poll", "sticker")),
                }
            )
        )

    async def kept(self, event: InboundEvent) -> tuple[Attachment, ...]:
        """Return references to the files of an event that are in the store now."""
        found = [await self._keep(event, file) for file in event.attachments]
        return tuple(file for file in found if file is not None)

    async def _keep(self, event: InboundEvent, file: Attachment) -> Attachment | None:
        file_id = (file.key or "").removeprefix(FILE_KEY)
        try:
            kept = await self._store.keep(
                folder_of(event),
                self._content(file_id),
                media_type=file.media_type,
                name=file.name,
                kind=file.kind,
            )
        except (TelegramAPIError, MediaRefusedError, aiohttp.ClientError, TimeoutError) as error:
            # Without its text, which may contain the address with the token.
            _log.warning("file_not_kept", extra={"error": type(error).__name__})
            return None
        return kept.model_copy(update={"duration_ms": file.duration_ms})

    async def _content(self, file_id: str) -> AsyncIterator[bytes]:
        found = await self._bot.get_file(file_id)
        session = self._bot.session
        url = session.api.file_url(self._bot.token, found.file_path or "")
        async for chunk in session.stream_content(url, timeout=_SECONDS):
            yield chunk
