"""TCP links between the servers of a cluster that can lose what one of them says to another."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Final

from chatlane_servers.embedded import LOOPBACK

_CHUNK_BYTES: Final = 65_536
# What a server says first when it connects to another one.
_SERVER_NAME: Final = re.compile(rb'"server_name":"([^"]+)"')
_LONGEST_GREETING: Final = 65_536

Way = tuple[str, str]


class RouteLinks:
    """One link in front of each server; knows who is at both ends.

    What is on its way while a way is blocked arrives when it is free again, as it does where a
    network lost packets: connections stand, and nothing comes.
    """

    def __init__(self) -> None:
        self._blocked: set[Way] = set()
        self._changed = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()

    @contextlib.asynccontextmanager
    async def open(self, target: str, route_port: int) -> AsyncIterator[int]:
        """Listen in front of a server until the end of the block; yields the port."""

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._connect(target, route_port, reader, writer)

        listener = await asyncio.start_server(connect, LOOPBACK, 0)
        try:
            yield int(listener.sockets[0].getsockname()[1])
        finally:
            listener.close()
            await self.heal()
            for writer in self._writers:
                writer.close()

    async def block(self, *ways: Way) -> None:
        """Let nothing through from the first server of each way to the second."""
        async with self._changed:
            self._blocked.update(ways)

    async def heal(self) -> None:
        """Let everything through again."""
        async with self._changed:
            self._blocked.clear()
            self._changed.notify_all()

    async def _connect(
        self,
        target: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        source: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(OSError):
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._say(reader, server_writer, source, target))
                ways.create_task(self._hear(server_reader, writer, source, target))
        self._writers -= {writer, server_writer}

    async def _say(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.Future[str],
        target: str,
    ) -> None:
        greeting = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if not source.done():
                    greeting += data
                    if found := _SERVER_NAME.search(greeting):
                        source.set_result(found[1].decode())
                    assert len(greeting) < _LONGEST_GREETING, "a server that does not greet"
                if source.done():
                    await self._until_free((source.result(), target))
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _hear(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: asyncio.Future[str],
        target: str,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if source.done():
                    await self._until_free((target, source.result()))
                writer.write(data)
                await writer.drain()
        writer.close()

    async def _until_free(self, way: Way) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: way not in self._blocked)
