"""One bridge: an editor on stdin and stdout, chatlane at the other side."""

import asyncio
import logging
import sys
from typing import Final

from acp.agent.router import build_agent_router
from acp.connection import Connection
from acp.core import DEFAULT_STDIO_BUFFER_LIMIT_BYTES
from acp.meta import AGENT_METHODS
from acp.schema import DeleteSessionRequest
from acp.stdio import stdio_streams

from chatlane_bridges.acp.agent import EditorAgent
from chatlane_bridges.acp.editor import Editor
from chatlane_bridges.acp.service_link import ServiceLink
from chatlane_bridges.acp.settings import EditorOptions, EditorSettings

# A conversation waits here for the editor, so that the bridge need not wait for its reads.
_WRITE_BUFFER_BYTES: Final = 8 * 1024 * 1024
_WRITTEN_WITHIN_SECONDS: Final = 0.002
_MAX_WAITING_BYTES: Final = 256 * 1024


async def serve(settings: EditorSettings, offered: EditorOptions) -> None:
    """Serve the editor on stdin and stdout until it closes stdin; logs go to stderr."""
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level.upper(),
        format="%(levelname)s %(name)s %(message)s",
    )
    reader, writer = await stdio_streams(limit=DEFAULT_STDIO_BUFFER_LIMIT_BYTES)
    await serve_streams(settings, offered, reader, writer)


async def serve_streams(
    settings: EditorSettings,
    offered: EditorOptions,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Serve an editor at the other end of two streams until it closes its end."""
    writer.transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)
    link, editor = ServiceLink(settings), Editor()
    agent = EditorAgent(link, editor, offered, settings.profile)
    # Fork, resume and close are marked as unstable in the SDK, and it does not route delete.
    router = build_agent_router(agent, use_unstable_protocol=True)  # type: ignore[arg-type] # answers are JSON
    delete = AGENT_METHODS["session_delete"]
    router.route_request(delete, DeleteSessionRequest, agent, "delete_session")
    lines = _LineWriter(writer)
    connection = Connection(router, lines, reader, listening=False)  # type: ignore[arg-type] # writes and drains
    editor.connect(connection)
    try:
        await connection.main_loop()
    finally:
        await agent.close()
        await connection.close()
        lines.flush()
        await link.close()


class _LineWriter:
    """Collects lines for two milliseconds and writes them together.

    A long conversation is thousands of lines. A write for each would wake the editor each time, and
    both would wait for a processor.
    """

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lines: list[bytes] = []
        self._size = 0
        self._flushing: asyncio.TimerHandle | None = None

    def write(self, line: bytes) -> None:
        """Write a line soon."""
        self._lines.append(line)
        self._size += len(line)
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(_WRITTEN_WITHIN_SECONDS, self.flush)

    async def drain(self) -> None:
        """Wait until more lines may be written."""
        if self._size >= _MAX_WAITING_BYTES:
            self.flush()
        await self._writer.drain()

    def flush(self) -> None:
        """Write what waits."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if self._lines:
            self._writer.write(b"".join(self._lines))
            self._lines.clear()
            self._size = 0
