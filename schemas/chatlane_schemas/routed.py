"""An inbound message with the session it belongs to, for stream agents."""

from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.events import ResetReason
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, PlatformId, Text
from chatlane_schemas.inbound import Attachments, Kind
from chatlane_schemas.session_api.session_state import ModelOverride, Note, ResumeMark
from chatlane_schemas.source import Source


class RoutedMessage(ServiceEnvelope):
    """One message of a session, in order.

    After a crash the same message may arrive again with the same `id` and `seq`. A message that was
    edited before it reached a worker arrives in its edited form, and a message that was deleted
    before does not arrive.
    """

    session_id: UUID = Field(description="Conversation the message belongs to.")
    session_key: str = Field(description="Key of the lane it was written in.")
    agent: Name = Field(description="Agent that serves the session.")
    seq: BigNumber = Field(description="Place in the transcript of the session.")
    kind: Kind = Field(default=Kind.MESSAGE, description="What happened.")
    source: Source = Field(description="Full address of the message, as it came.")
    text: Text | None = Field(default=None, description="What was written.")
    attachments: Attachments = Field(default=(), description="References to files.")
    reply_to: PlatformId | None = Field(
        default=None,
        description="Platform's id of the message this one answers.",
    )
    sent_at: Instant | None = Field(default=None, description="The platform's time; data only.")
    stored_at: Instant = Field(description="When the message reached the log.")
    session_is_new: Flag = Field(default=False, description="Whether it opened the session.")
    reset_reason: ResetReason | None = Field(
        default=None,
        description="Rule that ended the session before, on the first message of a new one.",
    )
    reset_had_activity: Flag = Field(
        default=False,
        description="With `reset_reason`: whether anything was answered in the session before.",
    )
    opening_note: Note | None = Field(
        default=None,
        description="Note the session before left, on the first message of a new one.",
    )
    model_override: ModelOverride | None = Field(
        default=None,
        description="Model that is to answer instead of the agent's own choice.",
    )
    resume_pending: ResumeMark | None = Field(
        default=None,
        description="The session was interrupted before; the work may be half done.",
    )
    prompt_context: Text | None = Field(
        default=None,
        description="Where the session takes place, for a system prompt; if the agent wants it.",
    )
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]`, for a prompt to put before the text where several people talk.",
    )
