"""A TCP link with the faults of a bad network: slow, thin, stalling, torn, or silent.

Lost and reordered packets show as delays above TCP, so `Weather.stall` is what stands for them.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final
from urllib.parse import urlsplit

from chatlane_servers.embedded import LOOPBACK

_CHUNK_BYTES: Final = 4096
# On its way at once, of one direction; a sender waits for the rest.
_CHUNKS: Final = 256
_CLOSE_BY_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to every chunk of bytes, in either direction.

    Attributes:
        delay: Each takes so long.
        jitter: And up to so much more.
        stall: Some take so much more, and what was sent after them waits for them.
        stalled: How many of them, as a share.
        bytes_per_second: A connection takes no more, in one direction; 0 for no limit.
    """

    delay: timedelta = timedelta(0)
    jitter: timedelta = timedelta(0)
    stall: timedelta = timedelta(0)
    stalled: float = 0.0
    bytes_per_second: int = 0


FINE: Final = Weather()


@dataclass(eq=False, slots=True)
class _Connection:
    """Both ends of a connection, and what has become of it."""

    writers: list[asyncio.StreamWriter]
    is_silent: bool = False
    is_torn: bool = False
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def reset(self) -> None:
        """End it as a router does that has forgotten it."""
        for writer in self.writers:
            its = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                its.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _CLOSE_BY_RESET)
            writer.transport.abort()


class FlakyProxy:
    """Forwards both ways, as the weather is.

    Attributes:
        weather: May be changed at any time.
        port: Where clients connect.
    """

    def __init__(self, server_url: str, seed: int = 7) -> None:
        parts = urlsplit(server_url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._connections: set[_Connection] = set()
        self._chance = Random(seed)  # noqa: S311 # the same every time
        self.weather = FINE
        self.port = 0

    @property
    def count(self) -> int:
        """How many connections there are that still carry something."""
        return sum(not its.is_silent for its in self._connections)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["FlakyProxy"]:
        """Listen until the end of the block."""
        listener = await asyncio.start_server(self._connect, LOOPBACK, 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            tasks = [task for its in self._connections for task in its.tasks]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def silence(self) -> None:
        """Let nothing through on what is connected now, and say so to nobody; new ones work."""
        for its in self._connections:
            its.is_silent = True

    def tear(self) -> None:
        """Reset every connection in the midst of what it carries next; new ones work."""
        for its in self._connections:
            its.is_torn = True

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        its = _Connection([writer, server_writer])
        self._connections.add(its)
        its.tasks = [
            asyncio.create_task(self._forward(its, reader, server_writer)),
            asyncio.create_task(self._forward(its, server_reader, writer)),
        ]
        await asyncio.gather(*its.tasks, return_exceptions=True)
        self._connections.discard(its)
        its.reset()

    async def _forward(
        self, its: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        under_way = asyncio.Queue[tuple[float, bytes]](_CHUNKS)
        arriving = asyncio.create_task(self._arrive(its, under_way, writer))
        try:
            with contextlib.suppress(OSError):
                await self._depart(reader, under_way)
            await under_way.put((0.0, b""))
            await arriving
        finally:
            arriving.cancel()

    async def _depart(
        self, reader: asyncio.StreamReader, under_way: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        loop, chance = asyncio.get_running_loop(), self._chance
        free_at = 0.0
        while data := await reader.read(_CHUNK_BYTES):
            weather = self.weather
            takes = len(data) / weather.bytes_per_second if weather.bytes_per_second else 0.0
            free_at = max(free_at, loop.time()) + takes
            due = free_at + (weather.delay + chance.random() * weather.jitter).total_seconds()
            if chance.random() < weather.stalled:
                due += weather.stall.total_seconds()
            await under_way.put((due, data))

    async def _arrive(
        self,
        its: _Connection,
        under_way: asyncio.Queue[tuple[float, bytes]],
        writer: asyncio.StreamWriter,
    ) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while (item := await under_way.get())[1]:
                due, data = item
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                if its.is_torn:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    its.reset()
                if not its.is_silent:
                    writer.write(data)
                    await writer.drain()
        if not its.is_silent:
            writer.close()
