"""What the router tells anyone who listens about the life of sessions."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.fields import Name
from chatlane_schemas.source import Source


class ResetReason(StrEnum):
    """Why the session before ended: a rule of the policy, or that somebody asked for it."""

    IDLE = "idle"
    DAILY = "daily"
    REQUESTED = "requested"
    SUSPENDED = "suspended"
    RESUME_PENDING_EXPIRED = "resume_pending_expired"


class EndReason(StrEnum):
    """Why a session ended.

    `switched`: the chat went on with another one. `compression`: it goes on in a session
    that begins with a summary of it.
    """

    IDLE = "idle"
    DAILY = "daily"
    MERGED = "merged"
    IMPORTED = "imported"
    REQUESTED = "requested"
    SWITCHED = "switched"
    COMPRESSION = "compression"
    SUSPENDED = "suspended"
    RESUME_PENDING_EXPIRED = "resume_pending_expired"


class SessionStarted(ServiceEnvelope):
    """A conversation was opened."""

    session_id: UUID = Field(description="The new session.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that serves it.")
    source: Source | None = Field(
        default=None,
        description="Address of the message that opened it; none where a request did.",
    )
    reason: ResetReason | None = Field(
        default=None,
        description="Why the session before ended; none on first contact, and where the "
        "conversation goes on behind a summary.",
    )
    previous_session_id: UUID | None = Field(default=None, description="The session before.")


class SessionEnded(ServiceEnvelope):
    """A conversation was closed; its transcript stays."""

    session_id: UUID = Field(description="The session that ended.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that served it.")
    reason: EndReason = Field(description="Why it ended.")
