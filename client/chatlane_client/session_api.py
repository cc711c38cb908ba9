"""The session API for callers that change sessions, typed."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from pydantic import JsonValue

from chatlane_client.requests import Api
from chatlane_schemas import new_envelope_id
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.session_changes import (
    Preference,
    SessionArchive,
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


class SessionApi(Api):
    """Finds and changes sessions, for a person or for nobody in particular.

    A change is repeated with its id until it is answered, and made once. To repeat one over a
    restart of the caller, keep its `request_id` and pass it again with the same values.

    Raises (from every method):
        SessionNotFoundError: There is no session of the id that is given, or it is somebody
            else's.
        ConflictingRequestError: Another request had the request id that is given.
        UnansweredRequestError: Nobody answered in time; a change may have been made.
        InvalidAnswerError: The answer does not follow the contract.
    """

    async def get(self, session_id: UUID) -> SessionView:
        """Return a session."""
        request = SessionGet(**self._stamp(), session_id=session_id)
        return await self._ask_session("get", request)

    async def peek(self, session_key: str) -> SessionView | None:
        """Return the session a key leads to now, if it leads to one of theirs."""
        request = SessionPeek(**self._stamp(), session_key=session_key)
        return (await self._ask("session", "peek", request, SessionReply)).session

    async def find(self, title: str) -> tuple[SessionView, ...]:
        """Return the sessions of a title, the newest first; a person has at most one."""
        request = SessionFind(**self._stamp(), title=title)
        return (await self._ask("session", "find", request, SessionListReply)).sessions

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
                **self._stamp(),
                platform=platform,
                agent=agent,
                origin=origin,
                active_since=active_since,
                archived=archived,
                limit=page_size,
                cursor=cursor,
            )
            reply = await self._ask("session", "list", request, SessionListReply)
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
        """Return how many sessions `list_all` would yield, and how many of them are open."""
        request = SessionCount(
            **self._stamp(),
            platform=platform,
            agent=agent,
            origin=origin,
            active_since=active_since,
            archived=archived,
        )
        reply = await self._ask("session", "count", request, SessionCountReply)
        if reply.counts is None:
            raise self._incomplete("session", "count", "no counts")
        return reply.counts

    async def archive(
        self,
        session_id: UUID,
        *,
        archived: bool = True,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Put a session away in lists, or take it out again; otherwise it stays as it is.

        Args:
            session_id: Session to change.
            archived: Whether it is to be archived.
            expected_version: `version` of the session this is made from; None for any.
            request_id: Of a request that is made again.

        Raises:
            StaleRequestError: The session has another version by now.
        """
        request = SessionArchive(
            **self._stamp(request_id),
            session_id=session_id,
            archived=archived,
            expected_version=expected_version,
        )
        return await self._ask_session("archive", request)

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
            ConflictingRequestError: The lane leads to a session that goes on.
            RefusedRequestError: Profile, account or key are not declared.
        """
        request = SessionCreate(
            **self._stamp(request_id),
            origin=origin,
            session_key=session_key,
            profile=profile,
            cwd=cwd,
            model=model,
            config=None if config is None else dict(config),
        )
        return await self._ask_session("create", request)

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
            ConflictingRequestError: It has ended or is suspended.
        """
        request = SessionSubmit(
            **self._stamp(request_id),
            session_id=session_id,
            text=text,
            attachments=tuple(attachments),
        )
        return await self._ask_session("submit", request)

    async def remove(self, session_id: UUID, *, request_id: str | None = None) -> None:
        """Delete a session and its transcript; copies of it in branches stay.

        Raises:
            ConflictingRequestError: A worker has a turn of it, or background work holds it.
        """
        request = SessionRemove(**self._stamp(request_id), session_id=session_id)
        await self._ask("session", "remove", request, SessionReply)

    async def prune(self, idle_days: int, *, page_size: int = 100) -> int:
        """End sessions that nobody wrote in for so many days, and return how many it were.

        Suspended, held and busy ones stay. Only for who acts for nobody.

        Raises:
            ForbiddenRequestError: It acts for a person.
        """
        request = SessionPrune(
            id=new_envelope_id(), at=datetime.now(UTC), idle_days=idle_days, limit=page_size
        )
        return await self._sweep("prune", request)

    async def clean_up(self, origin: str, *, page_size: int = 50) -> int:
        """Delete the sessions that a kind of caller opened, and return how many it were.

        Those that a worker has in hands or that are held stay.

        Args:
            origin: Such as `acp`; what chats said is never cleaned up.
            page_size: How many are looked at with each request, 1 to 200.
        """
        request = SessionCleanup(**self._stamp(), origin=origin, limit=page_size)
        return await self._sweep("cleanup", request)

    async def update(
        self,
        session_id: UUID,
        *,
        cwd: str | None = None,
        model: str | None = None,
        config: Mapping[str, JsonValue] | None = None,
        config_patch: Mapping[str, JsonValue] | None = None,
        clear: Collection[Preference] = (),
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Set what is given, clear what is named, and leave the rest.

        Two callers that change a session at once lose nothing if they pass `expected_version`, or
        if each changes its own keys with `config_patch`.

        Args:
            session_id: Session to change.
            cwd: Directory in which tools work, at most 4,096 characters.
            model: Model that is to answer, at most 256 characters.
            config: Whatever else the agent reads, at most 16 kB of JSON; never credentials.
                It replaces the config that is there.
            config_patch: Keys of the config to change, as a JSON Merge Patch (RFC 7396): objects
                are merged, None removes a key, everything else replaces.
            clear: What to take back.
            expected_version: `version` of the session this is made from; None for any.
            request_id: Of a request that is made again.

        Raises:
            StaleRequestError: The session has another version by now; `current` shows it.
            RefusedRequestError: The config is too large, or would hold a credential.
        """
        request = SessionUpdate(
            **self._stamp(request_id),
            session_id=session_id,
            cwd=cwd,
            model=model,
            config=None if config is None else dict(config),
            config_patch=None if config_patch is None else dict(config_patch),
            clear=tuple(clear),
            expected_version=expected_version,
        )
        return await self._ask_session("update", request)

    async def set_title(
        self,
        session_id: UUID,
        title: str,
        *,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Give a session a title of at most 100 characters; `""` takes it away.

        Args:
            session_id: Session to change.
            title: The title, on one line.
            expected_version: `version` of the session this is made from; None for any.
            request_id: Of a request that is made again.

        Raises:
            ConflictingRequestError: Another session of the owner has it.
            StaleRequestError: The session has another version by now; `current` shows it.
        """
        request = SessionTitle(
            **self._stamp(request_id),
            session_id=session_id,
            title=title,
            expected_version=expected_version,
        )
        return await self._ask_session("title", request)

    async def end(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session; one that has ended stays as it ended."""
        request = SessionEnd(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("end", request)

    async def reopen(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Take the end of a session back, or that it was given up.

        Where its lane leads stays as it is.

        Raises:
            ConflictingRequestError: It goes on in another one (merged or compacted).
        """
        request = SessionReopen(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("reopen", request)

    async def reset(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session and return the next one of its lane.

        Raises:
            StaleRequestError: Its lane leads to another session by now.
        """
        request = SessionReset(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("reset", request)

    async def reset_reply(self, session_id: UUID, *, request_id: str | None = None) -> SessionReply:
        """End a session and return the whole answer.

        Its `dropped` says how many messages waited; they are in the transcript of the session
        that ended, marked as not answered.

        Raises:
            StaleRequestError: Its lane leads to another session by now.
        """
        request = SessionReset(**self._stamp(request_id), session_id=session_id)
        return await self._ask("session", "reset", request, SessionReply)

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
            SessionNotFoundError: There is no such lane, or it is somebody else's.
            StaleRequestError: The lane leads to another session by now.
            ConflictingRequestError: It is another profile's or another person's, or is private and
                the lane is not.
        """
        request = SessionSwitch(
            **self._stamp(request_id),
            session_id=session_id,
            session_key=session_key,
            expected_session_id=expected_session_id,
        )
        return await self._ask_session("switch", request)

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
            SessionNotFoundError: There is no such lane, or it is somebody else's.
            StaleRequestError: The lane leads to another session by now.
            RefusedRequestError: There is no such row.
        """
        request = SessionFork(
            **self._stamp(request_id),
            session_id=session_id,
            through_seq=through_seq,
            session_key=session_key,
        )
        return await self._ask_session("fork", request)

    async def stop(self, session_id: UUID, *, request_id: str | None = None) -> StopReply:
        """End what runs in a session and drop what waits; its next message goes on with it.

        Returns:
            What there was to stop. A turn that a worker has ends a moment later, and at the
            latest with its lease.
        """
        request = SessionStop(**self._stamp(request_id), session_id=session_id)
        return await self._ask("session", "stop", request, StopReply)

    async def cancel_turn(self, turn_id: UUID, *, request_id: str | None = None) -> StopReply:
        """End one turn; what waits behind it is next.

        One that nobody has claimed is dropped with all that waits. One that is over stays as
        it ended.

        Raises:
            SessionNotFoundError: There is no such turn, or it is somebody else's.
        """
        request = TurnCancel(**self._stamp(request_id), turn_id=turn_id)
        return await self._ask("turn", "cancel", request, StopReply)

    async def _sweep(self, verb: str, request: SessionPrune | SessionCleanup) -> int:
        """Ask page by page, and return how many sessions it were in all."""
        done = 0
        while True:
            reply = await self._ask("session", verb, request, SessionSweepReply)
            done += reply.done
            if reply.next_cursor is None:
                return done
            following = {
                "id": new_envelope_id(),
                "at": datetime.now(UTC),
                "cursor": reply.next_cursor,
            }
            request = request.model_copy(update=following)
