"""List all channels in one table, from which AsyncAPI and JSON Schema are generated."""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from chatlane_schemas.dead import DeadLetter
from chatlane_schemas.deliveries import Cursor, Deliverer
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.events import (
    DeliveryFailed,
    SessionEnded,
    SessionEnding,
    SessionStarted,
    SessionUpdated,
)
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.live_turns import (
    TurnAnswered,
    TurnAsked,
    TurnEnded,
    TurnFollow,
    TurnPiece,
    TurnRecap,
    TurnStarted,
    TurnWaiting,
)
from chatlane_schemas.outbound import OutboundMessage
from chatlane_schemas.questions import (
    QuestionReply,
    QuestionViewReply,
    StepReply,
    TurnAnswer,
    TurnAsk,
    TurnKeep,
    TurnQuestion,
    TurnReply,
    TurnSay,
    TurnStep,
)
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.session_api.catalogue import (
    SessionLabel,
    SessionPin,
    SessionProtect,
    SessionTree,
)
from chatlane_schemas.session_api.deliveries import DeliveryFind, DeliveryGet, DeliveryReply
from chatlane_schemas.session_api.operators.dead_letters import (
    LetterCount,
    LetterCountReply,
    LetterDrop,
    LetterGet,
    LetterList,
    LetterListReply,
    LetterReply,
    LetterRetry,
)
from chatlane_schemas.session_api.operators.explanations import (
    ExplainEvent,
    ExplainEventReply,
    ExplainSession,
    ExplainSessionReply,
)
from chatlane_schemas.session_api.operators.service_state import (
    ServiceCatalog,
    ServiceCatalogReply,
    ServiceOverview,
    ServiceOverviewReply,
)
from chatlane_schemas.session_api.outbox import OutboxReply, OutboxSend
from chatlane_schemas.session_api.people import OperatorRequest
from chatlane_schemas.session_api.person_state import (
    PersonErase,
    PersonErasure,
    PersonErasureReply,
    SessionDraft,
    SessionDraftReply,
    SessionRead,
    SessionReadReply,
)
from chatlane_schemas.session_api.projects import (
    ProjectArrange,
    ProjectCreate,
    ProjectList,
    ProjectListReply,
    ProjectRemove,
    ProjectReply,
    ProjectUpdate,
    SessionMove,
)
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.session_changes import (
    SessionArchive,
    SessionEnd,
    SessionFind,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionStop,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_api.session_life import (
    SessionHandback,
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionRounds,
    SessionRoundsReply,
    SessionSpeak,
    SessionSuspend,
    SessionTakeover,
    SessionUnmark,
)
from chatlane_schemas.session_api.session_openings import (
    SessionCreate,
    SessionImport,
    SessionImportReply,
    SessionSubmit,
)
from chatlane_schemas.session_api.session_sweeps import (
    SessionCleanup,
    SessionPrune,
    SessionRemove,
    SessionSweepReply,
)
from chatlane_schemas.session_api.sessions import (
    ApiReply,
    SessionCount,
    SessionCountReply,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
)
from chatlane_schemas.session_api.transcripts import (
    TranscriptAppend,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptHits,
    TranscriptLoad,
    TranscriptRemoved,
    TranscriptRemovedReply,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRestore,
    TranscriptRetry,
    TranscriptRevisions,
    TranscriptRevisionsReply,
    TranscriptRewind,
    TranscriptSearch,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    RenewReply,
    RenewRequest,
    StopReply,
    TakeReply,
    TurnCancel,
    TurnControl,
    TurnDelta,
    TurnNotice,
    TurnTake,
)

Direction: TypeAlias = Literal["receive", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One kind of message on one kind of subject.

    Attributes:
        name: Key of the channel in AsyncAPI.
        address: Subject, with a name in braces for every variable token.
        direction: What the service does with the message; None if it takes no part.
        message: Type of the message.
        replies: Types of the reply to a request; the last is the refusal if it has its own type.
        stream: Stream that stores the message; None if it is not stored.
        description: Purpose of the channel.
    """

    name: str
    address: str
    direction: Direction | None
    message: type[Envelope]
    description: str
    replies: tuple[type[Envelope], ...] = ()
    stream: StreamName | None = None


def _request(message: type[Envelope], reply: type[Envelope], description: str) -> Channel:
    """Return the channel of a request to the session API: `SessionGet` is `session.get`."""
    noun, verb = re.findall("[A-Z][a-z]+", message.__name__)
    noun, verb = noun.lower(), verb.lower()
    return Channel(
        name=f"{noun}{verb.title()}",
        address=subjects.filled(subjects.API, noun=noun, verb=verb),
        direction="receive",
        message=message,
        replies=(reply,),
        description=description,
    )


def _turn_request(
    verb: str, message: type[Envelope], reply: type[Envelope], description: str
) -> Channel:
    """Return the channel of a request that a worker makes about a turn."""
    return Channel(
        name=f"turn{verb.title()}",
        address=subjects.filled(subjects.API_OF_AGENT, noun="turn", verb=verb),
        direction="receive",
        message=message,
        replies=(reply, ApiReply),
        description=description,
    )


def _session_event(verb: str, message: type[Envelope], description: str) -> Channel:
    """Return the channel of a session lifecycle event."""
    return Channel(
        name=f"session{verb.title()}",
        address=subjects.filled(subjects.EVENT, noun="session", verb=verb),
        direction="send",
        message=message,
        stream=StreamName.EVENTS,
        description=description,
    )


def _turn_event(verb: str, message: type[Envelope], description: str) -> Channel:
    """Return the channel of an event about a turn."""
    return Channel(
        name=f"turn{verb.title()}",
        address=subjects.filled(subjects.TURN_EVENT, verb=verb),
        direction="send",
        message=message,
        stream=StreamName.EVENTS,
        description=description,
    )


REQUESTS: Final[tuple[Channel, ...]] = (
    _request(SessionGet, SessionReply, "Returns one session."),
    _request(SessionPeek, SessionReply, "Returns the current session of a key."),
    _request(SessionList, SessionListReply, "Lists sessions."),
    _request(SessionCount, SessionCountReply, "Counts sessions."),
    _request(SessionArchive, SessionReply, "Archives a session or restores it."),
    _request(SessionPin, SessionReply, "Pins a session or unpins it."),
    _request(SessionLabel, SessionReply, "Replaces the labels of a session."),
    _request(SessionProtect, SessionReply, "Makes an ended session read only."),
    _request(SessionTree, SessionReply, "Notes the working copy of a session."),
    _request(SessionMove, SessionReply, "Puts a session into a folder or takes it out."),
    _request(SessionDraft, SessionDraftReply, "Keeps what a person has typed and not sent."),
    _request(SessionRead, SessionReadReply, "Marks what a person has read."),
    _request(PersonErase, PersonErasureReply, "Asks for the erasure of a person."),
    _request(PersonErasure, PersonErasureReply, "Returns a requested erasure."),
    _request(ProjectList, ProjectListReply, "Lists the folders of a person."),
    _request(ProjectCreate, ProjectReply, "Makes a folder."),
    _request(ProjectUpdate, ProjectReply, "Renames a folder or changes its colour."),
    _request(ProjectArrange, ProjectListReply, "Puts folders into an order."),
    _request(ProjectRemove, ProjectReply, "Removes a folder; its sessions stay."),
    _request(SessionFind, SessionListReply, "Finds sessions by title."),
    _request(SessionCreate, SessionReply, "Opens a session."),
    _request(SessionSubmit, SessionReply, "Submits a message to a session."),
    _request(SessionImport, SessionImportReply, "Imports a conversation of another program."),
    _request(SessionRemove, SessionReply, "Deletes a session."),
    _request(SessionPrune, SessionSweepReply, "Ends inactive sessions."),
    _request(SessionCleanup, SessionSweepReply, "Deletes sessions of an origin."),
    _request(SessionUpdate, SessionReply, "Sets directory, model and config of a session."),
    _request(SessionTitle, SessionReply, "Sets the title of a session."),
    _request(SessionEnd, SessionReply, "Ends a session."),
    _request(SessionReopen, SessionReply, "Reopens a session."),
    _request(SessionReset, SessionReply, "Opens the next session of a lane."),
    _request(SessionSwitch, SessionReply, "Points a lane to another session."),
    _request(SessionFork, SessionReply, "Opens a copy of a session."),
    _request(SessionSuspend, SessionReply, "Suspends a session."),
    _request(SessionMark, SessionReply, "Marks a session as interrupted."),
    _request(SessionUnmark, SessionReply, "Removes the interruption mark of a session."),
    _request(SessionHold, SessionReply, "Protects a session from timed resets."),
    _request(SessionRelease, SessionReply, "Ends a hold of a session."),
    _request(SessionOverride, SessionReply, "Sets the model override of a session."),
    _request(SessionNote, SessionReply, "Leaves a note for the next session."),
    _request(SessionRounds, SessionRoundsReply, "Counts the rounds of a session."),
    _request(SessionStop, StopReply, "Stops the running turn and drops pending messages."),
    _request(TurnCancel, StopReply, "Ends a turn."),
    _request(TurnQuestion, QuestionViewReply, "Returns the open question of a session."),
    _request(TurnReply, QuestionReply, "Answers the open question of a session."),
    _request(TranscriptLoad, TranscriptReply, "Returns transcript rows, newest page first."),
    _request(TranscriptRevisions, TranscriptRevisionsReply, "Lists earlier texts of a row."),
    _request(TranscriptSearch, TranscriptHits, "Searches the text of transcript rows."),
    _request(TranscriptAppend, TranscriptChanged, "Appends rows to a transcript."),
    _request(TranscriptReplace, TranscriptChanged, "Replaces a transcript."),
    _request(TranscriptCompact, TranscriptChanged, "Replaces the oldest rows with a summary."),
    _request(TranscriptRewind, TranscriptChanged, "Removes the last turns."),
    _request(TranscriptRetry, TranscriptChanged, "Runs the last turn again."),
    _request(TranscriptRemoved, TranscriptRemovedReply, "Lists rows that were taken out."),
    _request(TranscriptRestore, TranscriptChanged, "Puts rows that were taken out back."),
    _request(DeliveryGet, DeliveryReply, "Shows what became of outbound messages."),
    _request(DeliveryFind, DeliveryReply, "Shows how far an adapter has sent a message."),
    _request(RoomMembers, ApiReply, "Reports all members of a room."),
    _request(OutboxSend, OutboxReply, "Sends a message to a chat outside a turn."),
    _request(LetterList, LetterListReply, "Lists dead letters."),
    _request(LetterCount, LetterCountReply, "Counts dead letters by reason and account."),
    _request(LetterGet, LetterReply, "Returns a dead letter with its body."),
    _request(LetterRetry, ApiReply, "Retries a dead letter."),
    _request(LetterDrop, ApiReply, "Deletes a dead letter."),
    _request(SessionTakeover, SessionReply, "Lets an agent wait while the team talks."),
    _request(SessionSpeak, SessionReply, "Sends a message of the team to a chat."),
    _request(SessionHandback, SessionReply, "Ends a takeover."),
    _request(ExplainEvent, ExplainEventReply, "Explains where an event would go."),
    _request(ExplainSession, ExplainSessionReply, "Explains what a session waits for."),
    _request(ServiceOverview, ServiceOverviewReply, "Returns the state of the whole service."),
    _request(ServiceCatalog, ServiceCatalogReply, "Returns the declared platforms and agents."),
)
"""The requests about sessions and transcripts, in the form that operators use."""

CHANNELS: Final[tuple[Channel, ...]] = (
    Channel(
        name="inbound",
        address=subjects.INBOUND,
        direction="receive",
        message=InboundEvent,
        stream=StreamName.INBOUND,
        description="Events of a chat from its adapter; one publish in flight per chat.",
    ),
    Channel(
        name="routed",
        address=subjects.ROUTED,
        direction="send",
        message=RoutedMessage,
        stream=StreamName.ROUTED,
        description="Messages of a stream agent, in the order of their session.",
    ),
    Channel(
        name="turn",
        address=subjects.TURN,
        direction="send",
        message=TurnNotice,
        stream=StreamName.TURNS,
        description="Turns to claim by the workers of a turn agent.",
    ),
    _turn_request(
        "claim",
        ClaimRequest,
        ClaimReply,
        "Claims a turn; returns its messages, a lease and a token.",
    ),
    _turn_request("renew", RenewRequest, RenewReply, "Renews the lease of a claimed turn."),
    _turn_request(
        "take", TurnTake, TakeReply, "Takes new messages into a running turn, to steer it."
    ),
    _turn_request("say", TurnSay, OutboxReply, "Sends a message of a running turn."),
    _turn_request("ask", TurnAsk, QuestionReply, "Asks the person of a running turn."),
    _turn_request("answer", TurnAnswer, QuestionReply, "Returns the answer to a question."),
    _turn_request("step", TurnStep, StepReply, "Returns the kept result of a step."),
    _turn_request("keep", TurnKeep, StepReply, "Keeps the result of a step."),
    Channel(
        name="result",
        address=subjects.RESULT,
        direction="receive",
        message=ResultMessage,
        stream=StreamName.RESULTS,
        description="The result of a turn, or the answer to a routed message.",
    ),
    Channel(
        name="delta",
        address=subjects.DELTA,
        direction=None,
        message=TurnDelta,
        description="Parts of an answer during its generation, from a worker to its subscribers.",
    ),
    Channel(
        name="piece",
        address=subjects.PIECE,
        direction=None,
        message=TurnPiece,
        description="What a running turn shows, from its worker to the readers of its session.",
    ),
    Channel(
        name="follow",
        address=subjects.FOLLOW,
        direction=None,
        message=TurnFollow,
        description="A reader asks the worker of a running turn for a recap.",
    ),
    Channel(
        name="recap",
        address=subjects.RECAP,
        direction=None,
        message=TurnRecap,
        description="What a running turn has shown so far, from its worker to its readers.",
    ),
    Channel(
        name="control",
        address=subjects.CONTROL,
        direction="send",
        message=TurnControl,
        description="Control messages to the worker of a running turn: end it, or take messages in.",
    ),
    Channel(
        name="outbound",
        address=subjects.OUTBOUND,
        direction="send",
        message=OutboundMessage,
        stream=StreamName.OUTBOUND,
        description="Messages to send to a chat, for the adapter of its account.",
    ),
    Channel(
        name="deliverer",
        address=subjects.DELIVERER,
        direction=None,
        message=Deliverer,
        stream=StreamName.DELIVERERS,
        description="Lease of the process that delivers for an account; adapters take and renew it.",
    ),
    Channel(
        name="cursor",
        address=subjects.CURSOR,
        direction=None,
        message=Cursor,
        stream=StreamName.CURSORS,
        description="How far an adapter has read its platform; adapters write and read it.",
    ),
    _session_event("started", SessionStarted, "A session was opened."),
    _session_event("updated", SessionUpdated, "A session has changed; read it again."),
    _session_event("ending", SessionEnding, "A session will be ended by a timed reset."),
    Channel(
        name="endingOfAgent",
        address=subjects.ENDING,
        direction="send",
        message=SessionEnding,
        stream=StreamName.EVENTS,
        description="A session of the agent will be ended by a timed reset; for its workers.",
    ),
    Channel(
        name="undelivered",
        address=subjects.UNDELIVERED,
        direction="send",
        message=DeliveryFailed,
        stream=StreamName.EVENTS,
        description="A message of the agent was given up; for its workers.",
    ),
    _session_event("ended", SessionEnded, "A session was ended."),
    _turn_event("started", TurnStarted, "A worker began an attempt at a turn."),
    _turn_event("waiting", TurnWaiting, "A turn waits for another attempt."),
    _turn_event("asked", TurnAsked, "A running turn asks the person something."),
    _turn_event("answered", TurnAnswered, "A question of a turn is not open any more."),
    _turn_event("ended", TurnEnded, "A turn is over."),
    Channel(
        name="dead",
        address=subjects.DEAD,
        direction="send",
        message=DeadLetter,
        stream=StreamName.DEAD,
        description="Dead letters with the reason; never their content.",
    ),
    *REQUESTS,
)


def requests_of_agent() -> tuple[Channel, ...]:
    """Return the requests about one session in the form for workers, limited to their agent."""
    return tuple(
        replace(
            channel,
            name=f"{channel.name}OfAgent",
            address=f"{channel.address}.{{agent}}",
            description=f"{channel.description[:-1]}, for a session of the agent.",
        )
        for channel in REQUESTS
        if "session_id" in channel.message.model_fields
        and channel.message is not DeliveryFind
        and not issubclass(channel.message, OperatorRequest)
    )


def requests_for_account() -> tuple[Channel, ...]:
    """Return the requests that a front end can make on behalf of a person."""
    return tuple(
        replace(
            channel,
            name=f"{channel.name}ForAccount",
            address=f"{channel.address}.{{platform}}.{{account}}",
            description=f"{channel.description[:-1]}, for a person who talks to the account.",
        )
        for channel in REQUESTS
        if "acting_for" in channel.message.model_fields
    )


def requests_of_adapter() -> tuple[Channel, ...]:
    """Return the requests that an adapter can make about its account."""
    return tuple(
        replace(
            channel,
            name=f"{channel.name}OfAdapter",
            address=f"{channel.address}.{{platform}}.{{account}}",
            description=f"{channel.description[:-1]}, for the adapter of its account.",
        )
        for channel in REQUESTS
        if channel.message in {DeliveryFind, RoomMembers}
    )


def every_channel() -> tuple[Channel, ...]:
    """Return the whole table, including the narrower forms of its requests."""
    narrower = (*requests_of_agent(), *requests_for_account(), *requests_of_adapter())
    return (*CHANNELS, *narrower)


def messages() -> tuple[type[Envelope], ...]:
    """Return every message type of the table once, in table order."""
    models = (model for channel in CHANNELS for model in (channel.message, *channel.replies))
    return tuple(dict.fromkeys(models))
