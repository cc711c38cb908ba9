"""The contract of chatlane: message models, subjects, streams and permissions.

The package depends on pydantic only, so that any NATS client can use it.
"""

from chatlane_schemas.answers import answer_to
from chatlane_schemas.buttons import Button, TextFormat
from chatlane_schemas.codec import DecodeError, decode, encode
from chatlane_schemas.dead import DeadLetter, DeadReason, Stage
from chatlane_schemas.deliveries import DeliveryFailure, DeliveryState, Receipt, Undelivered
from chatlane_schemas.envelope import Envelope, new_envelope_id
from chatlane_schemas.events import (
    DeliveryFailed,
    EndReason,
    ResetReason,
    SessionEnded,
    SessionEnding,
    SessionStarted,
    SessionUpdated,
)
from chatlane_schemas.inbound import Attachment, Chat, InboundEvent, Kind, Sender
from chatlane_schemas.outbound import OutboundKind, OutboundMessage
from chatlane_schemas.results import HandBack, Outcome, Part, ResultMessage, Role, TranscriptRow
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import (
    Preference,
    SessionEnd,
    SessionFind,
    SessionReopen,
    SessionReset,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_api.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionRounds,
    SessionRoundsReply,
    SessionSuspend,
    SessionUnmark,
)
from chatlane_schemas.session_api.session_state import ModelOverride, ResumeMark
from chatlane_schemas.session_api.sessions import (
    ApiError,
    ApiErrorCode,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReply,
)
from chatlane_schemas.source import Source, source_of
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    HistoryPointer,
    Interruption,
    RenewReply,
    RenewRequest,
    RenewStatus,
    TurnDelta,
    TurnMessage,
    TurnNotice,
)

__all__ = [
    "ApiError",
    "ApiErrorCode",
    "Attachment",
    "Button",
    "Chat",
    "ClaimReply",
    "ClaimRequest",
    "ClaimStatus",
    "DeadLetter",
    "DeadReason",
    "DecodeError",
    "DeliveryFailed",
    "DeliveryFailure",
    "DeliveryState",
    "EndReason",
    "Envelope",
    "HandBack",
    "HistoryPointer",
    "InboundEvent",
    "Interruption",
    "Kind",
    "ModelOverride",
    "OutboundKind",
    "OutboundMessage",
    "Outcome",
    "Part",
    "Person",
    "Preference",
    "Receipt",
    "RenewReply",
    "RenewRequest",
    "RenewStatus",
    "ResetReason",
    "ResultMessage",
    "ResumeMark",
    "Role",
    "RoutedMessage",
    "Sender",
    "SessionEnd",
    "SessionEnded",
    "SessionEnding",
    "SessionFind",
    "SessionGet",
    "SessionHold",
    "SessionList",
    "SessionListReply",
    "SessionMark",
    "SessionNote",
    "SessionOverride",
    "SessionPeek",
    "SessionRelease",
    "SessionReopen",
    "SessionReply",
    "SessionReset",
    "SessionRounds",
    "SessionRoundsReply",
    "SessionStarted",
    "SessionSuspend",
    "SessionTitle",
    "SessionUnmark",
    "SessionUpdate",
    "SessionUpdated",
    "SessionView",
    "Source",
    "Stage",
    "TextFormat",
    "TranscriptEntry",
    "TranscriptLoad",
    "TranscriptReply",
    "TranscriptRow",
    "TurnDelta",
    "TurnMessage",
    "TurnNotice",
    "Undelivered",
    "answer_to",
    "decode",
    "encode",
    "new_envelope_id",
    "source_of",
]
