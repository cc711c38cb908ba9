"""TLS in front of a Postgres that has none, as a proxy of a company's network has it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

# What a client sends before anything else: 8 bytes, then this number.
_SSL_REQUEST = (8).to_bytes(4, "big") + (80877103).to_bytes(4, "big")


@asynccontextmanager
async def tls_front(dsn: str, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Listen on loopback; yield the port. Whoever does not ask for TLS is not served."""
    parts = urlsplit(dsn)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError):
            if await reader.readexactly(8) == _SSL_REQUEST:
                writer.write(b"S")
                await writer.start_tls(context)
                behind = await asyncio.open_connection(parts.hostname, parts.port)
                await asyncio.gather(_pass_on(reader, behind[1]), _pass_on(behind[0], writer))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
