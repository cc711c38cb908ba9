"""Keep files of chats by reference, in an object store or in a local directory.

A message carries the key of a file and a signed link that ends. The key begins with the platform,
the account and the digest of the chat: the folder, so that the files of a chat can be deleted
together.
"""

import hashlib
import mimetypes
import re
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Annotated, Final, NamedTuple, TypeAlias

import obstore
from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, ObjectStore, S3Store, from_url
from pydantic import BaseModel, Field

from chatlane_client.media.links import LinkServer, link_secret
from chatlane_schemas import Attachment, InboundEvent
from chatlane_schemas.topology import subjects

Sign: TypeAlias = Callable[[str, timedelta], Awaitable[str]]
"""Returns a link to the file of a key that ends after some time."""

_MIB: Final = 1024 * 1024
_UNKNOWN: Final = "application/octet-stream"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,64}/[a-z0-9.+-]{1,100}")
# Keys that this module makes; others may lead anywhere in a bucket.
_KEY: Final = re.compile(r"[^/]+/[^/]+/[0-9a-z_-]+/[0-9a-f]{64}\.[a-z0-9.+-]{1,20}")
_HEAD_BYTES: Final = 16
# How a file of a type begins. A file that begins in another way is not served under that type.
_BEGINNINGS: Final = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF8",),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF",),
    "audio/ogg": (b"OggS",),
    "video/webm": (b"\x1aE\xdf\xa3",),
    "application/zip": (b"PK",),
}
_DELETED_AT_ONCE: Final = 1000


class MediaRefusedError(Exception):
    """A file is not kept: it is too large, or of a type that is not accepted."""


class MediaStoreError(Exception):
    """The settings name no store that can hold files of chats."""


class StoredFile(NamedTuple):
    """A file that is read from the store.

    Attributes:
        size_bytes: Its size.
        content: Its bytes.
    """

    size_bytes: int
    content: AsyncIterator[bytes]


class MediaSettings(BaseModel):
    """Settings of the store for files of chats; without `url`, there is no store."""

    url: Annotated[
        str | None,
        Field(
            description="`s3://bucket/prefix`, with keys in `AWS_*`, or another store of obstore; a "
            "path is a local directory, for development."
        ),
    ] = None
    max_bytes: Annotated[int, Field(gt=0, description="Size of the largest file.")] = 50 * _MIB
    types: Annotated[
        tuple[str, ...], Field(description="Media types that are accepted, as JSON list.")
    ] = ("*/*",)
    link_hours: Annotated[
        int, Field(gt=0, le=168, description="How long a link is valid; S3 allows 168.")
    ] = 168
    listen_host: Annotated[str, Field(description="Address that serves a local directory.")] = (
        "127.0.0.1"
    )
    listen_port: Annotated[int, Field(ge=0, le=65535, description="Its port.")] = 0
    public_url: Annotated[
        str | None, Field(description="Address under which agents reach it, if it is another one.")
    ] = None


@asynccontextmanager
async def open_media(settings: MediaSettings) -> AsyncIterator["MediaStore | None"]:
    """Open the store of files for the length of the block; None if there is none.

    Raises:
        MediaStoreError: There is no such store, or it cannot make links.
    """
    if settings.url is None:
        yield None
        return
    if "://" in settings.url:
        try:
            store = from_url(settings.url)
        except (BaseError, ValueError) as error:
            raise MediaStoreError("the address of the store of files is none of obstore") from error
        if not isinstance(store, S3Store | GCSStore | AzureStore):
            raise MediaStoreError(f"a store of {settings.url.partition(':')[0]} signs no links")

        async def sign(key: str, lifetime: timedelta) -> str:
            return await obstore.sign_async(store, "GET", key, lifetime)

        yield MediaStore(store, sign, settings)
        return
    directory = Path(settings.url)
    local = LocalStore(directory / "files", mkdir=True)
    server = LinkServer(local, link_secret(directory), settings.public_url)
    async with server.run(settings.listen_host, settings.listen_port):
        yield MediaStore(local, server.sign, settings)


class MediaStore:
    """Keeps files and makes links to them.

    Args:
        store: Holds the files.
        sign: Makes a link.
        settings: Limits of files and links.
    """

    def __init__(self, store: ObjectStore, sign: Sign, settings: MediaSettings) -> None:
        self._store = store
        self._sign = sign
        self._settings = settings

    async def keep(
        self,
        folder: str,
        content: AsyncIterable[bytes],
        *,
        media_type: str,
        name: str | None = None,
        kind: str | None = None,
    ) -> Attachment:
        """Keep a file and return the reference to it.

        The same file in the same folder is stored once. A file that does not begin as its media
        type does is of an unknown type.

        Args:
            folder: Beginning of the key, from `folder_of` or `chat_folder`.
            content: The bytes of the file.
            media_type: As the platform names it.
            name: Name that people see.
            kind: What the platform shows it as.

        Raises:
            MediaRefusedError: It is too large, or of a type that is not accepted.
        """
        media_type = media_type.partition(";")[0].strip().lower()
        if not _MEDIA_TYPE.fullmatch(media_type):
            media_type = _UNKNOWN
        if not any(fnmatch(media_type, accepted) for accepted in self._settings.types):
            raise MediaRefusedError(f"files of the type {media_type} are not accepted")
        with TemporaryFile() as spool:
            digest, size, head = await self._spool(content, spool)
            media_type = _checked(media_type, head)
            key = f"{folder}{digest}{mimetypes.guess_extension(media_type) or '.bin'}"
            if not await self._has(key):
                await self._put(key, spool, media_type)
        return Attachment(
            key=key,
            url=await self.link(key),
            media_type=media_type,
            size_bytes=size,
            name=name,
            kind=kind,
        )

    async def link(self, key: str) -> str:
        """Return a link to a file; everybody who has the link can read the file until it expires."""
        return await self._sign(key, timedelta(hours=self._settings.link_hours))

    async def read(self, key: str) -> StoredFile:
        """Return the content of a file.

        Raises:
            FileNotFoundError: The store has no such file.
        """
        if not _KEY.fullmatch(key):
            raise FileNotFoundError(key)
        found = await obstore.get_async(self._store, key)

        async def content() -> AsyncIterator[bytes]:
            async for chunk in found.stream():
                yield bytes(chunk)

        return StoredFile(found.meta["size"], content())

    async def delete(self, *keys: str) -> int:
        """Delete files by the keys that attachments name; return how many of them there were."""
        # S3 confirms the deletion of a missing file, so that its answer is no count.
        present = [key for key in dict.fromkeys(keys) if await self._has(key)]
        await self._remove(present)
        return len(present)

    async def delete_chat(self, platform: str, account: str, chat_id: str) -> int:
        """Delete all files of a chat and return how many there were.

        Args:
            platform: Declared name of the platform.
            account: Declared name of the account.
            chat_id: Platform's id of the chat.
        """
        folder = chat_folder(platform, account, chat_id)
        return await self._delete_found(folder, lambda _: True)

    async def delete_older(self, before: datetime) -> int:
        """Delete all files that were stored before a time and return how many there were."""
        return await self._delete_found(None, lambda stored_at: stored_at < before)

    async def _delete_found(self, prefix: str | None, is_wanted: Callable[[datetime], bool]) -> int:
        count = 0
        async for listed in obstore.list(self._store, prefix, chunk_size=_DELETED_AT_ONCE):
            keys = [it["path"] for it in listed if is_wanted(it["last_modified"])]
            await self._remove(keys)
            count += len(keys)
        return count

    async def _remove(self, keys: list[str]) -> None:
        try:
            await obstore.delete_async(self._store, keys)
        except FileNotFoundError:
            # Another process was faster; how many of the others are deleted is not known.
            for key in keys:
                with suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, key)

    async def _spool(
        self, content: AsyncIterable[bytes], spool: IO[bytes]
    ) -> tuple[str, int, bytes]:
        """Write a file to a temporary one; return its digest, size and first bytes."""
        digest, size, head = hashlib.sha256(), 0, b""
        async for chunk in content:
            size += len(chunk)
            if size > self._settings.max_bytes:
                raise MediaRefusedError(f"the file has over {self._settings.max_bytes} bytes")
            digest.update(chunk)
            head += chunk[: _HEAD_BYTES - len(head)]
            spool.write(chunk)
        spool.seek(0)
        return digest.hexdigest(), size, head

    async def _has(self, key: str) -> bool:
        try:
            await obstore.head_async(self._store, key)
        except FileNotFoundError:
            return False
        return True

    async def _put(self, key: str, spool: IO[bytes], media_type: str) -> None:
        # A directory keeps no attributes; its server takes the type from the key.
        attributes = None
        if not isinstance(self._store, LocalStore):
            attributes = {"Content-Type": media_type, "Content-Disposition": "attachment"}
        await obstore.put_async(self._store, key, spool, attributes=attributes)


def folder_of(event: InboundEvent) -> str:
    """Return the beginning of the keys of all files in the chat of an event."""
    return f"{event.platform}/{event.account}/{subjects.chat_token_of(event)}/"


def chat_folder(platform: str, account: str, chat_id: str) -> str:
    """Return the beginning of the keys of all files in a chat; of a DM the chat is the person."""
    return f"{platform}/{account}/{subjects.chat_token(chat_id)}/"


def _checked(media_type: str, head: bytes) -> str:
    beginnings = _BEGINNINGS.get(media_type)
    return media_type if beginnings is None or head.startswith(beginnings) else _UNKNOWN
