"""Send what chatlane says to rooms of Matrix, as any account."""

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from typing import Any, ClassVar, Final
from uuid import uuid4

from aiohttp import ClientSession, ClientTimeout
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.markdown import Renderer
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.matrix.client import MatrixClient
from chatlane_adapters.matrix.files import file_of, mapping, text
from chatlane_adapters.matrix.refusals import UNREACHABLE, HomeserverError, RevokedTokenError
from chatlane_adapters.matrix.render import (
    RENDERER,
    TEXT_LIMIT,
    RoomText,
    edit_of,
    file_content,
    name_of,
    placed,
)
from chatlane_adapters.matrix.settings import HomeserverSettings
from chatlane_client import AdapterClient, ChatGone, Piece, RetryAfter, Undeliverable, chat_of
from chatlane_schemas import Attachment, InboundEvent, OutboundKind, Source

_log: Final = logging.getLogger(__name__)

_TYPING_MILLISECONDS: Final = 6_000
# How long a delivery waits for the rooms of a process that has just taken over.
_READY_SECONDS: Final = 20
_REVOKED_PAUSE_SECONDS: Final = 60.0
_PAUSE_SECONDS: Final = 5.0
_FETCH_SECONDS: Final = 60


class RoomPlatform(Platform):
    """One account of a homeserver; how it receives is the part of its mode."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        platform="matrix",
        text_limit=TEXT_LIMIT,
        has_buttons=False,
        has_idempotent_sends=True,
        has_member_list=True,
        has_readable_files=True,
    )

    renderer: ClassVar[Renderer[Any] | None] = RENDERER

    def __init__(self, settings: HomeserverSettings) -> None:
        """Create the platform; nothing is connected before `receive`."""
        self._max_file_bytes = settings.max_file_bytes
        self._client: MatrixClient | None = None
        self._is_ready = asyncio.Event()

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        while True:
            try:
                await self._receive(adapter)
            except* RevokedTokenError:
                self.note_account(is_refused=True)
            except* UNREACHABLE as failed:
                _log.warning(
                    "homeserver_unreachable", extra={"error": type(failed.exceptions[0]).__name__}
                )
            except* RetryAfter:
                _log.warning("login_limited")
            await asyncio.sleep(self._pause)

    @abstractmethod
    async def _receive(self, adapter: AdapterClient) -> None:
        """Connect, and publish what happens in the rooms of the account until an error."""

    def _become_ready(self, client: MatrixClient) -> None:
        self._client = client
        self.note_account(is_refused=False)
        self._is_ready.set()

    async def _close(self, client: MatrixClient) -> None:
        self._is_ready.clear()
        self._client = None
        await client.close()

    @property
    def _pause(self) -> float:
        """Seconds until the account is tried again."""
        return _REVOKED_PAUSE_SECONDS if self.refused else _PAUSE_SECONDS

    async def _until_ready(self) -> MatrixClient:
        """Return the device once its rooms are known."""
        if not self.refused:
            with suppress(TimeoutError):
                async with asyncio.timeout(_READY_SECONDS):
                    await self._is_ready.wait()
        if self._client is None:
            raise RetryAfter(self._pause, whole_account=True)
        return self._client

    @override
    async def deliver(self, piece: Piece) -> str | None:
        client = await self._until_ready()
        message = piece.message
        room_id = chat_of(message.target)
        is_notice = message.kind is OutboundKind.NOTICE
        first: str | None = None
        reply_to = piece.reply_to
        if piece.rendered is not None:
            content = piece.rendered.content(is_notice=is_notice)
            if piece.edits is not None:
                first = piece.edits
                if first == message.draft:
                    await self._require_shown(client, room_id, first)
                content = edit_of(piece.edits, content)
            else:
                content = placed(content, thread_id=message.target.thread_id, reply_to=reply_to)
                reply_to = None
            sent = await self._send(client, room_id, content, piece.key)
            first = first or sent
        for number, file in enumerate(piece.attachments):
            content = await self._upload(client, room_id, file)
            content = placed(content, thread_id=message.target.thread_id, reply_to=reply_to)
            sent = await self._send(client, room_id, content, f"{piece.key}-file-{number}")
            reply_to = None
            first = first or sent
        return first

    @override
    async def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, decrypted; its key is only in the event."""
        client = await self._until_ready()
        room_id = event.chat.id if event.chat is not None else None
        raw = mapping(await client.event(room_id or "", event.message_id or ""), "content")
        found = file_of(text(raw, "msgtype") or "m.sticker", raw)
        if found is None or found.mxc != file.url:
            raise HomeserverError("M_NOT_FOUND")
        yield await client.download(found)

    async def _require_shown(self, client: MatrixClient, room_id: str, event_id: str) -> None:
        """Refuse to edit a draft that was deleted, because an edit of it is not shown."""
        try:
            event = await client.event(room_id, event_id)
        except RevokedTokenError as error:
            raise RetryAfter(_REVOKED_PAUSE_SECONDS, whole_account=True) from error
        except ChatGone as error:
            # Whether the room is gone as well shows when the text is sent without the draft.
            raise Undeliverable("there is no such message") from error
        if mapping(mapping(event, "unsigned"), "redacted_because"):
            raise Undeliverable("the message was deleted")

    async def _send(
        self, client: MatrixClient, room_id: str, content: dict[str, Any], key: str
    ) -> str:
        try:
            return await client.send(room_id, "m.room.message", content, key)
        except RevokedTokenError as error:
            raise RetryAfter(_REVOKED_PAUSE_SECONDS, whole_account=True) from error

    async def _upload(self, client: MatrixClient, room_id: str, file: Attachment) -> dict[str, Any]:
        """Upload a file and return the content of its message; a link if it cannot be fetched."""
        url = file.url or ""
        if url.startswith("mxc://"):
            return file_content(file, {"url": url}, file.size_bytes or 0)
        data = await _fetch(url, self._max_file_bytes)
        if data is None:
            return RoomText(f"{name_of(file)}: {url}").content()
        place = await client.upload(room_id, data, file.media_type, name_of(file))
        return file_content(file, place, len(data))

    @override
    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        client = await self._until_ready()
        content = _draft_of(text)
        content = placed(content, thread_id=target.thread_id, reply_to=None)
        return await self._send(client, chat_of(target), content, key)

    @override
    async def edit(self, target: Source, message_id: str, text: str) -> None:
        client = await self._until_ready()
        content = edit_of(message_id, _draft_of(text))
        await self._send(client, chat_of(target), content, str(uuid4()))

    @override
    async def delete(self, target: Source, message_id: str) -> None:
        client = await self._until_ready()
        await client.redact(chat_of(target), message_id)

    @override
    async def show_typing(self, target: Source) -> None:
        if self._client is not None:
            await self._client.show_typing(chat_of(target), _TYPING_MILLISECONDS)


def _draft_of(text: str) -> dict[str, Any]:
    return (RENDERER.first(text) or RoomText(text)).content()


async def _fetch(url: str, max_bytes: int) -> bytes | None:
    """Return the content of a file, or None if there is none or it is too large.

    Raises:
        ClientError: Its server may answer later.
    """
    if not url.startswith(("http://", "https://")):
        return None
    async with (
        ClientSession(timeout=ClientTimeout(total=_FETCH_SECONDS)) as session,
        session.get(url) as answer,
    ):
        if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            answer.raise_for_status()
        if not answer.ok:
            return None
        data = bytearray()
        async for chunk in answer.content.iter_chunked(64 * 1024):
            data += chunk
            if len(data) > max_bytes:
                return None
    return bytes(data)
