"""Requests by which an agent sends messages on its own."""

from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.sessions import ApiReply

Destination = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class OutboxSend(Envelope):
    """Sends a message to a chat outside a turn, such as the result of a timer.

    The message is a row in the transcript of the session that the chat has now. A request that is
    repeated with the same id sends it once. `send_to` of the agent limits the destinations.
    """

    session_id: UUID = Field(description="Session of the agent on whose behalf it sends.")
    to: Destination = Field(
        default="origin",
        description="`session`: this session, while it has not ended. `origin`: the chat of this "
        "session. `platform` or `platform/account`: the home channel. `platform:chat_id` or "
        "`platform/account:chat_id`: a chat that has a conversation with the same persona.",
    )
    message: Part = Field(description="The message.")


class OutboxReply(ApiReply):
    """Reply to a request that sends a message."""

    session_id: UUID | None = Field(
        default=None, description="Session whose transcript has the message."
    )
    message_id: UUID | None = Field(
        default=None,
        description="Id of the `OutboundMessage`, by which `DeliveryGet` finds it and a later message "
        "can replace it.",
    )
