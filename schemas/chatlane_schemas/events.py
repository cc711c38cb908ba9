"""What the router tells anyone who listens about the life of sessions."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.fields import Instant, Name
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
    that begins with a summary of it. `removed`: it was deleted with its transcript. `pruned`:
    nobody had written in it for long.
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
    REMOVED = "removed"
    PRUNED = "pruned"


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


class SessionEnding(ServiceEnvelope):
    """A conversation is about to be closed by time, unless somebody writes before.

    Whoever keeps summaries has until then to leave a note for the next one. Told again with
    another deadline when somebody has written. A message that comes at the right moment may end
    a conversation without an announcement.
    """

    session_id: UUID = Field(description="The session that will end.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that serves it.")
    deadline: Instant = Field(description="It does not end before by itself.")
    reason: ResetReason = Field(description="Why it will end.")


class SessionUpdated(ServiceEnvelope):
    """Something about a conversation has changed; told at most once a second for each.

    A hint to look again, which may get lost with the router that would have told it.
    """

    session_id: UUID = Field(description="The session that has changed.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that serves it.")


class SessionEnded(ServiceEnvelope):
    """A conversation was closed; its transcript stays."""

    session_id: UUID = Field(description="The session that ended.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that served it.")
    reason: EndReason = Field(description="Why it ended.")
