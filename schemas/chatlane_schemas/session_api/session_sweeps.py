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
        description="End those in which nobody has written for so many days.",
    )
    limit: PageLimit = Field(default=100, description="How many to look at.")
    cursor: UUID | None = Field(default=None, description="`next_cursor` of the reply before.")


class SessionCleanup(Envelope):
    """Deletes sessions that a kind of caller opened, newest first; busy and held sessions stay."""

    origin: CallerOrigin = Field(description="Kind of caller, such as `acp`; never `chat`.")
    limit: PageLimit = Field(default=50, description="How many to look at.")
    cursor: UUID | None = Field(default=None, description="`next_cursor` of the reply before.")
    acting_for: Person | None = Field(
        default=None,
        description="Whose sessions are meant; those of others stay.",
    )


class SessionSweepReply(ApiReply):
    """Reply to `SessionPrune` and `SessionCleanup`."""

    done: BigNumber = Field(default=0, description="How many were ended or deleted.")
    next_cursor: UUID | None = Field(
        default=None,
        description="For the next request; none when all have been looked at.",
    )
