"""List all channels in one table, from which AsyncAPI and JSON Schema are generated."""

from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from chatlane_schemas.dead import DeadLetter
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.events import SessionEnded, SessionEnding, SessionStarted, SessionUpdated
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.outbound import OutboundMessage
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.routed import RoutedMessage
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
from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit
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
    TranscriptReplace,
    TranscriptReply,
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


def _request(
    noun: str, verb: str, message: type[Envelope], reply: type[Envelope], description: str
) -> Channel:
    """Return the channel of a request to the session API."""
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


REQUESTS: Final[tuple[Channel, ...]] = (
    _request("session", "get", SessionGet, SessionReply, "Shows one session."),
    _request("session", "peek", SessionPeek, SessionReply, "Shows the session of a key."),
    _request("session", "list", SessionList, SessionListReply, "Lists sessions."),
    _request("session", "count", SessionCount, SessionCountReply, "Counts sessions."),
    _request("session", "archive", SessionArchive, SessionReply, "Puts a session away in lists."),
    _request("session", "find", SessionFind, SessionListReply, "Finds sessions by title."),
    _request("session", "create", SessionCreate, SessionReply, "Opens a session."),
    _request("session", "submit", SessionSubmit, SessionReply, "Says something in a session."),
    _request("session", "remove", SessionRemove, SessionReply, "Deletes a session."),
    _request("session", "prune", SessionPrune, SessionSweepReply, "Ends forgotten sessions."),
    _request(
        "session", "cleanup", SessionCleanup, SessionSweepReply, "Deletes sessions of an origin."
    ),
    _request("session", "update", SessionUpdate, SessionReply, "Sets directory, model, config."),
    _request("session", "title", SessionTitle, SessionReply, "Gives a session a title."),
    _request("session", "end", SessionEnd, SessionReply, "Ends a session."),
    _request("session", "reopen", SessionReopen, SessionReply, "Takes the end of one back."),
    _request("session", "reset", SessionReset, SessionReply, "Opens the next session of a lane."),
    _request("session", "switch", SessionSwitch, SessionReply, "Leads a lane to another session."),
    _request("session", "fork", SessionFork, SessionReply, "Opens a copy of a session."),
    _request("session", "suspend", SessionSuspend, SessionReply, "Gives a session up."),
    _request("session", "mark", SessionMark, SessionReply, "Says that one was interrupted."),
    _request("session", "unmark", SessionUnmark, SessionReply, "Takes that mark away."),
    _request("session", "hold", SessionHold, SessionReply, "Keeps one from timed resets."),
    _request("session", "release", SessionRelease, SessionReply, "Ends a hold."),
    _request("session", "override", SessionOverride, SessionReply, "Sets which model answers."),
    _request("session", "note", SessionNote, SessionReply, "Leaves a note for the next one."),
    _request("session", "rounds", SessionRounds, SessionRoundsReply, "Counts rounds."),
    _request(
        "session", "stop", SessionStop, StopReply, "Ends the running turn and drops what waits."
    ),
    _request("turn", "cancel", TurnCancel, StopReply, "Ends a turn."),
    _request(
        "transcript",
        "load",
        TranscriptLoad,
        TranscriptReply,
        "Shows rows of a transcript, the newest page first.",
    ),
    _request(
        "transcript",
        "revisions",
        TranscriptRevisions,
        TranscriptRevisionsReply,
        "Shows what a row said before it was edited or deleted.",
    ),
    _request(
        "transcript",
        "search",
        TranscriptSearch,
        TranscriptHits,
        "Finds rows of transcripts by what they say.",
    ),
    _request(
        "transcript", "append", TranscriptAppend, TranscriptChanged, "Adds rows to a transcript."
    ),
    _request(
        "transcript", "replace", TranscriptReplace, TranscriptChanged, "Writes a transcript anew."
    ),
    _request(
        "transcript",
        "compact",
        TranscriptCompact,
        TranscriptChanged,
        "Puts a summary in the place of the oldest rows.",
    ),
    _request(
        "transcript", "rewind", TranscriptRewind, TranscriptChanged, "Takes back the last turns."
    ),
    _request(
        "transcript", "retry", TranscriptRetry, TranscriptChanged, "Runs the last turn once more."
    ),
)
"""The requests about sessions and transcripts, in the form that operators use."""

CHANNELS: Final[tuple[Channel, ...]] = (
    Channel(
        name="inbound",
        address=subjects.INBOUND,
        direction="receive",
        message=InboundEvent,
        stream=StreamName.INBOUND,
        description="What happened in a chat, from its adapter; one publish in flight per chat.",
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
        "claim", ClaimRequest, ClaimReply, "Takes a turn: its messages, a lease and a token."
    ),
    _turn_request("renew", RenewRequest, RenewReply, "Keeps a claimed turn for another lease."),
    _turn_request(
        "take", TurnTake, TakeReply, "Takes in what came while a claimed turn runs, to steer it."
    ),
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
        description="Pieces of an answer while it is written, from a worker to who watches.",
    ),
    Channel(
        name="control",
        address=subjects.CONTROL,
        direction="send",
        message=TurnControl,
        description="What a worker is told of its turn at once: to end it, or to take something in.",
    ),
    Channel(
        name="outbound",
        address=subjects.OUTBOUND,
        direction="send",
        message=OutboundMessage,
        stream=StreamName.OUTBOUND,
        description="What to say to a chat, for the adapter of its account.",
    ),
    _session_event("started", SessionStarted, "A conversation was opened."),
    _session_event("updated", SessionUpdated, "A conversation has changed; look again."),
    _session_event("ending", SessionEnding, "A conversation will be closed by time."),
    Channel(
        name="endingOfAgent",
        address=subjects.ENDING,
        direction="send",
        message=SessionEnding,
        stream=StreamName.EVENTS,
        description="A conversation of the agent will be closed by time; for its workers.",
    ),
    _session_event("ended", SessionEnded, "A conversation was closed."),
    Channel(
        name="dead",
        address=subjects.DEAD,
        direction="send",
        message=DeadLetter,
        stream=StreamName.DEAD,
        description="Messages that were set aside, with the reason; never their content.",
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
            description=f"{channel.description[:-1]}, if it is of the agent.",
        )
        for channel in REQUESTS
        if "session_id" in channel.message.model_fields
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


def every_channel() -> tuple[Channel, ...]:
    """Return the whole table, including the worker and front-end forms of its requests."""
    return (*CHANNELS, *requests_of_agent(), *requests_for_account())


def messages() -> tuple[type[Envelope], ...]:
    """Return every message type of the table once, in table order."""
    models = (model for channel in CHANNELS for model in (channel.message, *channel.replies))
    return tuple(dict.fromkeys(models))
