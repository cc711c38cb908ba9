"""Dead letters: messages set aside with a reason."""

from enum import StrEnum
from typing import Final

from pydantic import Field

from chatlane_schemas.envelope import ServiceEnvelope
from chatlane_schemas.fields import BigNumber, Number, Text


class Stage(StrEnum):
    """Processing stage that set a message aside."""

    INBOUND = "inbound"
    RESULTS = "results"
    TURNS = "turns"
    ROUTED = "routed"
    OUTBOX = "outbox"


class DeadReason(StrEnum):
    """Why a message was set aside."""

    NOT_JSON = "not_json"
    INVALID = "invalid"
    UNKNOWN_VERSION = "unknown_version"
    OVERSIZED = "oversized"
    TOO_DEEP = "too_deep"
    BAD_ID = "bad_id"
    SUBJECT_MISMATCH = "subject_mismatch"
    NO_CONVERSATION = "no_conversation"
    UNKNOWN_ACCOUNT = "unknown_account"
    UNKNOWN_PROFILE = "unknown_profile"
    PROFILE_FORBIDDEN = "profile_forbidden"
    UNKNOWN_AGENT = "unknown_agent"
    UNKNOWN_SESSION = "unknown_session"
    UNKNOWN_TURN = "unknown_turn"
    AGENT_MISMATCH = "agent_mismatch"
    RATE_LIMITED = "rate_limited"
    PROCESS_KILLER = "process_killer"
    LOG_TRUNCATED = "log_truncated"
    UNDELIVERABLE = "undeliverable"
    TURN_FAILED = "turn_failed"
    INTERNAL_ERROR = "internal_error"
    OVERSIZED_OUTBOUND = "oversized_outbound"
    DELIVERY_FAILED = "delivery_failed"
    MESSAGE_ID_REUSED = "message_id_reused"


class Cause(StrEnum):
    """Party that has to act on a dead letter."""

    PUBLISHER = "publisher"
    """An adapter, a worker or the declarations: they do not match each other."""
    AGENT = "agent"
    """The workers of an agent gave up."""
    SENDER = "sender"
    """A person or a chat writes more than is allowed, or takes no message. No component is faulty."""
    LOSS = "loss"
    """Messages were lost before a router read them."""
    BUG = "bug"
    """Chatlane itself could not process the message."""


_CAUSES: Final = {
    DeadReason.TURN_FAILED: Cause.AGENT,
    DeadReason.RATE_LIMITED: Cause.SENDER,
    DeadReason.UNDELIVERABLE: Cause.AGENT,
    DeadReason.DELIVERY_FAILED: Cause.SENDER,
    DeadReason.LOG_TRUNCATED: Cause.LOSS,
    DeadReason.INTERNAL_ERROR: Cause.BUG,
    DeadReason.PROCESS_KILLER: Cause.BUG,
    DeadReason.OVERSIZED_OUTBOUND: Cause.BUG,
}

_REASONS: Final = frozenset(map(str, DeadReason))


def cause_of(reason: str) -> Cause:
    """Return the cause of a reason, including reasons that only a newer release knows."""
    if reason not in _REASONS:
        return Cause.BUG
    return _CAUSES.get(DeadReason(reason), Cause.PUBLISHER)


class DeadLetter(ServiceEnvelope):
    """Reports that a message was set aside; its body stays in the database."""

    stage: Stage = Field(description="Stage that rejected the message.")
    reason: DeadReason = Field(description="Reason of the rejection.")
    log: Text | None = Field(default=None, description="Log of the message.")
    partition: Number | None = Field(default=None, description="Partition of that log.")
    sequence: BigNumber | None = Field(default=None, description="Position in that log.")
    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the body, in hex.")
    size_bytes: BigNumber = Field(description="Size of the body.")
    detail: Text | None = Field(
        default=None, description="Field and kind of the error; no content."
    )
