"""The session API for what keeps, interrupts or gives up a session, typed."""

from datetime import datetime, timedelta
from uuid import UUID

from chatlane_client.requests import Api
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
from chatlane_schemas.sessions import SessionView


class SessionLifeApi(Api):
    """Holds, marks and suspends sessions, for a person or for nobody in particular.

    Each change is repeated with its id until it is answered, and made once. To repeat one over
    a restart of the caller, keep its `request_id` and pass it again with the same values.

    Raises (from every method):
        SessionNotFoundError: There is no such session, or it is somebody else's.
        ConflictingRequestError: Another request had the request id that is given; or the session
            has ended, which `release`, `leave_note` and `count_rounds` do not mind.
        UnansweredRequestError: Nobody answered in time; a change may have been made.
        InvalidAnswerError: The answer does not follow the contract.
    """

    async def suspend(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Give a session up: whatever keeps it, the next message opens another one."""
        request = SessionSuspend(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("suspend", request)

    async def mark(
        self, session_id: UUID, reason: str = "interrupted", *, request_id: str | None = None
    ) -> SessionView:
        """Say that a session was interrupted: it goes on for a while, and its agent is told.

        Args:
            session_id: Which one; must not be suspended.
            reason: What interrupted it, one word such as `restart`.
            request_id: Of a request that is made again.
        """
        request = SessionMark(**self._stamp(request_id), session_id=session_id, reason=reason)
        return await self._ask_session("mark", request)

    async def unmark(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Take the mark of an interruption away, as a complete result does by itself."""
        request = SessionUnmark(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("unmark", request)

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
        seconds = round(lasts.total_seconds())
        request = SessionHold(
            **self._stamp(request_id), session_id=session_id, name=name, lasts_s=seconds
        )
        return await self._ask_session("hold", request)

    async def release(
        self, session_id: UUID, name: str, *, request_id: str | None = None
    ) -> SessionView:
        """End a hold, if there is one of this name."""
        request = SessionRelease(**self._stamp(request_id), session_id=session_id, name=name)
        return await self._ask_session("release", request)

    async def override_model(
        self,
        session_id: UUID,
        override: ModelOverride | None,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Set which model answers in a session, as a whole; None takes it back.

        Args:
            session_id: Session to change.
            override: The model; None for the agent's own choice.
            expected_version: `version` of the session this is made from; None for any.
            request_id: Of a request that is made again.

        Raises:
            StaleRequestError: The session has another version by now; `current` shows it.
        """
        request = SessionOverride(
            **self._stamp(request_id),
            session_id=session_id,
            override=override,
            expected_version=expected_version,
        )
        return await self._ask_session("override", request)

    async def leave_note(
        self,
        session_id: UUID,
        note: str,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Leave a note for the session that will follow; `""` takes it away.

        Args:
            session_id: Which one; may have ended, as long as no other has followed.
            note: At most 8,000 characters, told once with the first turn or routed message.
                It replaces the note that is there.
            expected_version: `version` of the session this is made from; None for any.
            request_id: Of a request that is made again.

        Raises:
            StaleRequestError: Another session has followed, or the session has another version
                by now; then `current` shows it.
        """
        request = SessionNote(
            **self._stamp(request_id),
            session_id=session_id,
            note=note,
            expected_version=expected_version,
        )
        return await self._ask_session("note", request)

    async def count_rounds(self, session_id: UUID, since: datetime | None = None) -> int:
        """Return how often something was said and then answered, in rows later than `since`."""
        request = SessionRounds(**self._stamp(), session_id=session_id, since=since)
        reply = await self._ask("session", "rounds", request, SessionRoundsReply)
        if reply.rounds is None:
            raise self._incomplete("session", "rounds", "no rounds")
        return reply.rounds
