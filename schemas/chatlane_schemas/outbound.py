"""Outbound messages, which adapters deliver to a chat."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.buttons import Buttons, TextFormat
from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.fields import BigNumber, Flag, Name, Number, PlatformId, Text
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.results import PauseMs
from chatlane_schemas.source import Source


class OutboundKind(StrEnum):
    """Author of an outbound message: the agent or the service."""

    ANSWER = "answer"
    NOTICE = "notice"


class OutboundMessage(ServiceEnvelope):
    """One message to a chat.

    `out_seq` has no gaps within a session: a reader that sees a gap waits for the missing message.
    A redelivered message has the same `id`. After a database restore to an earlier time, its number
    may differ, and another message may reuse a number.
    """

    session_id: UUID = Field(
        description="Session of the message; an id without a session if the chat has none yet."
    )
    out_seq: BigNumber = Field(
        description="Position among the outbound messages of the session, from 1."
    )
    agent: Name = Field(description="Agent that serves the session.")
    target: Source = Field(description="Address to deliver to.")
    kind: OutboundKind = Field(default=OutboundKind.ANSWER, description="Author of the message.")
    reply_to: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message that is answered.",
    )
    turn_id: UUID | None = Field(default=None, description="Turn of the answer.")
    part: Number = Field(default=0, description="Number of the part of the answer.")
    is_interim: Flag | None = Field(
        default=None,
        description="True for a message or a question of a running turn; its answer is to come.",
    )
    draft: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message that shows the answer so far; this message takes "
        "its place.",
    )
    text: Text | None = Field(default=None, description="Text of the message.")
    attachments: Attachments = Field(default=(), description="References to files.")
    format: TextFormat | None = Field(
        default=None, description="Format in which the text is written; plain if missing."
    )
    buttons: Buttons | None = Field(default=None, description="Buttons to show under the message.")
    edits: UUID | None = Field(
        default=None,
        description="Id of the earlier `OutboundMessage` whose content this message replaces; without "
        "its receipt it is sent as a new message.",
    )
    pause_before_ms: PauseMs | None = Field(
        default=None,
        description="How long the adapter waits before it sends the message, in milliseconds; it "
        "shows typing meanwhile. Other chats do not wait.",
    )
