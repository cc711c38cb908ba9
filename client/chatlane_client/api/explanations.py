"""Typed client of the requests by which operators ask for explanations."""

from uuid import UUID

from chatlane_client.api.requests import Api
from chatlane_schemas.session_api.operators.explanations import (
    ExplainEvent,
    ExplainEventReply,
    ExplainSession,
    ExplainSessionReply,
)


class ExplanationApi(Api):
    """Asks what the service would decide, and what a session waits for.

    Raises (from every method):
        SessionNotFoundError: There is no such session.
        ForbiddenRequestError: The caller is no operator.
        UnansweredRequestError: The service did not reply in time.
    """

    async def event(self, event: str) -> ExplainEventReply:
        """Return where an event would go if it were published now; nothing is stored.

        Args:
            event: The event as JSON.
        """
        stamp = self._stamp()
        request = ExplainEvent(id=stamp["id"], at=stamp["at"], event=event)
        return await self._ask("explain", "event", request, ExplainEventReply)

    async def session(self, session_id: UUID) -> ExplainSessionReply:
        """Return why a session has no answer yet, what happens next, and when."""
        stamp = self._stamp()
        request = ExplainSession(id=stamp["id"], at=stamp["at"], session_id=session_id)
        return await self._ask("explain", "session", request, ExplainSessionReply)
