"""A TCP link to the server that can lose what the server says, and break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit, urlunsplit

_CHUNK_BYTES = 65_536


class LossyLink:
    """Forwards both ways; `swallow` drops what comes from the server until `cut`.

    Attributes:
        url: Where clients connect.
        lost_bytes: How much the server said in vain.
    """

    def __init__(self, server_url: str) -> None:
        parts = urlsplit(server_url)
        self._server = (parts.hostname or "", parts.port or 0)
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_swallowing = False
        self.port = 0
        self.url = ""
        self.lost_bytes = 0

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["LossyLink"]:
        """Listen until the end of the block."""
        listener = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        try:
            yield self
        finally:
            listener.close()
            self.cut()

    def swallow(self) -> None:
        """Lose everything the server says from now on."""
        self._is_swallowing = True

    def cut(self) -> None:
        """Break all connections; new ones work."""
        self._is_swallowing = False
        for writer in self._writers:
            writer.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._server)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, server_writer}
        with contextlib.suppress(OSError):
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._forward(reader, server_writer))
                ways.create_task(self._forward(server_reader, writer, may_lose=True))
        self._writers -= {writer, server_writer}

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_lose: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                if may_lose and self._is_swallowing:
                    self.lost_bytes += len(data)
                    continue
                writer.write(data)
                await writer.drain()
        writer.close()


def through(dsn: str, port: int) -> str:
    """Return a connection string that leads through a link."""
    parts = urlsplit(dsn)
    identity = parts.netloc.rpartition("@")[0]
    netloc = f"{identity}@127.0.0.1:{port}" if identity else f"127.0.0.1:{port}"
    return urlunsplit(parts._replace(netloc=netloc))
