"""The session API: read requests, replies, and the views of sessions in them."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.envelope import Envelope, Record, ServiceEnvelope
from chatlane_schemas.events import EndReason
from chatlane_schemas.fields import (
    BigNumber,
    Counters,
    Flag,
    Instant,
    JsonObject,
    Name,
    PlatformName,
    Text,
)
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_state import ModelOverride, Note, ResumeMark

SessionKey = Annotated[Text, Field(min_length=1, max_length=8192)]
Cursor = Annotated[str, Field(pattern=r"^[A-Za-z0-9._~=-]{1,512}$")]
SessionVersion = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""Opaque version of the data that a request replaces, from the reply that the caller read."""
PageLimit = Annotated[int, Field(strict=True, ge=1, le=200)]


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

    code: ApiErrorCode = Field(description="What went wrong.")
    message: Text = Field(description="The same in words, for people.")


class ApiReply(ServiceEnvelope):
    """Fields of every reply."""

    error: ApiError | None = Field(default=None, description="Set when there is no answer.")


class SessionGet(Envelope):
    """Gets a session by its id."""

    session_id: UUID = Field(description="Session to show.")
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not found.",
    )


class SessionPeek(Envelope):
    """Gets the current session of a key without creating one."""

    session_key: SessionKey = Field(description="Key of the lane.")
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not found.",
    )


CHAT_ORIGIN: Final = "chat"
"""Origin of a session that a message of a platform opened."""


def _not_chat(origin: str) -> str:
    if origin == CHAT_ORIGIN:
        raise PydanticCustomError("origin", "origin is the one of what messages open")
    return origin


CallerOrigin = Annotated[Name, AfterValidator(_not_chat)]
"""Origin of a session that a caller opened: any kind of caller, never a message."""


class SessionFilter(Envelope):
    """Selects sessions: those that match all given fields."""

    platform: PlatformName | None = Field(default=None, description="Only of this platform.")
    agent: Name | None = Field(default=None, description="Only of this agent.")
    origin: Name | None = Field(
        default=None,
        description="Only what this kind of caller opened; `chat` for what messages opened.",
    )
    active_since: Instant | None = Field(
        default=None,
        description="Only those in which a person has written since.",
    )
    archived: Flag | None = Field(default=None, description="Only those that are, or are not.")
    acting_for: Person | None = Field(
        default=None,
        description="Whose sessions are meant; those of others are not there.",
    )


class SessionList(SessionFilter):
    """Lists sessions, newest first.

    A page may be shorter than its limit, or empty, while more pages follow: there is a next page if
    and only if the reply has a `next_cursor`.
    """

    limit: PageLimit = Field(default=50, description="How many to show.")
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


class SessionView(Record):
    """A session as API clients see it."""

    id: UUID = Field(description="Id of the session.")
    session_key: str = Field(description="Key of its lane.")
    agent: Name = Field(description="Agent that serves it.")
    platform: PlatformName = Field(description="Platform it is on.")
    started_at: Instant = Field(description="When it was opened.")
    ended_at: Instant | None = Field(default=None, description="When it was closed.")
    end_reason: EndReason | None = Field(
        default=None, description="Why it was closed; none if the router does not know the reason."
    )
    last_activity_at: Instant = Field(description="When a person last wrote.")
    message_count: BigNumber = Field(description="Rows in its transcript.")
    title: Text | None = Field(default=None, description="Title shown to people.")
    is_busy: Flag = Field(default=False, description="Whether a turn is running.")
    cwd: Text | None = Field(default=None, description="Directory in which tools work.")
    model: Text | None = Field(default=None, description="Model that is to answer.")
    config: JsonObject | None = Field(default=None, description="What else the agent reads.")
    origin: Name = Field(default=CHAT_ORIGIN, description="What opened it: `chat`, `acp`, ...")
    archived_at: Instant | None = Field(default=None, description="When it was put away.")
    parent_id: UUID | None = Field(default=None, description="Session that it began from.")
    link_kind: Name | None = Field(
        default=None,
        description="How: `branch`, `compression`, or `merged` into it.",
    )
    model_override: ModelOverride | None = Field(
        default=None, description="Model that answers instead of the agent's own choice."
    )
    is_suspended: Flag = Field(
        default=False, description="Whether the next message opens another session."
    )
    resume_pending: ResumeMark | None = Field(
        default=None, description="That it was interrupted and is to go on."
    )
    held_until: Instant | None = Field(
        default=None, description="Until when background work keeps it from timed resets."
    )
    answer_count: BigNumber = Field(default=0, description="Complete results of its agent.")
    usage: Counters = Field(
        default={}, description="Sums of what results reported, such as tokens; by name."
    )
    note: Note | None = Field(
        default=None, description="Note left for the session that will follow."
    )
    version: SessionVersion | None = Field(
        default=None,
        description="For `expected_version`. Another one after title, directory, model, config, "
        "model override, note or archive state have changed; messages do not change it.",
    )


class SessionCount(SessionFilter):
    """Counts sessions."""


class SessionCounts(Record):
    """Number of sessions that match."""

    total: BigNumber = Field(description="All that match.")
    open: BigNumber = Field(description="Those that have not ended.")
    archived: BigNumber = Field(description="Those that are archived.")
    is_complete: Flag = Field(
        default=True,
        description="Whether all were looked at; else these are of the newest 50,000 of the "
        "owner, kind, platform or agent.",
    )


class SessionCountReply(ApiReply):
    """Reply to `SessionCount`."""

    counts: SessionCounts | None = Field(default=None, description="How many there are.")


class SessionReply(ApiReply):
    """Reply to a request about one session."""

    session: SessionView | None = Field(
        default=None,
        description="The session, if there is one; beside the error `stale` of a request with "
        "`expected_version`, what it is now.",
    )
    message_id: UUID | None = Field(default=None, description="Id of what was said in it.")
    dropped: BigNumber = Field(
        default=0,
        description="After a reset: messages that waited in the session before. Its transcript "
        "has them, marked as not answered.",
    )


class SessionListReply(ApiReply):
    """Reply to `SessionList` and `SessionFind`."""

    sessions: tuple[SessionView, ...] = Field(default=(), description="One page.")
    next_cursor: Cursor | None = Field(default=None, description="None on the last page.")
