"""Decides requests that change a session, each in a transaction with its answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from pydantic_core import to_json

from chatlane.domain.effects import Effects
from chatlane.domain.keys import parse_session_key
from chatlane.domain.session_life import end_session, next_session, reopen_session
from chatlane.store import api_requests, lanes, owners, session_changes, sessions
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_changes import (
    SessionEnd,
    SessionReopen,
    SessionReset,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.sessions import ApiError, ApiErrorCode, SessionReply

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.states import Session
    from chatlane.routing.writing import Writer, Writing
    from chatlane.store.session_reads import SessionReads
    from chatlane_schemas.session_changes import SessionChange


class _Case(NamedTuple):
    """A new request and the locked session it is about."""

    writing: Writing
    session: Session
    at: datetime
    trigger: bytes


class SessionDesk:
    """Changes sessions for callers of the API.

    Args:
        writer: Opens the transactions.
        reads: Shows what a session has become.
        catalog: The policies in force.
    """

    def __init__(self, writer: Writer, reads: SessionReads, catalog: Catalog) -> None:
        self._writer = writer
        self._reads = reads
        self._catalog = catalog

    async def change(self, principal: str, request: SessionChange, digest: bytes) -> SessionReply:
        """Make a change once and return its answer, the same for every repetition.

        Args:
            principal: Who asks; request ids are its own.
            request: What to do.
            digest: Of what it asks for, so that another request under the same id shows.

        Raises:
            TransientError: Nothing was changed, or that is unknown; to be repeated.
        """
        async with self._writer.writing() as writing:
            connection = writing.connection
            at = await api_requests.begin(connection, principal, request.id, digest)
            if at is None:
                return await _first_answer(connection, principal, request.id, digest)
            reply = await self._decide(writing, request, at, f"{principal}:{request.id}".encode())
            await api_requests.finish(connection, principal, request.id, encode(reply))
        return reply

    async def _decide(
        self, writing: Writing, request: SessionChange, at: datetime, trigger: bytes
    ) -> SessionReply:
        connection = writing.connection
        session = await _lock_visible(connection, request)
        if session is None:
            return _refused(ApiErrorCode.NOT_FOUND, "there is no session with this id")
        outcome = await self._apply(_Case(writing, session, at, trigger), request)
        if isinstance(outcome, SessionReply):
            return outcome
        view = await self._reads.find_within(connection, outcome)
        return SessionReply(id=new_envelope_id(), at=datetime.now(UTC), session=view)

    async def _apply(self, case: _Case, request: SessionChange) -> UUID | SessionReply:
        """Return the session to show, or the refusal."""
        match request:
            case SessionUpdate():
                return await _update(case, request)
            case SessionTitle():
                return await _set_title(case, request)
            case SessionEnd():
                return await _end(case)
            case SessionReopen():
                return await self._reopen(case)
            case SessionReset():
                return await self._reset(case)
            case _:
                raise TypeError(type(request).__name__)

    async def _reopen(self, case: _Case) -> UUID | SessionReply:
        session = case.session
        if session.end_reason == EndReason.MERGED:
            return _refused(ApiErrorCode.CONFLICT, "the session goes on in another one")
        if session.ended_at is not None:
            reopen_session(session, case.at, self._policy_of(session))
            await session_changes.reopen(case.writing.connection, session)
        return session.id

    async def _reset(self, case: _Case) -> UUID | SessionReply:
        session = case.session
        found = await lanes.find(case.writing.connection, [session.session_key])
        lane = found.get(session.session_key)
        if lane is None or lane.session_id != session.id:
            return _refused(ApiErrorCode.STALE, "its lane leads to another session by now")
        effects = Effects()
        if session.ended_at is None:
            end_session(session, case.at, effects)
        policy = self._policy_of(session)
        following = next_session(session, case.at, case.trigger, policy, effects)
        lane.session_id = following.id
        await case.writing.write(effects, lanes_of=[lane], sessions_of=[session, following])
        return following.id

    def _policy_of(self, session: Session) -> ResetPolicy:
        chat_class = parse_session_key(session.session_key).chat_class
        return self._catalog.reset_policy_for(session.platform, chat_class)


async def _first_answer(
    connection: PoolConnectionProxy, principal: str, request_id: str, digest: bytes
) -> SessionReply:
    answered = await api_requests.find(connection, principal, request_id)
    if answered is None or answered.digest != digest:
        return _refused(ApiErrorCode.CONFLICT, "another request had this id")
    return decode(SessionReply, answered.reply)


async def _lock_visible(connection: PoolConnectionProxy, request: SessionChange) -> Session | None:
    """Return the session of a request, locked, if whom it acts for may know of it."""
    person = request.acting_for
    theirs = None if person is None else await owners.find(connection, person)
    session = (await sessions.lock(connection, [request.session_id])).get(request.session_id)
    if session is None or theirs is None or session.owner in theirs:
        return session
    return None


async def _update(case: _Case, request: SessionUpdate) -> UUID:
    config = None if request.config is None else to_json(request.config).decode()
    await session_changes.update_preferences(
        case.writing.connection,
        case.session.id,
        cwd=request.cwd,
        model=request.model,
        config=config,
        clear=request.clear,
    )
    return case.session.id


async def _set_title(case: _Case, request: SessionTitle) -> UUID | SessionReply:
    connection = case.writing.connection
    if not await session_changes.set_title(connection, case.session, request.title):
        return _refused(ApiErrorCode.CONFLICT, "another session of the owner has this title")
    return case.session.id


async def _end(case: _Case) -> UUID:
    if case.session.ended_at is None:
        effects = Effects()
        end_session(case.session, case.at, effects)
        await case.writing.write(effects, sessions_of=[case.session])
    return case.session.id


def _refused(code: ApiErrorCode, message: str) -> SessionReply:
    return SessionReply(
        id=new_envelope_id(), at=datetime.now(UTC), error=ApiError(code=code, message=message)
    )
