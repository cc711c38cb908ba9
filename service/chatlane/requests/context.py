"""Define the context and the outcome of requests that change something."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from chatlane_schemas.session_api.sessions import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Lane, Session
    from chatlane.postgres.pool import Connection


class Call(NamedTuple):
    """A new request, and the transaction that decides it.

    Attributes:
        slots: Number of slots for the messages of a `stream` agent.
        principal: The caller.
        at: Time of the request, and the only clock of the decision.
        trigger: Seed of derived ids, so that a repeated request derives the same ids.
    """

    unit_of_work: UnitOfWork
    catalog: Catalog
    slots: int
    principal: str
    at: datetime
    trigger: bytes

    @property
    def connection(self) -> Connection:
        """Return the connection of the transaction."""
        return self.unit_of_work.connection


class Case(NamedTuple):
    """A new request and the locked session it is about.

    Attributes:
        session: The session that the request names, or the one that continues its conversation.
        lane: The lane that the request names, if it exists and points to a permitted session.
        locked: Every session that the request may change, by id.
        owners: The permitted session owners; None if the request acts for no person.
    """

    call: Call
    session: Session
    lane: Lane | None
    locked: dict[UUID, Session]
    owners: Sequence[str] | None

    @property
    def connection(self) -> Connection:
        """Return the connection of the transaction."""
        return self.call.connection

    def is_visible(self, session: Session | None) -> bool:
        """Return whether the person that the request acts for may see a session."""
        return session is not None and (self.owners is None or session.owner in self.owners)


class Shown(NamedTuple):
    """A session to show, and further results of the change.

    Attributes:
        message_id: The id of the message that was added to the session.
        turn_id: The running turn whose question the message answers.
        dropped: How many pending messages of the previous session will not be answered.
        error: The refusal, if the request was refused.
        deleted: How much was deleted with the session.
    """

    session_id: UUID | None
    message_id: UUID | None = None
    dropped: int = 0
    error: ApiError | None = None
    turn_id: UUID | None = None
    deleted: Mapping[str, int] = MappingProxyType({})


Outcome: TypeAlias = UUID | Shown | ApiError
"""The session to show, or the refusal; a refused request has written nothing."""
