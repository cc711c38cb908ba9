"""The session API for callers that change sessions, typed."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from nats.aio.client import Client
from pydantic import JsonValue

from chatlane_client.errors import InvalidAnswerError, SessionNotFoundError
from chatlane_client.requests import Requests
from chatlane_schemas import new_envelope_id
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.people import Person
from chatlane_schemas.session_changes import (
    Preference,
    SessionArchive,
    SessionChange,
    SessionEnd,
    SessionFind,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionStop,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_sweeps import (
    SessionCleanup,
    SessionPrune,
    SessionRemove,
    SessionSweepReply,
)
from chatlane_schemas.sessions import (
    SessionCount,
    SessionCountReply,
    SessionCounts,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)
from chatlane_schemas.turns import StopReply, TurnCancel

ChangeT = TypeVar("ChangeT", bound=SessionChange)


class SessionApi:
    """Finds and changes sessions, for a person or for nobody in particular.

    A change is repeated with its id until it is answered, and made once. To repeat one over a
    restart of the caller, keep its `request_id` and pass it again with the same values.
    """

    def __init__(
        self,
        client: Client,
        *,
        principal: str,
        acting_for: Person | None = None,
        patience: timedelta = timedelta(seconds=10),
    ) -> None:
        """Make a client.

        Args:
            client: An open connection.
            principal: The name the connection's permissions allow it to ask under.
            acting_for: Whose sessions it finds and changes; None for all.
            patience: When to give up on a request.
        """
        self._requests = Requests(
            client, principal=principal, patience=patience, acting_for=acting_for
        )
        self._acting_for = acting_for

    async def get(self, session_id: UUID) -> SessionView:
        """Return a session.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
        """
        request = SessionGet(
            id=new_envelope_id(), at=_now(), session_id=session_id, acting_for=self._acting_for
        )
        reply = await self._requests.ask("session", "get", request, SessionReply)
        return self._found(reply, "get", session_id)

    async def peek(self, session_key: str) -> SessionView | None:
        """Return the session a key leads to now, if it leads to one of theirs."""
        request = SessionPeek(
            id=new_envelope_id(), at=_now(), session_key=session_key, acting_for=self._acting_for
        )
        return (await self._requests.ask("session", "peek", request, SessionReply)).session

    async def find(self, title: str) -> tuple[SessionView, ...]:
        """Return the sessions of a title, the newest first; a person has at most one."""
        request = SessionFind(
            id=new_envelope_id(), at=_now(), title=title, acting_for=self._acting_for
        )
        return (await self._requests.ask("session", "find", request, SessionListReply)).sessions

    async def list_all(
        self,
        *,
        platform: str | None = None,
        agent: str | None = None,
        origin: str | None = None,
        active_since: datetime | None = None,
        archived: bool | None = None,
        page_size: int = 50,
    ) -> AsyncIterator[SessionView]:
        """Yield the sessions to which all that is given applies, the newest first.

        Args:
            platform: Only of this platform.
            agent: Only of this agent.
            origin: Only what this kind of caller opened, `chat` for what messages opened.
            active_since: Only those in which a person has written since, aware.
            archived: Only those that are archived, or that are not; None for both.
            page_size: How many are asked for at once, 1 to 200.
        """
        cursor = None
        while True:
            request = SessionList(
                id=new_envelope_id(),
                at=_now(),
                acting_for=self._acting_for,
                platform=platform,
                agent=agent,
                origin=origin,
                active_since=active_since,
                archived=archived,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._requests.ask("session", "list", request, SessionListReply)
            for session in reply.sessions:
                yield session
            if (cursor := reply.next_cursor) is None:
                return

    async def count(
        self,
        *,
        platform: str | None = None,
        agent: str | None = None,
        origin: str | None = None,
        active_since: datetime | None = None,
        archived: bool | None = None,
    ) -> SessionCounts:
        """Return how many sessions `list_all` would yield, and how many of them are open.

        Raises:
            InvalidAnswerError: The answer holds no counts.
        """
        request = SessionCount(
            id=new_envelope_id(),
            at=_now(),
            acting_for=self._acting_for,
            platform=platform,
            agent=agent,
            origin=origin,
            active_since=active_since,
            archived=archived,
        )
        reply = await self._requests.ask("session", "count", request, SessionCountReply)
        if reply.counts is None:
            raise InvalidAnswerError(self._requests.subject("session", "count"), "no counts")
        return reply.counts

    async def archive(
        self, session_id: UUID, *, archived: bool = True, request_id: str | None = None
    ) -> SessionView:
        """Put a session away in lists, or take it out again; otherwise it stays as it is.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionArchive(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            archived=archived,
        )
        return await self._change("archive", request)

    async def create(
        self,
        *,
        origin: str = "api",
        session_key: str | None = None,
        profile: str | None = None,
        cwd: str | None = None,
        model: str | None = None,
        config: Mapping[str, JsonValue] | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Open a session, on a lane or on none.

        Args:
            origin: Kind of caller, such as `acp`; not `chat`.
            session_key: Key of the lane that shall lead to it, whose session must have ended.
            profile: Persona of a session without a lane; None for the default one.
            cwd: Directory in which tools work, at most 4,096 characters.
            model: Model that is to answer, at most 256 characters.
            config: Whatever else the agent reads, at most 16 kB of JSON; never credentials.
            request_id: Of a request that is made again.

        Raises:
            SessionNotFoundError: The lane led to no session of the person who is acted for.
            ConflictingRequestError: The lane leads to a session that goes on, or another request
                had this request id.
            RefusedRequestError: Profile, account or key are not declared.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionCreate(
            id=request_id or new_envelope_id(),
            at=_now(),
            acting_for=self._acting_for,
            origin=origin,
            session_key=session_key,
            profile=profile,
            cwd=cwd,
            model=model,
            config=None if config is None else dict(config),
        )
        reply = await self._requests.ask("session", "create", request, SessionReply)
        if reply.session is None:
            raise InvalidAnswerError(self._requests.subject("session", "create"), "no session")
        return reply.session

    async def submit(
        self,
        session_id: UUID,
        text: str,
        *,
        attachments: Sequence[Attachment] = (),
        request_id: str | None = None,
    ) -> SessionView:
        """Say something in a session, queued like a message of a chat.

        Returns:
            The session it was said in: another one if it was compacted.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: It has ended, or another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionSubmit(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            text=text,
            attachments=tuple(attachments),
        )
        return await self._change("submit", request)

    async def remove(self, session_id: UUID, *, request_id: str | None = None) -> None:
        """Delete a session and its transcript; copies of it in branches stay.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: A worker has a turn of it, or background work holds it; or
                another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = self._request(SessionRemove, session_id, request_id)
        await self._requests.ask("session", "remove", request, SessionReply)

    async def prune(self, idle_days: int, *, page_size: int = 100) -> int:
        """End sessions that nobody wrote in for so many days, and return how many it were.

        Suspended, held and busy ones stay. Only for who acts for nobody.

        Raises:
            ForbiddenRequestError: It acts for a person.
            UnansweredRequestError: Nobody answered in time; some may have ended.
        """
        done, cursor = 0, None
        while True:
            request = SessionPrune(
                id=new_envelope_id(),
                at=_now(),
                idle_days=idle_days,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._requests.ask("session", "prune", request, SessionSweepReply)
            done += reply.done
            if (cursor := reply.next_cursor) is None:
                return done

    async def clean_up(self, origin: str, *, page_size: int = 50) -> int:
        """Delete the sessions that a kind of caller opened, and return how many it were.

        Those that a worker has in hands or that are held stay.

        Args:
            origin: Such as `acp`; what chats said is never cleaned up.
            page_size: How many are looked at with each request, 1 to 200.

        Raises:
            UnansweredRequestError: Nobody answered in time; some may be deleted.
        """
        done, cursor = 0, None
        while True:
            request = SessionCleanup(
                id=new_envelope_id(),
                at=_now(),
                acting_for=self._acting_for,
                origin=origin,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._requests.ask("session", "cleanup", request, SessionSweepReply)
            done += reply.done
            if (cursor := reply.next_cursor) is None:
                return done

    async def update(
        self,
        session_id: UUID,
        *,
        cwd: str | None = None,
        model: str | None = None,
        config: Mapping[str, JsonValue] | None = None,
        clear: Collection[Preference] = (),
        request_id: str | None = None,
    ) -> SessionView:
        """Set what is given, clear what is named, and leave the rest.

        Args:
            session_id: Session to change.
            cwd: Directory in which tools work, at most 4,096 characters.
            model: Model that is to answer, at most 256 characters.
            config: Whatever else the agent reads, at most 16 kB of JSON; never credentials.
            clear: What to take back.
            request_id: Of a request that is made again.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionUpdate(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            cwd=cwd,
            model=model,
            config=None if config is None else dict(config),
            clear=tuple(clear),
        )
        return await self._change("update", request)

    async def set_title(
        self,
        session_id: UUID,
        title: str,
        *,
        request_id: str | None = None,
    ) -> SessionView:
        """Give a session a title of at most 100 characters; `""` takes it away.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: Another session of the owner has it, or another request
                had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionTitle(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            title=title,
        )
        return await self._change("title", request)

    async def end(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session; one that has ended stays as it ended.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        return await self._change("end", self._request(SessionEnd, session_id, request_id))

    async def reopen(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Take the end of a session back; where its lane leads stays as it is.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: It was merged into another one, or another request had
                this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        return await self._change("reopen", self._request(SessionReopen, session_id, request_id))

    async def reset(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session and return the next one of its lane.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            StaleRequestError: Its lane leads to another session by now.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        return await self._change("reset", self._request(SessionReset, session_id, request_id))

    async def switch(
        self,
        session_key: str,
        session_id: UUID,
        *,
        expected_session_id: UUID,
        request_id: str | None = None,
    ) -> SessionView:
        """Let a lane lead to a session that is there, and return that session.

        Ended, it is reopened; compacted, it is the one it goes on in. The session the lane led
        to ends, unless another lane leads to it.

        Args:
            session_key: Key of the lane.
            session_id: Where it is to lead.
            expected_session_id: Where it leads now, as the caller knows it.
            request_id: Of a request that is made again.

        Raises:
            SessionNotFoundError: There is no such session or lane, or it is somebody else's.
            StaleRequestError: The lane leads to another session by now.
            ConflictingRequestError: It was merged into another one, is another profile's, or is
                private and the lane is not; or another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionSwitch(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            session_key=session_key,
            expected_session_id=expected_session_id,
        )
        return await self._change("switch", request)

    async def fork(
        self,
        session_id: UUID,
        *,
        through_seq: int | None = None,
        session_key: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Return a new session that begins as a copy of another one.

        Args:
            session_id: What to copy; it keeps everything.
            through_seq: Last row to copy; None copies all.
            session_key: Key of a lane that leads to it and shall go on in the copy.
            request_id: Of a request that is made again.

        Raises:
            SessionNotFoundError: There is no such session or lane, or it is somebody else's.
            StaleRequestError: The lane leads to another session by now.
            ConflictingRequestError: Another request had this request id.
            RefusedRequestError: There is no such row.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = SessionFork(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
            through_seq=through_seq,
            session_key=session_key,
        )
        return await self._change("fork", request)

    async def stop(self, session_id: UUID, *, request_id: str | None = None) -> StopReply:
        """End what runs in a session and drop what waits; its next message goes on with it.

        Returns:
            What there was to stop. A turn that a worker has ends a moment later, and at the
            latest with its lease.

        Raises:
            SessionNotFoundError: There is none of this id, or it is somebody else's.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = self._request(SessionStop, session_id, request_id)
        return await self._requests.ask("session", "stop", request, StopReply)

    async def cancel_turn(self, turn_id: UUID, *, request_id: str | None = None) -> StopReply:
        """End one turn; what waits behind it is next. One that is over stays as it ended.

        Raises:
            SessionNotFoundError: There is no such turn, or it is somebody else's.
            ConflictingRequestError: Another request had this request id.
            UnansweredRequestError: Nobody answered in time; it may have been made.
        """
        request = TurnCancel(
            id=request_id or new_envelope_id(),
            at=_now(),
            turn_id=turn_id,
            acting_for=self._acting_for,
        )
        return await self._requests.ask("turn", "cancel", request, StopReply)

    def _request(
        self,
        model: type[ChangeT],
        session_id: UUID,
        request_id: str | None,
    ) -> ChangeT:
        return model(
            id=request_id or new_envelope_id(),
            at=_now(),
            session_id=session_id,
            acting_for=self._acting_for,
        )

    async def _change(self, verb: str, request: SessionChange) -> SessionView:
        reply = await self._requests.ask("session", verb, request, SessionReply)
        return self._found(reply, verb, request.session_id)

    def _found(self, reply: SessionReply, verb: str, session_id: UUID) -> SessionView:
        if reply.session is None:
            raise SessionNotFoundError(
                self._requests.subject("session", verb), f"no session {session_id}"
            )
        return reply.session


def _now() -> datetime:
    return datetime.now(UTC)
