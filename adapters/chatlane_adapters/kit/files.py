"""Fetch the files of messages into the store of files, and the words of voice messages.

A message with files is published at once, and its files follow once they are kept: a large file
holds up its own conversation and no other one. The service waits for them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from mimetypes import guess_extension
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nats.aio.client import Client
from typing_extensions import override

from chatlane_adapters.kit.metrics import CountingAdapter
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.voice import VoiceCommand
from chatlane_client import (
    ConnectionClosedError,
    OversizedMessageError,
    RateBudget,
    RefusedPublishError,
)
from chatlane_client.media.store import MediaRefusedError, MediaStore, folder_of
from chatlane_client.transport.wire import Stored
from chatlane_schemas import Attachment, InboundEvent, Kind

_log: Final = logging.getLogger(__name__)

# Each message holds up to the largest file in memory or on disk.
_AT_ONCE: Final = 4
_FETCHED_WITHIN: Final = 60.0
# What the message has said already.
_SAID: Final = ("awaits_files", "text", "album_id", "observed", "forward", "quote", "reply_to")
_SHOWN: Final = ("location", "contacts", "poll", "sticker")


class FileKeeper:
    """Fetches the files of messages.

    Args:
        platform: Reads them.
        media: Keeps them; None leaves them on the platform.
        voice: Turns voice messages into words; None leaves them as files.
        max_bytes: Size of the largest file.
    """

    def __init__(
        self,
        platform: Platform,
        media: MediaStore | None,
        voice: VoiceCommand | None,
        max_bytes: int,
    ) -> None:
        self._platform = platform
        self._media = media
        self._voice = voice
        self._max_bytes = max_bytes
        self._room = asyncio.Semaphore(_AT_ONCE)

    def fetches(self, event: InboundEvent) -> bool:
        """Return whether files of a message are to be fetched after it."""
        if event.kind is not Kind.MESSAGE or not event.attachments or event.awaits_files:
            return False
        return self._media is not None or any(
            self._is_spoken(event, it) for it in event.attachments
        )

    async def files_of(self, event: InboundEvent) -> InboundEvent:
        """Fetch the files of a message, and return the event that brings them."""
        async with self._room:
            files, words = await self._fetched(event)
        changes = {
            "id": f"{event.id}-files",
            "kind": Kind.ATTACHMENTS,
            "event_id": "files",
            **dict.fromkeys((*_SAID, *_SHOWN)),
            "attachments": files,
            "text": words,
        }
        return event.model_copy(update=changes)

    async def with_kept_files(self, event: InboundEvent) -> InboundEvent:
        """Return an edit with its files in the store, as far as they have no address yet."""
        if event.kind is not Kind.EDIT or self._media is None or _has_addresses(event):
            return event
        files, _ = await self._fetched(event)
        return event.model_copy(update={"attachments": files})

    def _is_spoken(self, event: InboundEvent, file: Attachment) -> bool:
        """Return whether the words of a file are wanted; a text of the person comes first."""
        return (
            self._voice is not None
            and event.kind is Kind.MESSAGE
            and event.text is None
            and file.kind == "voice"
        )

    async def _fetched(self, event: InboundEvent) -> tuple[tuple[Attachment, ...], str | None]:
        """Return the files of a message, and the words of its voice messages.

        A file that cannot be kept stays where it is, or is missing if it has no address there and
        agents expect it in the store.
        """
        files: list[Attachment] = []
        words: list[str] = []
        for file in event.attachments:
            try:
                kept, spoken = await self._fetch(event, file)
            except Exception as error:  # noqa: BLE001 - any error of a platform or of a store
                # Without its text, which may contain an address with a token.
                _log.warning("file_not_kept", extra={"error": type(error).__name__})
                files += [file] if file.url is not None or self._media is None else []
            else:
                files.append(kept)
                words += [] if spoken is None else [spoken]
        return tuple(files), "\n".join(words) or None

    async def _fetch(self, event: InboundEvent, file: Attachment) -> tuple[Attachment, str | None]:
        """Return a file as it is kept, and its words."""
        is_spoken = self._is_spoken(event, file)
        if self._media is None and not is_spoken:
            return file, None
        if (file.size_bytes or 0) > self._max_bytes:
            raise MediaRefusedError("the file is too large")
        if self._voice is not None and is_spoken:
            return await self._listen(event, file, self._voice)
        return await self._keep(event, file, self._platform.content(event, file)), None

    async def _listen(
        self, event: InboundEvent, file: Attachment, voice: VoiceCommand
    ) -> tuple[Attachment, str | None]:
        """Return a voice message and its words."""
        async with asyncio.timeout(_FETCHED_WITHIN):
            data = await self._read(self._platform.content(event, file))
        kept = await self._keep(event, file, _chunks(data))
        with TemporaryDirectory(prefix="chatlane-voice-") as directory:
            path = Path(directory) / f"voice{guess_extension(file.media_type) or ''}"
            await asyncio.to_thread(path.write_bytes, data)
            return kept, await voice.words(path)

    async def _read(self, content: AsyncIterator[bytes]) -> bytes:
        data = bytearray()
        async for chunk in content:
            data += chunk
            if len(data) > self._max_bytes:
                raise MediaRefusedError("the voice message is too large")
        return bytes(data)

    async def _keep(
        self, event: InboundEvent, file: Attachment, content: AsyncIterator[bytes]
    ) -> Attachment:
        if self._media is None:
            return file
        async with asyncio.timeout(_FETCHED_WITHIN):
            kept = await self._media.keep(
                folder_of(event),
                content,
                media_type=file.media_type,
                name=file.name,
                kind=file.kind,
            )
        return kept.model_copy(update={"duration_ms": file.duration_ms})


def _has_addresses(event: InboundEvent) -> bool:
    return all(file.url is not None for file in event.attachments)


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    yield data


class KeepingAdapter(CountingAdapter):
    """Publishes for an account, and brings the files of messages after them.

    Args:
        client: An open connection.
        platform: Declared name of the platform.
        account: Declared name of the account.
        budget: Rates that the platform allows.
        keeper: Fetches the files; None leaves them on the platform.
    """

    def __init__(
        self,
        client: Client,
        *,
        platform: str,
        account: str,
        budget: RateBudget,
        keeper: FileKeeper | None,
    ) -> None:
        super().__init__(client, platform=platform, account=account, budget=budget)
        self._keeper = keeper
        self._fetching: set[asyncio.Task[None]] = set()

    @override
    async def publish(
        self,
        event: InboundEvent,
        *,
        give_up_after: timedelta | None = None,
        waits_for_room: bool = False,
    ) -> Stored:
        keeper = self._keeper
        message = event
        if keeper is not None and keeper.fetches(event):
            message = event.model_copy(update={"attachments": (), "awaits_files": True})
        elif keeper is not None:
            message = await keeper.with_kept_files(event)
        stored = await super().publish(
            message, give_up_after=give_up_after, waits_for_room=waits_for_room
        )
        if keeper is not None and message.awaits_files and not event.awaits_files:
            task = asyncio.create_task(self._bring_files(keeper, event))
            self._fetching.add(task)
            task.add_done_callback(self._fetching.discard)
        return stored

    async def _bring_files(self, keeper: FileKeeper, event: InboundEvent) -> None:
        files = await keeper.files_of(event)
        try:
            await super().publish(files, waits_for_room=True)
        except (ConnectionClosedError, OversizedMessageError, RefusedPublishError) as error:
            # The message runs without them.
            _log.error("event_refused", extra={"kind": files.kind, "error": type(error).__name__})

    async def stop_fetching(self) -> None:
        """End what is being fetched; the messages run without these files."""
        for task in self._fetching:
            task.cancel()
        await asyncio.gather(*self._fetching, return_exceptions=True)
