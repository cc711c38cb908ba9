"""Backups of streams as `nats stream backup` and `nats stream restore` make them."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from nats.aio.client import Client

from chatlane.nats.jetstream import JetStream

_PATIENCE: Final = timedelta(seconds=20)
_CHUNK_BYTES: Final = 65_536


@dataclass(frozen=True, slots=True)
class Backup:
    """A stream at one moment: what it held, and where its durables stood."""

    stream: str
    config: dict[str, Any]
    state: dict[str, Any]
    chunks: tuple[bytes, ...]


async def back_up(client: Client, stream: str) -> Backup:
    """Ask the server for a snapshot of a stream, its durables included."""
    inbox = client.new_inbox()
    arriving = await client.subscribe(inbox)
    try:
        request = {"deliver_subject": inbox, "chunk_size": _CHUNK_BYTES}
        told = await JetStream(client, _PATIENCE).request(f"STREAM.SNAPSHOT.{stream}", request)
        chunks = []
        while (message := await arriving.next_msg(_PATIENCE.total_seconds())).data:
            chunks.append(message.data)
            # After so many the server waits to hear that they came.
            if message.reply:
                await message.respond(b"")
        return Backup(stream, told["config"], told["state"], tuple(chunks))
    finally:
        await arriving.unsubscribe()


async def restore(client: Client, backup: Backup) -> None:
    """Put a backup in the place of the stream, which goes with all its durables."""
    jetstream = JetStream(client, _PATIENCE)
    await jetstream.request(f"STREAM.DELETE.{backup.stream}")
    request = {"config": backup.config, "state": backup.state}
    place = await jetstream.request(f"STREAM.RESTORE.{backup.stream}", request)
    for chunk in (*backup.chunks, b""):
        answer = await client.request(
            place["deliver_subject"], chunk, timeout=_PATIENCE.total_seconds()
        )
        told = json.loads(answer.data or b"{}")
        assert "error" not in told, told["error"]
