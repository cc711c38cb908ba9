"""One bridge: an editor on stdin and stdout, chatlane at the other side."""

import asyncio
import logging
import sys

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
    link, editor = ServiceLink(settings), Editor()
    agent = EditorAgent(link, editor, offered, settings.profile)
    # Fork, resume and close are marked as unstable in the SDK, and it does not route delete.
    router = build_agent_router(agent, use_unstable_protocol=True)  # type: ignore[arg-type] # answers are JSON
    delete = AGENT_METHODS["session_delete"]
    router.route_request(delete, DeleteSessionRequest, agent, "delete_session")
    connection = Connection(router, writer, reader, listening=False)
    editor.connect(connection)
    try:
        await connection.main_loop()
    finally:
        await agent.close()
        await connection.close()
        await link.close()
