"""Client library of chatlane for adapters and agent workers."""

from chatlane_client.adapter import AdapterClient
from chatlane_client.adapter_events import deleted, edited, reacted, thread_opened
from chatlane_client.api.session_api import SessionApi
from chatlane_client.api.session_life import SessionLifeApi
from chatlane_client.api.transcripts import TranscriptApi
from chatlane_client.delivery import Deliver
from chatlane_client.endings import NoteWriter, WriteNote
from chatlane_client.errors import (
    ChatlaneClientError,
    ConflictingRequestError,
    ConnectionClosedError,
    ForbiddenRequestError,
    ForeignEventError,
    InvalidAnswerError,
    OversizedMessageError,
    PermanentError,
    RefusedPublishError,
    RefusedRequestError,
    RetryLaterError,
    SessionNotFoundError,
    StaleRequestError,
    TransientError,
    TurnFailedError,
    UnansweredRequestError,
    UnavailableServiceError,
    UnconfirmedPublishError,
    UndeclaredAccountError,
    UndeliverableError,
)
from chatlane_client.transport.connection import open_connection
from chatlane_client.transport.secured import OnRefused, Refusal
from chatlane_client.transport.wire import Stored
from chatlane_client.turn import Answer, Handler, NoReply, Reply, Turn, prompt_of
from chatlane_client.worker import TurnWorker

__all__ = [
    "AdapterClient",
    "Answer",
    "ChatlaneClientError",
    "ConflictingRequestError",
    "ConnectionClosedError",
    "Deliver",
    "ForbiddenRequestError",
    "ForeignEventError",
    "Handler",
    "InvalidAnswerError",
    "NoReply",
    "NoteWriter",
    "OnRefused",
    "OversizedMessageError",
    "PermanentError",
    "Refusal",
    "RefusedPublishError",
    "RefusedRequestError",
    "Reply",
    "RetryLaterError",
    "SessionApi",
    "SessionLifeApi",
    "SessionNotFoundError",
    "StaleRequestError",
    "Stored",
    "TranscriptApi",
    "TransientError",
    "Turn",
    "TurnFailedError",
    "TurnWorker",
    "UnansweredRequestError",
    "UnavailableServiceError",
    "UnconfirmedPublishError",
    "UndeclaredAccountError",
    "UndeliverableError",
    "WriteNote",
    "deleted",
    "edited",
    "open_connection",
    "prompt_of",
    "reacted",
    "thread_opened",
]
