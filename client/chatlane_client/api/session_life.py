"""Typed client of the session API for holds, interruptions, notes and suspension."""

from datetime import datetime, timedelta
from uuid import UUID

from chatlane_client.api.requests import Api
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.session_life import (
    SessionHandback,
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionRounds,
    SessionRoundsReply,
    SessionSpeak,
    SessionSuspend,
    SessionTakeover,
    SessionUnmark,
)
from chatlane_schemas.session_api.session_state import ModelOverride
from chatlane_schemas.session_api.sessions import SessionView


class SessionLifeApi(Api):
    """Holds, marks and suspends sessions, on behalf of a person or without a person.

    The client repeats each change with its id until there is a reply, and the service makes it
    once. To repeat a change after a restart of the caller, keep its `request_id` and pass it again
    with the same values.

    Raises (from every method):
        SessionNotFoundError: There is no such session, or it belongs to another person.
        ConflictingRequestError: Another request used the given request id; or the session has
            ended, which `release`, `leave_note` and `count_rounds` allow.
        UnansweredRequestError: The service did not reply in time; it may have made the change.
        InvalidAnswerError: The answer does not follow the contract.
    """

    async def suspend(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Suspend a session: the next message opens another one, in spite of holds and marks."""
        request = SessionSuspend(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("suspend", request)

    async def mark(
        self, session_id: UUID, reason: str = "interrupted", *, request_id: str | None = None
    ) -> SessionView:
        """Mark a session as interrupted: no rule ends it for a while, and its agent learns of it.

        Args:
            session_id: Session to mark; must not be suspended.
            reason: Cause of the interruption, one word such as `restart`.
            request_id: Id of an earlier request that this one repeats.
        """
        request = SessionMark(**self._stamp(request_id), session_id=session_id, reason=reason)
        return await self._ask_session("mark", request)

    async def unmark(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Remove the interruption mark of a session, as a complete result does automatically."""
        request = SessionUnmark(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("unmark", request)

    async def hold(
        self, session_id: UUID, name: str, lasts: timedelta, *, request_id: str | None = None
    ) -> SessionView:
        """Protect a session from timed resets and pruning; the same name renews the hold.

        Args:
            session_id: Session to hold.
            name: Name of the hold: letters, digits, `.`, `_`, `:`, `-`, at most 128.
            lasts: Time until the hold ends automatically; whole seconds, at most a day.
            request_id: Id of an earlier request that this one repeats.
        """
        seconds = round(lasts.total_seconds())
        request = SessionHold(
            **self._stamp(request_id), session_id=session_id, name=name, lasts_s=seconds
        )
        return await self._ask_session("hold", request)

    async def release(
        self, session_id: UUID, name: str, *, request_id: str | None = None
    ) -> SessionView:
        """End the hold with this name, if there is one."""
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
        """Set the complete model override of a session; None removes it.

        Args:
            session_id: Session to change.
            override: The model; None for the agent's default.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version; `current` shows it.
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
        """Leave a note for the next session; `""` removes it.

        Args:
            session_id: Session that leaves the note; may have ended if no other has followed.
            note: At most 8,000 characters, delivered once with the first turn or routed message.
                It replaces the current note.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: Another session has followed, or the session has changed since that
                version; then `current` shows it.
        """
        request = SessionNote(
            **self._stamp(request_id),
            session_id=session_id,
            note=note,
            expected_version=expected_version,
        )
        return await self._ask_session("note", request)

    async def take_over(
        self, session_id: UUID, *, lasts: timedelta, request_id: str | None = None
    ) -> SessionView:
        """Let the agent of a session wait while a person of the team talks; only for operators.

        Messages of the chat wait. A turn that runs goes on. Repeat it to set another end.

        Args:
            session_id: Session to take over.
            lasts: How long at most, up to a day; then the agent goes on.
            request_id: Id of an earlier request that this one repeats.
        """
        stamp = self._stamp(request_id)
        request = SessionTakeover(
            id=stamp["id"],
            at=stamp["at"],
            session_id=session_id,
            lasts_s=max(1, int(lasts.total_seconds())),
        )
        return await self._ask_session("takeover", request)

    async def speak(
        self, session_id: UUID, message: str, *, author: str, request_id: str | None = None
    ) -> SessionView:
        """Send a message of the team to the chat of a session that was taken over; for operators.

        The agent sees it in the history. It does not answer the messages that waited.

        Args:
            session_id: Session that was taken over.
            message: Text of the message.
            author: Name of the person who writes, for the transcript.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ConflictingRequestError: The session was not taken over, or has ended.
        """
        stamp = self._stamp(request_id)
        request = SessionSpeak(
            id=stamp["id"],
            at=stamp["at"],
            session_id=session_id,
            author=author,
            message=Part(text=message),
        )
        return await self._ask_session("speak", request)

    async def hand_back(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a takeover, so that the agent goes on at once; only for operators.

        Args:
            session_id: Session that was taken over.
            request_id: Id of an earlier request that this one repeats.
        """
        stamp = self._stamp(request_id)
        request = SessionHandback(id=stamp["id"], at=stamp["at"], session_id=session_id)
        return await self._ask_session("handback", request)

    async def count_rounds(self, session_id: UUID, since: datetime | None = None) -> int:
        """Return the number of rounds (messages and their answer) in rows later than `since`."""
        request = SessionRounds(**self._stamp(), session_id=session_id, since=since)
        reply = await self._ask("session", "rounds", request, SessionRoundsReply)
        if reply.rounds is None:
            raise self._incomplete("session", "rounds", "no rounds")
        return reply.rounds
