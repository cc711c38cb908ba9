"""Tools that change sessions, for servers that allow it."""

from typing import Any, Final
from uuid import UUID

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations

from chatlane_bridges.mcp.operator_link import OperatorLink, told_errors
from chatlane_bridges.mcp.read_tools import Session
from chatlane_schemas.session_api.sessions import SessionView

_CHANGES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
_ENDS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False
)


class ChangeTools:
    """The tools that change a session; the audit names the principal of this server."""

    def __init__(self, link: OperatorLink) -> None:
        self._link = link

    def add_to(self, server: MCPServer[Any]) -> None:
        """Add the tools to a server."""
        for change in (self.archive_session, self.reopen_session):
            server.add_tool(change, annotations=_CHANGES)
        for end in (self.stop_session, self.cancel_turn, self.end_session, self.retry_turn):
            server.add_tool(end, annotations=_ENDS)

    async def archive_session(
        self, session_id: Session, *, archived: bool = True
    ) -> dict[str, Any]:
        """Archive a session, or take it out of the archive."""
        with told_errors():
            sessions = await self._link.sessions()
            return _state(await sessions.archive(session_id, archived=archived))

    async def reopen_session(self, session_id: Session) -> dict[str, Any]:
        """Open a session again that has ended or was suspended."""
        with told_errors():
            return _state(await (await self._link.sessions()).reopen(session_id))

    async def stop_session(self, session_id: Session) -> dict[str, Any]:
        """Stop the running turn of a session and drop the messages that wait; it stays open."""
        with told_errors():
            stopped = await (await self._link.sessions()).stop(session_id)
        return stopped.model_dump(mode="json", exclude={"id", "at", "error"}, exclude_none=True)

    async def cancel_turn(self, turn_id: UUID) -> dict[str, Any]:
        """End one turn; the next turn answers the messages behind it."""
        with told_errors():
            stopped = await (await self._link.sessions()).cancel_turn(turn_id)
        return stopped.model_dump(mode="json", exclude={"id", "at", "error"}, exclude_none=True)

    async def end_session(self, session_id: Session) -> dict[str, Any]:
        """End a session; its transcript stays."""
        with told_errors():
            return _state(await (await self._link.sessions()).end(session_id))

    async def retry_turn(self, session_id: Session) -> dict[str, Any]:
        """Take the last turn of a session back, and let its messages be answered again."""
        with told_errors():
            await (await self._link.transcripts()).retry(session_id)
            return _state(await (await self._link.sessions()).get(session_id))


def _state(session: SessionView) -> dict[str, Any]:
    names = {"id", "ended_at", "archived_at", "is_busy", "is_suspended"}
    return session.model_dump(mode="json", include=names, exclude_none=True)
