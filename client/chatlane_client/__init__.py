"""Client library of chatlane for adapters and agent workers."""

from chatlane_client.adapter import AdapterClient
from chatlane_client.adapter_events import deleted, edited, pressed, reacted, thread_opened
from chatlane_client.api.dead_letters import DeadLetterApi, LetterOutcome
from chatlane_client.api.editor_tools import CommandResult, EditorTools
from chatlane_client.api.explanations import ExplanationApi
from chatlane_client.api.front_end_tools import FrontEndTools
from chatlane_client.api.outbox import OutboxApi, SentMessage
from chatlane_client.api.projects import ProjectApi
from chatlane_client.api.service_state import ServiceApi
from chatlane_client.api.session_api import SessionApi
from chatlane_client.api.session_life import SessionLifeApi
from chatlane_client.api.submission import Submission
from chatlane_client.api.titles import TitleMaker
from chatlane_client.api.transcripts import TranscriptApi
from chatlane_client.delivery.message_sender import Deliver, SendPiece
from chatlane_client.delivery.pieces import Piece, TextLimit
from chatlane_client.delivery.rate_budget import RateBudget, chat_of
from chatlane_client.drafts import Draft, DraftPlatform
from chatlane_client.endings import NoteWriter, WriteNote
from chatlane_client.errors import (
    AgentUnavailableError,
    ChatGone,
    ChatlaneClientError,
    ConflictingRequestError,
    ConnectionClosedError,
    EditorCallError,
    ForbiddenRequestError,
    ForeignEventError,
    FrontEndCallError,
    InvalidAnswerError,
    OversizedMessageError,
    PermanentError,
    ProjectNotFoundError,
    QuestionWithdrawnError,
    RefusedPublishError,
    RefusedRequestError,
    RetryAfter,
    RetryLaterError,
    SessionNotFoundError,
    StaleRequestError,
    StepError,
    TransientError,
    TurnFailedError,
    UnansweredRequestError,
    UnavailableServiceError,
    UnconfirmedPublishError,
    UndeclaredAccountError,
    Undeliverable,
    UndeliverableError,
)
from chatlane_client.transport.connection import open_connection
from chatlane_client.transport.secured import OnRefused, Refusal
from chatlane_client.transport.wire import Stored
from chatlane_client.turn import Answer, Ask, Handler, NoReply, Reply, Turn
from chatlane_client.turn_reader import TurnUpdate, TurnWatch
from chatlane_client.turn_voice import QuestionAnswer
from chatlane_client.typing_indicator import ShowTyping
from chatlane_client.worker import TurnWorker
from chatlane_schemas.content.prompts import prompt_of

__all__ = [
    "AdapterClient",
    "AgentUnavailableError",
    "Answer",
    "Ask",
    "ChatGone",
    "ChatlaneClientError",
    "CommandResult",
    "ConflictingRequestError",
    "ConnectionClosedError",
    "DeadLetterApi",
    "Deliver",
    "Draft",
    "DraftPlatform",
    "EditorCallError",
    "EditorTools",
    "ExplanationApi",
    "ForbiddenRequestError",
    "ForeignEventError",
    "FrontEndCallError",
    "FrontEndTools",
    "Handler",
    "InvalidAnswerError",
    "LetterOutcome",
    "NoReply",
    "NoteWriter",
    "OnRefused",
    "OutboxApi",
    "OversizedMessageError",
    "PermanentError",
    "Piece",
    "ProjectApi",
    "ProjectNotFoundError",
    "QuestionAnswer",
    "QuestionWithdrawnError",
    "RateBudget",
    "Refusal",
    "RefusedPublishError",
    "RefusedRequestError",
    "Reply",
    "RetryAfter",
    "RetryLaterError",
    "SendPiece",
    "SentMessage",
    "ServiceApi",
    "SessionApi",
    "SessionLifeApi",
    "SessionNotFoundError",
    "ShowTyping",
    "StaleRequestError",
    "StepError",
    "Stored",
    "Submission",
    "TextLimit",
    "TitleMaker",
    "TranscriptApi",
    "TransientError",
    "Turn",
    "TurnFailedError",
    "TurnUpdate",
    "TurnWatch",
    "TurnWorker",
    "UnansweredRequestError",
    "UnavailableServiceError",
    "UnconfirmedPublishError",
    "UndeclaredAccountError",
    "Undeliverable",
    "UndeliverableError",
    "WriteNote",
    "chat_of",
    "deleted",
    "edited",
    "open_connection",
    "pressed",
    "prompt_of",
    "reacted",
    "thread_opened",
]
