"""The read-only session API, typed."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.errors import SessionNotFoundError
from chatlane_client.requests import Requests
from chatlane_schemas import new_envelope_id
from chatlane_schemas.sessions import (
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)


class SessionClient:
    """Reads sessions; every request is repeated until it is answered."""

    def __init__(
        self, client: Client, *, principal: str, patience: timedelta = timedelta(seconds=10)
    ) -> None:
        """Make a client.

        Args:
            client: An open connection.
            principal: The name the connection's permissions allow it to ask under.
            patience: When to give up on a request.
        """
        self._requests = Requests(client, principal=principal, patience=patience)

    async def get(self, session_id: UUID) -> SessionView:
        """Return a session.

        Raises:
            SessionNotFoundError: There is none of this id.
        """
        request = SessionGet(id=new_envelope_id(), at=datetime.now(UTC), session_id=session_id)
        reply = await self._requests.ask("session", "get", request, SessionReply)
        if reply.session is None:
            raise SessionNotFoundError(
                self._requests.subject("session", "get"), f"no session {session_id}"
            )
        return reply.session

    async def peek(self, session_key: str) -> SessionView | None:
        """Return the session a key leads to now, if it leads to one."""
        request = SessionPeek(id=new_envelope_id(), at=datetime.now(UTC), session_key=session_key)
        try:
            return (await self._requests.ask("session", "peek", request, SessionReply)).session
        except SessionNotFoundError:
            return None

    async def list_all(
        self, *, platform: str | None = None, agent: str | None = None, page_size: int = 50
    ) -> AsyncIterator[SessionView]:
        """Yield all sessions, the newest first."""
        cursor = None
        while True:
            request = SessionList(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                platform=platform,
                agent=agent,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._requests.ask("session", "list", request, SessionListReply)
            for session in reply.sessions:
                yield session
            if (cursor := reply.next_cursor) is None:
                return
