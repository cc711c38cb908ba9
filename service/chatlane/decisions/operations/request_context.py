"""Define the context and outcome of a request that changes a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Lane, Session


class Shown(NamedTuple):
    """A session to show, and further results of the change.

    Attributes:
        message_id: The id of the message that was added to the session.
        dropped: How many pending messages of the previous session will not be answered.
    """

    session_id: UUID
    message_id: UUID | None = None
    dropped: int = 0


class Outdated(NamedTuple):
    """A refusal, because the request was made from an older version of the session to show."""

    session_id: UUID


Outcome: TypeAlias = UUID | Shown | Outdated | ApiError
"""The session to show, or the refusal; a refused request has written nothing."""


class Case(NamedTuple):
    """A new request and the locked session it is about.

    Attributes:
        session: The session that the request names, or the one that continues its conversation.
        at: When the request was made; the only clock of its decision.
        trigger: The bytes from which the ids of new rows are derived.
        lane: The lane that the request names, if it exists and points to a permitted session.
        locked: Every session that the request may change, by id.
        theirs: The permitted session owners; None if the request acts for no person.
        slots: How many slots a `stream` agent's messages are spread over.
    """

    unit_of_work: UnitOfWork
    catalog: Catalog
    session: Session
    at: datetime
    trigger: bytes
    lane: Lane | None
    locked: dict[UUID, Session]
    theirs: Sequence[str] | None
    slots: int

    def is_visible(self, session: Session | None) -> bool:
        """Return whether the person that the request acts for may see a session."""
        return session is not None and (self.theirs is None or session.owner in self.theirs)


def refused(code: ApiErrorCode, message: str) -> ApiError:
    """Return the refusal of a request."""
    return ApiError(code=code, message=message)


def no_lane() -> ApiError:
    """Return the refusal for a lane that does not exist or belongs to another person."""
    return refused(ApiErrorCode.NOT_FOUND, "there is no lane with this key")
