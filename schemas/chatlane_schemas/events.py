"""Session lifecycle events that routers publish to any subscriber."""

from enum import StrEnum
from uuid import UUID

from pydantic import Field

from chatlane_schemas.deliveries import DeliveryFailure
from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.fields import Instant, Name, Number, PlatformName
from chatlane_schemas.source import Source


class ResetReason(StrEnum):
    """Why the previous session ended: a rule of the policy, or a request."""

    IDLE = "idle"
    DAILY = "daily"
    REQUESTED = "requested"
    SUSPENDED = "suspended"
    RESUME_PENDING_EXPIRED = "resume_pending_expired"


class EndReason(StrEnum):
    """Why a session ended.

    `switched`: the chat switched to another session. `compression`: the conversation continues in a
    session that begins with a summary of this one. `removed`: the session was deleted with its
    transcript. `pruned`: it was inactive for long.
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
    """A session was opened."""

    session_id: UUID = Field(description="The new session.")
    session_key: str = Field(description="Key of the lane of the session.")
    agent: Name = Field(description="Agent that serves the session.")
    source: Source | None = Field(
        default=None,
        description="Address of the message that opened the session; none if a request did.",
    )
    reason: ResetReason | None = Field(
        default=None,
        description="Why the previous session ended; none on first contact, and if the conversation "
        "continues after a summary.",
    )
    previous_session_id: UUID | None = Field(default=None, description="The previous session.")


class SessionEnding(ServiceEnvelope):
    """A session is about to reach a timed end unless a person writes before the deadline.

    A program that writes summaries has until the deadline to leave a note for the next session. The
    router publishes the event again with another deadline after a new message. A message that
    arrives at the right moment may end a session without an announcement.
    """

    session_id: UUID = Field(description="The session that will end.")
    session_key: str = Field(description="Key of the lane of the session.")
    agent: Name = Field(description="Agent that serves the session.")
    deadline: Instant = Field(description="Earliest time of the timed end.")
    reason: ResetReason = Field(description="Why the session will end.")


class SessionUpdated(ServiceEnvelope):
    """A session has changed; published at most once a second per session.

    Treat it as a hint to read the session again. The hint may get lost when a router crashes.
    """

    session_id: UUID = Field(description="The session that has changed.")
    session_key: str = Field(description="Key of the lane of the session.")
    agent: Name = Field(description="Agent that serves the session.")


class SessionEnded(ServiceEnvelope):
    """A session was closed; its transcript stays."""

    session_id: UUID = Field(description="The session that ended.")
    session_key: str = Field(description="Key of the lane of the session.")
    agent: Name = Field(description="Agent that served the session.")
    reason: EndReason = Field(description="Why the session ended.")


class DeliveryFailed(ServiceEnvelope):
    """An outbound message was given up: its chat will not get it."""

    session_id: UUID = Field(description="Conversation that spoke.")
    agent: Name = Field(description="Agent that serves the session.")
    message_id: UUID = Field(description="Id of the `OutboundMessage`.")
    turn_id: UUID | None = Field(default=None, description="Turn the message is from.")
    platform: PlatformName = Field(description="Platform that did not take it.")
    account: Name = Field(description="Our identity on the platform.")
    failure: DeliveryFailure = Field(description="Why.")
    sent: Number = Field(default=0, description="How many of its pieces the platform has.")
