"""Typed client of the session API, for callers that read and change sessions."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from pydantic import JsonValue

from chatlane_client.api.catalogue import CatalogueApi
from chatlane_client.api.submission import Submission, answered
from chatlane_client.turn_reader import TurnReader, TurnWatch
from chatlane_schemas import new_envelope_id
from chatlane_schemas.content.front_end import FrontEnd
from chatlane_schemas.content.questions import FieldValue
from chatlane_schemas.inbound import Attachment
from chatlane_schemas.live_turns import TurnEnded
from chatlane_schemas.questions import (
    OpenQuestionView,
    QuestionReply,
    QuestionViewReply,
    TurnQuestion,
    TurnReply,
)
from chatlane_schemas.session_api.deliveries import DeliveryGet, DeliveryReply, DeliveryView
from chatlane_schemas.session_api.session_changes import (
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
from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_api.session_sweeps import (
    SessionCleanup,
    SessionPrune,
    SessionRemove,
    SessionSweepReply,
)
from chatlane_schemas.session_api.sessions import (
    CHAT_ORIGIN,
    SessionGet,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReply,
)
from chatlane_schemas.topology.subjects import LiveTurnPath
from chatlane_schemas.turns import StopReply, TurnCancel

# How often a caller that waits for an answer looks for it without an event.
_LOOK_AGAIN: Final = timedelta(seconds=2)


class SessionApi(CatalogueApi):
    """Finds and changes sessions, on behalf of a person or without a person.

    The client repeats a change with its id until there is a reply, and the service makes it once.
    To repeat a change after a restart of the caller, keep its `request_id` and pass it again with
    the same values.

    Raises (from every method):
        SessionNotFoundError: There is no session with the given id, or it belongs to another
            person.
        ConflictingRequestError: Another request used the given request id.
        UnansweredRequestError: The service did not reply in time; it may have made the change.
        InvalidAnswerError: The answer does not follow the contract.
    """

    async def get(
        self, session_id: UUID, *, whole_chain: bool = False, with_rooms: bool = False
    ) -> SessionView:
        """Return a session.

        Args:
            session_id: Session to read.
            whole_chain: Whether `chain` of the session gets the sums over its conversation.
            with_rooms: Whether a person also gets a shared session of a room that the person is a
                member of; its `access` is then `member`.
        """
        request = SessionGet(
            **self._stamp(),
            session_id=session_id,
            whole_chain=whole_chain,
            with_rooms=with_rooms,
        )
        return await self._ask_session("get", request)

    async def deliveries(
        self, session_id: UUID, message_id: UUID | None = None
    ) -> tuple[DeliveryView, ...]:
        """Return the delivery states of the newest outbound messages of a session, oldest first.

        Args:
            session_id: Session that spoke.
            message_id: Id of one `OutboundMessage`; without it, up to 200 messages.
        """
        request = DeliveryGet(**self._stamp(), session_id=session_id, message_id=message_id)
        return (await self._ask("delivery", "get", request, DeliveryReply)).deliveries

    async def peek(self, session_key: str) -> SessionView | None:
        """Return the current session of a key, if the person has access to it."""
        request = SessionPeek(**self._stamp(), session_key=session_key)
        return (await self._ask("session", "peek", request, SessionReply)).session

    async def find(self, title: str) -> tuple[SessionView, ...]:
        """Return the sessions with a title, newest first; a person has at most one."""
        request = SessionFind(**self._stamp(), title=title)
        return (await self._ask("session", "find", request, SessionListReply)).sessions

    async def archive(
        self,
        session_id: UUID,
        *,
        archived: bool = True,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Archive a session or take it out of the archive; nothing else changes.

        Args:
            session_id: Session to change.
            archived: Whether it is to be archived.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version.
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
        """Open a session, on a lane or without one.

        Args:
            origin: Kind of caller, such as `acp`; not `chat`.
            session_key: Key of the lane to point to the session; the lane's last session must
                have ended.
            profile: Persona of a session without a lane; None for the default profile.
            cwd: Working directory of tools, at most 4,096 characters.
            model: Model that is to answer, at most 256 characters.
            config: Other settings for the agent, at most 16 kB of JSON; never credentials.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            SessionNotFoundError: The lane never pointed to a session of this person.
            ConflictingRequestError: The session of the lane has not ended.
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
        front_end: FrontEnd | None = None,
        request_id: str | None = None,
        wait: bool = False,
    ) -> Submission:
        """Submit a message to a session; it is queued like a message of a chat.

        If the running turn has an open question that the text answers, it is the answer.

        Args:
            session_id: Session to submit to.
            text: What is said; empty only with attachments.
            attachments: References to files.
            front_end: Tools and context of the front end, for the turn that answers the message.
            request_id: Id of an earlier request that this one repeats.
            wait: Whether to return only after the turn that answers the message has ended. Sessions
                of stream agents have no turns.

        Returns:
            The id of the message, and the session that received it: another session if this one
            was compacted.

        Raises:
            ConflictingRequestError: The session has ended or is suspended.
        """
        request = SessionSubmit(
            **self._stamp(request_id),
            session_id=session_id,
            text=text,
            attachments=tuple(attachments),
            front_end=front_end,
        )
        reply = await self._ask("session", "submit", request, SessionReply)
        if reply.session is None or reply.message_id is None:
            raise self._incomplete("session", "submit", "no session or no message id")
        submission = Submission(reply.session, reply.message_id, reply.turn_id)
        return await self._wait_for_answer(submission) if wait else submission

    async def question(
        self, session_id: UUID, *, calls: bool = False, front_end_calls: bool = False
    ) -> OpenQuestionView | None:
        """Return the open question of the running turn of a session, if there is one.

        Args:
            session_id: The session.
            calls: Whether to return calls to an editor as well; for editors.
            front_end_calls: Whether to return calls of tools of the front end as well; for those
                that run them.
        """
        request = TurnQuestion(
            **self._stamp(),
            session_id=session_id,
            calls=calls,
            front_end_calls=front_end_calls,
        )
        return (await self._ask("turn", "question", request, QuestionViewReply)).question

    async def reply(
        self,
        session_id: UUID,
        question_id: UUID,
        value: str | None = None,
        *,
        values: Mapping[str, FieldValue] | None = None,
        request_id: str | None = None,
    ) -> None:
        """Answer the open question of a session; the first answer counts.

        Args:
            session_id: Session of the running turn.
            question_id: Id of the question, from `question` or `TurnAsked`.
            value: The value of the chosen option, or the text if there are no options.
            values: The whole form, by the names of its fields.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ConflictingRequestError: The question is not open any more.
            RefusedRequestError: The question does not take this value; the message names the field.
        """
        request = TurnReply(
            **self._stamp(request_id),
            session_id=session_id,
            question_id=question_id,
            value=value,
            values=None if values is None else dict(values),
        )
        await self._ask("turn", "reply", request, QuestionReply)

    def watch(self, session_id: UUID) -> TurnWatch:
        """Return the updates of the turns of a session, from now on, for `async for`.

        A turn that runs already begins with a recap, if its worker offers one. A `TurnAsked` says
        that `question` returns something, until a `TurnAnswered` comes. Updates that come
        while the connection is down are lost: only the transcript is complete.
        """
        return TurnWatch(partial(self._open_reader, session_id))

    @asynccontextmanager
    async def _open_reader(self, session_id: UUID) -> AsyncIterator[TurnReader]:
        session = await self.get(session_id)
        reader = TurnReader(self._client, self._live_paths(session), agent=session.agent)
        async with reader.open():
            await reader.ask_for_recap(session.id)
            yield reader

    def _live_paths(self, session: SessionView) -> tuple[LiveTurnPath, ...]:
        """Return where turns of a session are, as far as the permissions of the caller reach."""
        person = self._acting_for
        if person is None or self._is_operator:
            return (LiveTurnPath(session_id=session.id),)
        paths = [
            LiveTurnPath(own.platform, own.account, "person", session.id) for own in person.ids
        ]
        if session.origin != CHAT_ORIGIN:
            # A session without a lane belongs to the principal that opened it.
            paths.append(LiveTurnPath(session.platform, self._principal, "person", session.id))
        return tuple(dict.fromkeys(paths))

    async def _wait_for_answer(self, submission: Submission) -> Submission:
        """Return a submission with its answer, once the turn that answers it is over.

        Events may get lost, so the transcript decides whether it is over. It does not tell why: the
        event has a moment to arrive.
        """
        session, ended = submission.session, dict[UUID, TurnEnded]()
        is_over = False
        reader = TurnReader(
            self._client, self._live_paths(session), agent=session.agent, with_pieces=False
        )
        async with reader.open():
            while True:
                is_busy = (await self.get(session.id)).is_busy
                rows = await self._rows_since(submission)
                found = answered(submission, rows, ended, is_busy=is_busy)
                if found is not None and (is_over or found.turn_id in {None, *ended}):
                    return found
                is_over = found is not None
                for update in await reader.take(within=_LOOK_AGAIN):
                    if isinstance(update, TurnEnded):
                        ended[update.turn_id] = update

    async def _rows_since(self, submission: Submission) -> list[TranscriptEntry]:
        """Return the newest rows of a session, oldest first, back to a submitted message."""
        rows: list[TranscriptEntry] = []
        before_seq = None
        while True:
            request = TranscriptLoad(
                **self._stamp(),
                session_id=submission.session.id,
                before_seq=before_seq,
                as_stored=True,
            )
            reply = await self._ask("transcript", "load", request, TranscriptReply)
            rows = [*reply.rows, *rows]
            before_seq = reply.next_before_seq
            if before_seq is None or any(
                row.message_id == submission.message_id for row in reply.rows
            ):
                return rows

    async def remove(self, session_id: UUID, *, request_id: str | None = None) -> SessionReply:
        """Delete a session and its transcript; copies in forked sessions stay.

        Returns:
            The receipt: `at`, and how much was `deleted`.

        Raises:
            ConflictingRequestError: A worker holds a turn of it, or background work holds it.
        """
        request = SessionRemove(**self._stamp(request_id), session_id=session_id)
        return await self._ask("session", "remove", request, SessionReply)

    async def prune(self, idle_days: int, *, page_size: int = 100) -> int:
        """End sessions that were inactive for this many days; return how many were ended.

        Suspended, held and busy sessions stay. Only for callers that act for no person.

        Raises:
            ForbiddenRequestError: The caller acts for a person.
        """
        request = SessionPrune(
            id=new_envelope_id(), at=datetime.now(UTC), idle_days=idle_days, limit=page_size
        )
        return await self._sweep("prune", request)

    async def clean_up(self, origin: str, *, page_size: int = 50) -> int:
        """Delete the sessions that a kind of caller opened; return how many were deleted.

        Busy and held sessions stay.

        Args:
            origin: Kind of caller, such as `acp`; sessions of chats are never deleted.
            page_size: Sessions to check per request, 1 to 200.
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
        """Set the given values, clear the named ones, and keep the rest.

        Two callers that change a session at once lose no change if they pass `expected_version`, or
        if each changes separate keys with `config_patch`.

        Args:
            session_id: Session to change.
            cwd: Working directory of tools, at most 4,096 characters.
            model: Model that is to answer, at most 256 characters.
            config: Other settings for the agent, at most 16 kB of JSON; never credentials.
                It replaces the current config.
            config_patch: Keys of the config to change, as a JSON Merge Patch (RFC 7396): objects
                are merged, None removes a key, everything else replaces.
            clear: Values to clear.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            StaleRequestError: The session has changed since that version; `current` shows it.
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
        by_model: bool = False,
        expected_version: str | None = None,
        request_id: str | None = None,
    ) -> SessionView:
        """Set the title of a session, at most 100 characters; `""` removes it.

        Args:
            session_id: Session to change.
            title: The title, on one line.
            by_model: Whether a model made it; then it never replaces the title of a person.
            expected_version: `version` of the session that the change is based on; None for any.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            ConflictingRequestError: Another session of the owner has this title, or a person gave the
                session a title that a model is not to replace.
            StaleRequestError: The session has changed since that version; `current` shows it.
        """
        request = SessionTitle(
            **self._stamp(request_id),
            session_id=session_id,
            title=title,
            by_model=by_model or None,
            expected_version=expected_version,
        )
        return await self._ask_session("title", request)

    async def end(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session; a session that has already ended stays unchanged."""
        request = SessionEnd(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("end", request)

    async def reopen(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """Reopen a session that has ended or was suspended.

        The session of its lane stays the same.

        Raises:
            ConflictingRequestError: The conversation continues in another session (merged or
                compacted).
        """
        request = SessionReopen(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("reopen", request)

    async def reset(self, session_id: UUID, *, request_id: str | None = None) -> SessionView:
        """End a session and return the next session of its lane.

        Raises:
            StaleRequestError: Its lane points to another session now.
        """
        request = SessionReset(**self._stamp(request_id), session_id=session_id)
        return await self._ask_session("reset", request)

    async def reset_reply(self, session_id: UUID, *, request_id: str | None = None) -> SessionReply:
        """End a session and return the whole reply.

        Its `dropped` is the number of pending messages. The transcript of the ended session keeps
        them, marked as not answered.

        Raises:
            StaleRequestError: Its lane points to another session now.
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
        """Point a lane to an existing session, and return that session.

        Reopens a session that has ended. For a compacted session, the lane points to the session in
        which it continues. The previous session of the lane ends, unless another lane points to it.

        Args:
            session_key: Key of the lane.
            session_id: Session that the lane is to point to.
            expected_session_id: Session that the lane points to now, as far as the caller knows.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            SessionNotFoundError: The lane does not exist, or belongs to another person.
            StaleRequestError: The lane points to another session now.
            ConflictingRequestError: The session is of another profile or person, or it is private
                and the lane is not.
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
        """Return a new session that begins as a copy of another session.

        Args:
            session_id: Session to copy; it stays unchanged.
            through_seq: Last row to copy; None copies all.
            session_key: Key of a lane that points to the session and is to continue in the copy.
            request_id: Id of an earlier request that this one repeats.

        Raises:
            SessionNotFoundError: The lane does not exist, or belongs to another person.
            StaleRequestError: The lane points to another session now.
            RefusedRequestError: The row does not exist.
        """
        request = SessionFork(
            **self._stamp(request_id),
            session_id=session_id,
            through_seq=through_seq,
            session_key=session_key,
        )
        return await self._ask_session("fork", request)

    async def stop(self, session_id: UUID, *, request_id: str | None = None) -> StopReply:
        """Stop the running turn of a session and drop pending messages; the session stays open.

        Returns:
            The turn and messages that were stopped. A turn that a worker holds ends a moment
            later, and at the latest with its lease.
        """
        request = SessionStop(**self._stamp(request_id), session_id=session_id)
        return await self._ask("session", "stop", request, StopReply)

    async def cancel_turn(self, turn_id: UUID, *, request_id: str | None = None) -> StopReply:
        """End one turn; the next turn answers the messages that are queued behind it.

        An unclaimed turn is dropped with all pending messages. A turn that has ended stays
        unchanged.

        Raises:
            SessionNotFoundError: The turn does not exist, or belongs to another person.
        """
        request = TurnCancel(**self._stamp(request_id), turn_id=turn_id)
        return await self._ask("turn", "cancel", request, StopReply)

    async def _sweep(self, verb: str, request: SessionPrune | SessionCleanup) -> int:
        """Send the request page by page, and return the total number of sessions."""
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
