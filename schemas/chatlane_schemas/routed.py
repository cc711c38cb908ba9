"""An inbound message with the session it belongs to, for stream agents."""

from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.elements import StoredContent
from chatlane_schemas.content.replied import RepliedMessage
from chatlane_schemas.fields import BigNumber, Instant, Name, Text
from chatlane_schemas.inbound import Attachments, Kind
from chatlane_schemas.session_api.session_state import SessionOpening
from chatlane_schemas.source import Source


class RoutedMessage(StoredContent, SessionOpening):
    """One message of a session, in order.

    After a crash the same message may arrive again with the same `id` and `seq`. A message that was
    edited before it reached a worker arrives in its edited form, and a message that was deleted
    before does not arrive.
    """

    session_id: UUID = Field(description="Session of the message.")
    session_key: str = Field(description="Key of the lane of the message.")
    agent: Name = Field(description="Agent that serves the session.")
    seq: BigNumber = Field(description="Place in the transcript of the session.")
    kind: Kind = Field(default=Kind.MESSAGE, description="Kind of the event.")
    source: Source = Field(description="Full address of the message, as received.")
    text: Text | None = Field(default=None, description="Text of the message.")
    attachments: Attachments = Field(default=(), description="References to files.")
    replied: RepliedMessage | None = Field(
        default=None, description="The message it answers, if the service has it."
    )
    sent_at: Instant | None = Field(
        default=None, description="Time that the platform reported; data only."
    )
    stored_at: Instant = Field(description="When the message was stored in the log.")
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]` to put before the text in a prompt, if several people talk.",
    )
    staff_until: Instant | None = Field(
        default=None,
        description="One of our people wrote in this chat: the agent does not answer before this time.",
    )
