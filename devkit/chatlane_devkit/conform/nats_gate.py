"""A way to NATS that can be blocked in one direction or both, so that a crash can be placed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

_CHUNK: Final = 2**16


class NatsGate:
    """Passes the bytes of the adapter on to NATS, and back.

    Attributes:
        url: Where the adapter connects.
    """

    def __init__(self, nats_url: str) -> None:
        address = urlsplit(nats_url)
        self._host, self._port = address.hostname or "127.0.0.1", address.port or 4222
        self._login = f"{address.username}:{address.password}@" if address.username else ""
        self._to_nats, self._from_nats = asyncio.Event(), asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self.url = ""
        self.open()

    def open(self) -> None:
        """Let everything pass."""
        self._to_nats.set()
        self._from_nats.set()

    def withhold_answers(self) -> None:
        """Let NATS store what the adapter publishes, and let no confirmation pass."""
        self._from_nats.clear()

    def drop(self) -> None:
        """Close the connections, with what waits in them."""
        for task in self._connections:
            task.cancel()

    def block(self) -> None:
        """Let nothing pass."""
        self._to_nats.clear()
        self._from_nats.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            nats_reader, nats_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        passing = {
            asyncio.create_task(_pass(reader, nats_writer, self._to_nats)),
            asyncio.create_task(_pass(nats_reader, writer, self._from_nats)),
        }
        self._connections |= passing
        try:
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in passing:
                task.cancel()
            self._connections -= passing
            for end in (writer, nats_writer):
                end.transport.abort()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Listen for the length of the block."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        self.url = f"nats://{self._login}127.0.0.1:{port}"
        try:
            yield
        finally:
            self.drop()
            server.close()


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event
) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            await is_open.wait()
            writer.write(chunk)
            await writer.drain()
