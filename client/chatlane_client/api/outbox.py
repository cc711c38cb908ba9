"""Typed client of the requests by which an agent sends messages on its own."""

from typing import NamedTuple
from uuid import UUID

from chatlane_client.api.requests import Api
from chatlane_schemas import Part
from chatlane_schemas.session_api.outbox import OutboxReply, OutboxSend


class SentMessage(NamedTuple):
    """A message that the service has taken.

    Attributes:
        session_id: Session whose transcript has the message.
        message_id: Id by which `Part.edits` replaces it later.
    """

    session_id: UUID
    message_id: UUID


class OutboxApi(Api):
    """Sends messages to chats outside turns; repeats every request until there is a reply.

    Raises (from every method):
        SessionNotFoundError: There is no such session of the agent, or no such chat.
        ConflictingRequestError: Another request used the given request id, or the session has no
            chat any more.
        RefusedRequestError: The agent may not send there.
        UnansweredRequestError: The service did not reply in time; it may have sent the message.
    """

    async def send(
        self,
        session_id: UUID,
        message: str | Part,
        *,
        to: str = "origin",
        request_id: str | None = None,
    ) -> SentMessage:
        """Send a message once and return its ids.

        Args:
            session_id: Session of the agent on whose behalf it sends.
            message: The message.
            to: `session`, `origin`, `platform[/account]` for a home channel, or
                `platform[/account]:chat_id`.
            request_id: Keep it to repeat the request after a restart.
        """
        request = OutboxSend(
            id=self._stamp(request_id)["id"],
            at=self._stamp()["at"],
            session_id=session_id,
            to=to,
            message=Part(text=message) if isinstance(message, str) else message,
        )
        reply = await self._ask("outbox", "send", request, OutboxReply)
        if reply.session_id is None or reply.message_id is None:
            raise self._incomplete("outbox", "send", "no message")
        return SentMessage(reply.session_id, reply.message_id)
