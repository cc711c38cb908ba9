"""A request that changes a session, with what it may touch, for whatever decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from chatlane_schemas.sessions import ApiError, ApiErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from chatlane.decisions.unit_of_work import Writing
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Lane, Session


class Shown(NamedTuple):
    """A session to show, and what else there is to say about the change.

    Attributes:
        message_id: Of the message that was put into it.
        dropped: How many waiting messages of the session before will not be answered.
    """

    session_id: UUID
    message_id: UUID | None = None
    dropped: int = 0


class Outdated(NamedTuple):
    """The refusal of a request that was made from an older version of the session to show."""

    session_id: UUID


Outcome: TypeAlias = UUID | Shown | Outdated | ApiError
"""The session to show, or the refusal; what is refused has written nothing."""


class Case(NamedTuple):
    """A new request and the locked session it is about.

    Attributes:
        session: The one the request names, or the one that its conversation goes on in.
        at: When the request was made; the only clock of its decision.
        trigger: What makes the ids that follow from it these.
        lane: The one that the request names, if there is one and it leads to what is theirs.
        locked: Every session that the request may change, by id.
        theirs: Who may own what the request finds; None where it acts for nobody.
        slots: How many slots a `stream` agent's messages are spread over.
    """

    writing: Writing
    catalog: Catalog
    session: Session
    at: datetime
    trigger: bytes
    lane: Lane | None
    locked: dict[UUID, Session]
    theirs: Sequence[str] | None
    slots: int

    def is_visible(self, session: Session | None) -> bool:
        """Return whether whom the request acts for may know of a session."""
        return session is not None and (self.theirs is None or session.owner in self.theirs)


def refused(code: ApiErrorCode, message: str) -> ApiError:
    """Return why a request is refused."""
    return ApiError(code=code, message=message)


def no_lane() -> ApiError:
    """Return the refusal of a lane that is not there, or somebody else's."""
    return refused(ApiErrorCode.NOT_FOUND, "there is no lane with this key")
