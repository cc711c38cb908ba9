"""Requests that end or delete many sessions, a page at a time."""

from typing import Annotated
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import BigNumber
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import SessionChange
from chatlane_schemas.session_api.sessions import ApiReply, CallerOrigin, PageLimit


class SessionRemove(SessionChange):
    """Deletes a session and its transcript; copies in forked sessions stay.

    Refused as `conflict` while a worker holds a turn of the session or background work holds the
    session. If a lane pointed to it, the next message opens another session. The reply shows no
    session.
    """


class SessionPrune(Envelope):
    """Ends sessions that were inactive for long; suspended, held and busy sessions stay."""

    idle_days: Annotated[int, Field(strict=True, ge=1, le=36500)] = Field(
        description="Number of days without a message after which a session is ended.",
    )
    limit: PageLimit = Field(default=100, description="Number of sessions to check.")
    cursor: UUID | None = Field(default=None, description="`next_cursor` of the previous reply.")


class SessionCleanup(Envelope):
    """Deletes sessions that a kind of caller opened, newest first; busy and held sessions stay."""

    origin: CallerOrigin = Field(description="Kind of caller, such as `acp`; never `chat`.")
    limit: PageLimit = Field(default=50, description="Number of sessions to check.")
    cursor: UUID | None = Field(default=None, description="`next_cursor` of the previous reply.")
    acting_for: Person | None = Field(
        default=None,
        description="Person whose sessions are deleted; sessions of other people stay.",
    )


class SessionSweepReply(ApiReply):
    """Reply to `SessionPrune` and `SessionCleanup`."""

    done: BigNumber = Field(default=0, description="Number of sessions that were ended or deleted.")
    next_cursor: UUID | None = Field(
        default=None,
        description="`cursor` of the next request; none after the last session.",
    )
