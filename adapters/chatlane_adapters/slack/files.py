"""Fetch the files of Slack messages into the store of files."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import aiohttp
from yarl import URL

from chatlane_client.media.store import MediaRefusedError, MediaStore, folder_of
from chatlane_schemas import Attachment, InboundEvent, Kind, new_envelope_id

_log: Final = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_CHUNK: Final = 2**16
_FETCH_TIME: Final = aiohttp.ClientTimeout(total=50, sock_connect=10)
_OK: Final = 200

Publish = Callable[[InboundEvent], Awaitable[object]]


class NotFetchedError(Exception):
    """Slack does not give a file."""


class FileFetcher:
    """Keeps files of messages, and publishes the references to them.

    Args:
        media: The store of files.
        session: Fetches them.
        api_url: Address of the Web API; its host may get tokens as well.
    """

    def __init__(self, media: MediaStore, session: aiohttp.ClientSession, api_url: str) -> None:
        self._media = media
        self._session = session
        self._host = URL(api_url).host
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, message: InboundEvent, token: str, publish: Publish) -> None:
        """Fetch the files of a message that is stored, and then publish them.

        Args:
            message: The message with the addresses that Slack names.
            token: Token of the bot.
            publish: Publishes an event.
        """
        task = asyncio.create_task(self._fetch(message, token, publish))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is being fetched; the messages run without these files."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _fetch(self, message: InboundEvent, token: str, publish: Publish) -> None:
        async with self._room:
            files = [await self._kept(message, file, token) for file in message.attachments]
        changes = {
            "id": new_envelope_id(),
            "kind": Kind.ATTACHMENTS,
            "attachments": tuple(files),
            "awaits_files": None,
            "text": None,
        }
        await publish(message.model_copy(update=changes))

    async def _kept(self, message: InboundEvent, file: Attachment, token: str) -> Attachment:
        """Return the reference to a kept file; that of Slack if it cannot be kept."""
        try:
            return await self._media.keep(
                folder_of(message),
                self._content(file.url or "", token, file.media_type),
                media_type=file.media_type,
                name=file.name,
                kind=file.kind,
            )
        except (MediaRefusedError, NotFetchedError, aiohttp.ClientError, TimeoutError) as error:
            _log.warning("file_not_kept", extra={"error": type(error).__name__})
        except Exception as error:  # noqa: BLE001 - any error of a store
            _log.error("file_not_stored", extra={"error": type(error).__name__})
        return file

    async def _content(self, url: str, token: str, media_type: str) -> AsyncIterator[bytes]:
        host = URL(url).host or ""
        if host != self._host and not f".{host}".endswith(".slack.com"):
            # Another service must not get the token, and may be an address inside of the network.
            raise NotFetchedError(host)
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.get(
            url, headers=headers, allow_redirects=False, timeout=_FETCH_TIME
        ) as response:
            is_login = response.content_type == "text/html" and media_type != "text/html"
            if response.status != _OK or is_login:
                raise NotFetchedError(response.status)
            async for chunk in response.content.iter_chunked(_CHUNK):
                yield chunk
