"""A person who writes and reads encrypted messages of Matrix, with matrix-nio."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nio import (  # type: ignore[import-untyped]
    AsyncClient,
    AsyncClientConfig,
    MegolmEvent,
    RoomMessage,
)
from nio.crypto.attachments import encrypt_attachment  # type: ignore[import-untyped]

from chatlane_devkit.platforms.matrix.homeserver import Homeserver


@dataclass
class EncryptedPerson:
    """One device of a person.

    Attributes:
        nio: Its client, which syncs all the time.
        read: What others wrote and it could decrypt, in order: sender and content.
        unreadable: Ids of the events that it could not decrypt.
    """

    nio: Any
    read: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    async def open_room(self, *invited: str) -> str:
        """Open an encrypted room."""
        encryption = {
            "type": "m.room.encryption",
            "state_key": "",
            "content": {"algorithm": "m.megolm.v1.aes-sha2"},
        }
        answer = await self.nio.room_create(
            is_direct=True, invite=invited, initial_state=[encryption]
        )
        room_id: str = answer.room_id
        return room_id

    async def say(self, room_id: str, words: str) -> None:
        """Write an encrypted message."""
        await self.send(room_id, {"msgtype": "m.text", "body": words})

    async def send(self, room_id: str, content: dict[str, Any]) -> None:
        """Send an encrypted event."""
        await self.nio.room_send(room_id, "m.room.message", content, ignore_unverified_devices=True)

    async def send_file(self, room_id: str, data: bytes, name: str) -> None:
        """Send an encrypted file."""
        sealed, key = encrypt_attachment(data)
        answer, _ = await self.nio.upload(
            lambda *_: [sealed], "application/octet-stream", filesize=len(sealed)
        )
        file = {**key, "url": answer.content_uri}
        info = {"mimetype": "image/png", "size": len(data)}
        await self.send(room_id, {"msgtype": "m.image", "body": name, "file": file, "info": info})

    def texts(self, sender: str) -> list[str]:
        """Return what a user wrote; an edit counts as a text of its own."""
        return [
            content.get("m.new_content", content)["body"]
            for author, content in self.read
            if author == sender
        ]

    def knows(self, room_id: str, user_id: str) -> bool:
        """Return whether the device has seen a user join a room."""
        room = self.nio.rooms.get(room_id)
        return room is not None and room.encrypted and user_id in room.users

    async def note(self, _: object, event: Any) -> None:  # noqa: ANN401 - of nio
        """Keep what was said."""
        if isinstance(event, MegolmEvent):
            self.unreadable.append(event.event_id)
        elif event.sender != self.nio.user_id:
            self.read.append((event.sender, event.source["content"]))


@asynccontextmanager
async def open_encrypted_person(
    homeserver: Homeserver, name: str, keys: Path
) -> AsyncIterator[EncryptedPerson]:
    """Register a person whose device is online until the end of the block.

    Args:
        homeserver: Where.
        name: Local part of the id.
        keys: An existing directory for the keys of the device.
    """
    account = await homeserver.register(name)
    config = AsyncClientConfig(encryption_enabled=True)
    nio = AsyncClient(homeserver.url, account.user_id, account.device_id, str(keys), config)
    nio.restore_login(account.user_id, account.device_id, account.token)
    person = EncryptedPerson(nio)
    nio.add_event_callback(person.note, (RoomMessage, MegolmEvent))
    syncing = asyncio.create_task(nio.sync_forever(timeout=10_000, full_state=True))
    try:
        yield person
    finally:
        syncing.cancel()
        await asyncio.wait([syncing])
        await nio.close()
        nio.store.database.close()
