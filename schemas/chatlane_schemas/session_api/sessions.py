"""The session API: read requests, replies, and the views of sessions in them."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Record, ServiceEnvelope
from chatlane_schemas.events import EndReason
from chatlane_schemas.fields import (
    Amounts,
    BigNumber,
    Counters,
    Flag,
    Instant,
    JsonObject,
    Name,
    PlatformName,
    Text,
)
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.session_marks import (
    Draft,
    Label,
    LiveTurn,
    TitleSource,
    WaitingMessages,
    Worktree,
)
from chatlane_schemas.session_api.session_state import ModelOverride, Note, ResumeMark

SessionKey = Annotated[Text, Field(min_length=1, max_length=8192)]
Cursor = Annotated[str, Field(pattern=r"^[A-Za-z0-9._~=-]{1,512}$")]
SessionVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""Opaque version of the data that a request replaces, from the reply that the caller read."""
PageLimit = Annotated[int, Field(strict=True, ge=1, le=200)]
WithRooms = Annotated[
    Flag,
    Field(
        description="Whether the person of the request also sees shared sessions of rooms that the person "
        "is a member of, if the settings of their account allow it. A router of an earlier release "
        "shows none."
    ),
]
"""Includes sessions that a person may read as a member of a room."""


class Access(StrEnum):
    """How a person may use a session that the person does not own.

    `member`: a member of its room reads it, and changes nothing.
    """

    MEMBER = "member"


class ApiErrorCode(StrEnum):
    """Why the service refused a request; only `unavailable` is worth a retry.

    `forbidden`: the caller's subject does not allow this request for this person. `conflict`: the
    request contradicts the current state. `stale`: the state has changed since the caller read it.
    """

    NOT_FOUND = "not_found"
    FORBIDDEN = "forbidden"
    INVALID = "invalid"
    CONFLICT = "conflict"
    STALE = "stale"
    UNAVAILABLE = "unavailable"


class ApiError(Record):
    """The error of a refused request."""

    code: ApiErrorCode = Field(description="Kind of the error.")
    message: Text = Field(description="Explanation for people.")


class ApiReply(ServiceEnvelope):
    """Fields of every reply."""

    error: ApiError | None = Field(default=None, description="Error of a refused request.")


class SessionGet(PersonRequest):
    """Gets a session by its id."""

    session_id: UUID = Field(description="Id of the session.")
    whole_chain: Flag = Field(
        default=False,
        description="Whether to return the sums over its conversation, in `chain` of the session.",
    )
    with_rooms: WithRooms = False


class SessionPeek(PersonRequest):
    """Gets the current session of a key without creating one."""

    session_key: SessionKey = Field(description="Key of the lane.")


CHAT_ORIGIN: Final = "chat"
"""Origin of a session that a message of a platform opened."""


def _not_chat(origin: str) -> str:
    if origin == CHAT_ORIGIN:
        raise PydanticCustomError("origin", "origin is the one of what messages open")
    return origin


CallerOrigin = Annotated[Name, AfterValidator(_not_chat)]
"""Origin of a session that a caller opened: any kind of caller, never a message."""


class SessionState(StrEnum):
    """A state that selects sessions.

    `running`: a turn runs. `waiting`: messages wait that no turn has taken. `read_only`: nothing can
    be written.
    """

    RUNNING = "running"
    WAITING = "waiting"
    READ_ONLY = "read_only"


class SessionFilter(PersonRequest):
    """Selects sessions: those that match all given fields."""

    platform: PlatformName | None = Field(
        default=None, description="Only sessions of this platform."
    )
    agent: Name | None = Field(default=None, description="Only sessions of this agent.")
    origin: Name | None = Field(
        default=None,
        description="Only sessions that this kind of caller opened; `chat` for those that messages opened.",
    )
    without_origins: tuple[Name, ...] = Field(
        default=(), max_length=16, description="No sessions that these kinds of callers opened."
    )
    profile: Name | None = Field(default=None, description="Only sessions of this profile.")
    cwd: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="Only sessions with this working directory."
    )
    project_id: UUID | None = Field(default=None, description="Only sessions in this folder.")
    label: Label | None = Field(default=None, description="Only sessions with this label.")
    title_part: Annotated[Text, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="Only sessions whose title has this part, in any case."
    )
    active_since: Instant | None = Field(
        default=None,
        description="Only sessions in which a person has written since this time.",
    )
    active_before: Instant | None = Field(
        default=None,
        description="Only sessions without a message since this time.",
    )
    archived: Flag | None = Field(
        default=None, description="Only archived sessions, or only others."
    )
    hide_empty: Flag = Field(
        default=False,
        description="Whether to leave out sessions without a message, a title, a turn and a worktree.",
    )
    tips_only: Flag = Field(
        default=False,
        description="Whether to leave out sessions that a compaction continued in another session.",
    )
    state: SessionState | None = Field(
        default=None,
        description="Only sessions in this state. A router of an earlier release ignores it.",
    )
    with_rooms: WithRooms = False


class SessionOrder(StrEnum):
    """Order of a list of sessions."""

    STARTED = "started"
    """Those that began last come first."""
    ACTIVITY = "activity"
    """Those with the newest message come first: of a person or of the agent, not of a tool."""


class SessionList(SessionFilter):
    """Lists sessions; those that began last come first, or those with the newest message.

    By activity, a session that gets a message between two pages moves to the front: no later page
    shows it, and no page shows a session twice. The same holds for a session that a person pins; only
    one that loses its pin meanwhile may come again. A router of an earlier release lists by start.

    A page may be shorter than its limit, or empty, while more pages follow: there is a next page if
    and only if the reply has a `next_cursor`.
    """

    limit: PageLimit = Field(default=50, description="Maximum number of sessions.")
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the previous page.")
    order: SessionOrder | None = Field(
        default=None, description="`started` by default; the same for all pages."
    )
    pinned_first: Flag = Field(
        default=False,
        description="Whether pinned sessions come before all others. Only by activity, and only for a "
        "person.",
    )


class SessionChain(Record):
    """A conversation that compactions continued in child sessions, from its root to its tip."""

    root_id: UUID = Field(description="Session in which it began.")
    tip_id: UUID = Field(description="Session in which it goes on.")
    sessions: BigNumber = Field(description="Number of its sessions.")
    usage: Counters = Field(default={}, description="Sums of counts over all of them.")
    costs: Amounts = Field(default={}, description="Sums of amounts over all of them.")


class SessionView(Record):
    """A session as API clients see it."""

    id: UUID = Field(description="Id of the session.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that serves the session.")
    platform: PlatformName = Field(description="Platform of the session.")
    started_at: Instant = Field(description="When the session was opened.")
    ended_at: Instant | None = Field(default=None, description="When the session ended.")
    end_reason: EndReason | None = Field(
        default=None,
        description="Why the session ended; none if the router does not know the reason.",
    )
    last_activity_at: Instant = Field(
        description="When a person last wrote, or when the session began if no person did."
    )
    last_message_at: Instant | None = Field(
        default=None,
        description="When the newest message came, of a person or of the agent and not of a tool; "
        "the order of lists by activity.",
    )
    message_count: BigNumber = Field(description="Rows in its transcript.")
    user_message_count: BigNumber = Field(default=0, description="Messages of people among them.")
    title: Text | None = Field(default=None, description="Title for people.")
    shown_title: Text | None = Field(
        default=None,
        description="The title, or else the first words of a person: at most 64 characters.",
    )
    title_source: TitleSource | None = Field(
        default=None, description="Where `shown_title` comes from."
    )
    pinned: Flag = Field(default=False, description="Whether a person has pinned it.")
    project_id: UUID | None = Field(default=None, description="Folder that it is in.")
    labels: tuple[Text, ...] = Field(default=(), description="Labels that people gave it.")
    read_only: Flag = Field(
        default=False, description="Whether nothing can be written to it; a copy can."
    )
    access: Access | None = Field(
        default=None,
        description="`member` of a session that the person of the request sees only as a member of its "
        "room; `read_only` is then set, and fields about the work of others are left out.",
    )
    profile: Text | None = Field(default=None, description="Profile of the session.")
    source: Name | None = Field(
        default=None,
        description="Where it comes from: the platform, or the kind of caller that opened it.",
    )
    source_label: Text | None = Field(default=None, description="Name of the source for people.")
    is_busy: Flag = Field(default=False, description="Whether a turn is running.")
    cwd: Text | None = Field(default=None, description="Working directory of tools.")
    model: Text | None = Field(default=None, description="Model that answers.")
    config: JsonObject | None = Field(default=None, description="Other settings for the agent.")
    origin: Name = Field(
        default=CHAT_ORIGIN,
        description="Kind of caller that opened the session: `chat`, `acp`, ...",
    )
    archived_at: Instant | None = Field(default=None, description="When the session was archived.")
    parent_id: UUID | None = Field(default=None, description="Session from which this one began.")
    link_kind: Name | None = Field(
        default=None,
        description="Kind of that link: `branch`, `compression`, or `merged` into it.",
    )
    root_id: UUID | None = Field(
        default=None,
        description="Session in which its conversation began, if a compaction continued it here.",
    )
    tip_id: UUID | None = Field(
        default=None,
        description="Session in which its conversation goes on, if it was compacted.",
    )
    segments: BigNumber = Field(
        default=1, description="Number of sessions of its conversation up to this one."
    )
    worktree: Worktree | None = Field(
        default=None, description="Working copy that was made for it."
    )
    waiting: WaitingMessages | None = Field(
        default=None, description="Messages that no turn has taken yet, if there are any."
    )
    turn: LiveTurn | None = Field(default=None, description="The turn that it has now.")
    draft: Draft | None = Field(
        default=None,
        description="What the person of the request has typed and not sent. Only in answers to `SessionGet`.",
    )
    unread: BigNumber | None = Field(
        default=None,
        description="Answers after the place up to which the person of the request has read, counted "
        "up to 100; none if the person has marked no place. Only in answers to `SessionGet` and "
        "`SessionList`.",
    )
    model_override: ModelOverride | None = Field(
        default=None, description="Model that answers instead of the agent's default."
    )
    is_suspended: Flag = Field(
        default=False, description="Whether the next message opens another session."
    )
    resume_pending: ResumeMark | None = Field(
        default=None, description="Mark of an interrupted session that is to continue."
    )
    held_until: Instant | None = Field(
        default=None, description="Until when a hold protects the session from timed resets."
    )
    answer_count: BigNumber = Field(
        default=0, description="Number of complete results of the agent."
    )
    usage: Counters = Field(
        default={}, description="Sums of counts from results, such as tokens; by name."
    )
    costs: Amounts = Field(
        default={}, description="Exact sums of amounts from results, such as `cost_usd`; by name."
    )
    gauges: Counters = Field(
        default={},
        description="Latest values from results, such as `context_tokens` and `context_limit`.",
    )
    chain: SessionChain | None = Field(
        default=None,
        description="Sums over its conversation, if `SessionGet` asks for the `whole_chain`.",
    )
    note: Note | None = Field(default=None, description="Note for the next session.")
    version: SessionVersion | None = Field(
        default=None,
        description="Value for `expected_version`. It changes with the title, directory, model, config, "
        "model override, note, labels, folder, worktree and archive state, and not with messages.",
    )


class SessionCount(SessionFilter):
    """Counts sessions."""


class SessionCounts(Record):
    """Number of sessions that match."""

    total: BigNumber = Field(description="Number of matching sessions.")
    open: BigNumber = Field(description="Matching sessions that have not ended.")
    archived: BigNumber = Field(description="Matching sessions that are archived.")
    is_complete: Flag = Field(
        default=True,
        description="Whether all sessions were counted; if not, only the newest 50,000 of the owner, "
        "origin, platform or agent.",
    )


class SessionCountReply(ApiReply):
    """Reply to `SessionCount`."""

    counts: SessionCounts | None = Field(default=None, description="The counts.")


class SessionReply(ApiReply):
    """Reply to a request about one session."""

    session: SessionView | None = Field(
        default=None,
        description="The session, if there is one. With the error `stale` of a request with "
        "`expected_version`: the current session.",
    )
    message_id: UUID | None = Field(default=None, description="Id of the submitted message.")
    turn_id: UUID | None = Field(
        default=None,
        description="The running turn whose question the submitted message answers, if it does.",
    )
    dropped: BigNumber = Field(
        default=0,
        description="After a reset: number of pending messages of the previous session. Its transcript "
        "has them, marked as not answered.",
    )
    deleted: dict[str, BigNumber] = Field(
        default={},
        description="The receipt of a removed session: how much was deleted, by what it was.",
    )


class SessionListReply(ApiReply):
    """Reply to `SessionList` and `SessionFind`."""

    sessions: tuple[SessionView, ...] = Field(default=(), description="Sessions of the page.")
    next_cursor: Cursor | None = Field(default=None, description="None on the last page.")
