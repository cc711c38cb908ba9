"""The session API for what keeps, interrupts or gives up a session, typed."""

from datetime import UTC, datetime, timedelta
from typing import TypedDict
from uuid import UUID

from nats.aio.client import Client

from chatlane_client.errors import SessionNotFoundError
from chatlane_client.requests import Requests
from chatlane_schemas import new_envelope_id
from chatlane_schemas.people import Person
from chatlane_schemas.session_changes import SessionChange
from chatlane_schemas.session_life import (
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
from chatlane_schemas.session_state import ModelOverride
from chatlane_schemas.sessions import SessionReply, SessionView


class _About(TypedDict):
    id: str
    at: datetime
    session_id: UUID
    acting_for: Person | None


class SessionLifeApi:
    """Holds, marks and suspends sessions, for a person or for nobody in particular.

    Each change is repeated with its id until it is answered, and made once. To repeat one over
    a restart of the caller, keep its `request_id` and pass it again with the same values.

    Raises (from every method):
        SessionNotFoundError: There is no such session, or it is somebody else's.
        ConflictingRequestError: The session has ended, or another request had this request id.
        UnansweredRequestError: Nobody answered in time; it may have been made.
    """

    def __init__(
        self,
        client: Client,
        *,
        principal: str,
        acting_for: Person | None = None,
        agent: str | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        """Make a client.

        Args:
            client: An open connection.
            principal: The name the connection's permissions allow it to ask under.
            acting_for: Whose sessions it finds and changes; None for all.
            agent: Of which agent's sessions, for a worker of it; None for all.
            patience: When to give up on a request.
        """
        self._requests = Requests(
            client, principal=principal, patience=patience, acting_for=acting_for, agent=agent
        )
        self._acting_for = acting_for

    async def suspend(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Give a session up: whatever keeps it, the next message opens another one."""
        return await self._change("suspend", SessionSuspend(**self._about(session_id, request_id)))

    async def mark(
        self, session_id: UUID, reason: str = "interrupted", *, request_id: str | None = None
    ) -> SessionView:
        """Say that a session was interrupted: it goes on for a while, and its agent is told.

        Args:
            session_id: Which one; must not be suspended.
            reason: What interrupted it, one word such as `restart`.
            request_id: Of a request that is made again.
        """
        about = self._about(session_id, request_id)
        return await self._change("mark", SessionMark(**about, reason=reason))

    async def unmark(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Take the mark of an interruption away, as a complete result does by itself."""
        return await self._change("unmark", SessionUnmark(**self._about(session_id, request_id)))

    async def hold(
        self, session_id: UUID, name: str, lasts: timedelta, *, request_id: str | None = None
    ) -> SessionView:
        """Keep a session from timed resets and from pruning; the same name renews.

        Args:
            session_id: Which one.
            name: What holds it: letters, digits, `.`, `_`, `:`, `-`, at most 128.
            lasts: Until it ends by itself; whole seconds, at most a day.
            request_id: Of a request that is made again.
        """
        about = self._about(session_id, request_id)
        seconds = round(lasts.total_seconds())
        return await self._change("hold", SessionHold(**about, name=name, lasts_s=seconds))

    async def release(
        self, session_id: UUID, name: str, *, request_id: str | None = None
    ) -> SessionView:
        """End a hold, if there is one of this name."""
        about = self._about(session_id, request_id)
        return await self._change("release", SessionRelease(**about, name=name))

    async def override_model(
        self,
        session_id: UUID,
        override: ModelOverride | None,
        *,
        request_id: str | None = None,
    ) -> SessionView:
        """Set which model answers in a session, as a whole; None takes it back."""
        about = self._about(session_id, request_id)
        return await self._change("override", SessionOverride(**about, override=override))

    async def leave_note(
        self, session_id: UUID, note: str, *, request_id: str | None = None
    ) -> SessionView:
        """Leave a note for the session that will follow; `""` takes it away.

        Args:
            session_id: Which one; may have ended, as long as no other has followed.
            note: At most 8,000 characters, told once with the first turn or routed message.
            request_id: Of a request that is made again.

        Raises:
            StaleRequestError: Another session has followed.
        """
        about = self._about(session_id, request_id)
        return await self._change("note", SessionNote(**about, note=note))

    async def count_rounds(self, session_id: UUID, since: datetime | None = None) -> int:
        """Return how often something was said and then answered, in rows later than `since`."""
        request = SessionRounds(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=session_id,
            since=since,
            acting_for=self._acting_for,
        )
        reply = await self._requests.ask("session", "rounds", request, SessionRoundsReply)
        if reply.rounds is None:
            raise self._no_such("rounds", session_id)
        return reply.rounds

    def _about(self, session_id: UUID, request_id: str | None) -> _About:
        return {
            "id": request_id or new_envelope_id(),
            "at": datetime.now(UTC),
            "session_id": session_id,
            "acting_for": self._acting_for,
        }

    async def _change(self, verb: str, request: SessionChange) -> SessionView:
        reply = await self._requests.ask("session", verb, request, SessionReply)
        if reply.session is None:
            raise self._no_such(verb, request.session_id)
        return reply.session

    def _no_such(self, verb: str, session_id: UUID) -> SessionNotFoundError:
        return SessionNotFoundError(
            self._requests.subject("session", verb), f"no session {session_id}"
        )
