"""Decides requests that change a session, each in a transaction with its answer."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import singledispatch
from typing import TYPE_CHECKING

from chatlane.routing import (
    life_changes,
    rebinding,
    session_decisions,
    session_openings,
    session_sweeps,
)
from chatlane.routing.session_cases import Case, Outdated, Shown, refused
from chatlane.routing.session_openings import Opening
from chatlane.store import identities, lanes, lineage, sessions
from chatlane.store.api_requests import answer_once
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_changes import (
    SessionArchive,
    SessionChange,
    SessionEnd,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
    SettingChange,
)
from chatlane_schemas.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionSuspend,
    SessionUnmark,
)
from chatlane_schemas.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_sweeps import SessionRemove
from chatlane_schemas.sessions import ApiError, ApiErrorCode, SessionReply

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Catalog
    from chatlane.routing.session_cases import Outcome
    from chatlane.routing.writing import Writer, Writing
    from chatlane.store.session_reads import SessionReads
    from chatlane_schemas.sessions import SessionView


@singledispatch
async def decide_change(request: SessionChange, case: Case) -> Outcome:
    """Decide a request by its kind; what is refused has written nothing."""
    del case
    raise TypeError(type(request).__name__)


decide_change.register(SessionRemove, session_sweeps.remove)
decide_change.register(SessionUpdate, session_decisions.update)
decide_change.register(SessionTitle, session_decisions.set_title)
decide_change.register(SessionArchive, session_decisions.archive)
decide_change.register(SessionEnd, session_decisions.end)
decide_change.register(SessionReopen, session_decisions.reopen)
decide_change.register(SessionReset, session_decisions.reset)
decide_change.register(SessionSubmit, session_openings.submit)
decide_change.register(SessionSwitch, rebinding.switch)
decide_change.register(SessionFork, rebinding.fork)
decide_change.register(SessionSuspend, life_changes.suspend)
decide_change.register(SessionMark, life_changes.mark)
decide_change.register(SessionUnmark, life_changes.unmark)
decide_change.register(SessionHold, life_changes.hold)
decide_change.register(SessionRelease, life_changes.release)
decide_change.register(SessionOverride, life_changes.override)
decide_change.register(SessionNote, life_changes.note)


class SessionDesk:
    """Changes sessions for callers of the API.

    Args:
        writer: Opens the transactions.
        reads: Shows what a session has become.
        catalog: The policies in force.
        slots: How many slots a `stream` agent's messages are spread over.
    """

    def __init__(self, writer: Writer, reads: SessionReads, catalog: Catalog, slots: int) -> None:
        self._writer = writer
        self._reads = reads
        self._catalog = catalog
        self._slots = slots

    async def change(
        self, principal: str, request: SessionChange | SessionCreate, digest: bytes
    ) -> SessionReply:
        """Make a change once and return its answer, the same for every repetition.

        Args:
            principal: Who asks; request ids are its own.
            request: What to do.
            digest: Of what it asks for, so that another request under the same id shows.

        Raises:
            TransientError: Nothing was changed, or that is unknown; to be repeated.
        """
        trigger = f"{principal}:{request.id}".encode()
        async with self._writer.writing() as writing:
            connection = writing.connection

            async def decide(at: datetime) -> SessionReply:
                if isinstance(request, SessionCreate):
                    opening = Opening(writing, self._catalog, principal, at, trigger)
                    outcome = await opening.create(request)
                else:
                    outcome = await self._decide(writing, request, at, trigger)
                return await self._reply(connection, outcome)

            return await answer_once(connection, principal, request, digest, SessionReply, decide)

    async def _decide(
        self, writing: Writing, request: SessionChange, at: datetime, trigger: bytes
    ) -> Outcome:
        case = await self._looked_up(writing, request, at, trigger)
        if case is None:
            return refused(ApiErrorCode.NOT_FOUND, "there is no session with this id")
        if await self._is_outdated(writing.connection, request, case.session.id):
            return Outdated(case.session.id)
        outcome = await decide_change(request, case)
        if not isinstance(outcome, ApiError):
            writing.touched[case.session.id] = case.session
        return outcome

    async def _is_outdated(
        self, connection: PoolConnectionProxy, request: SessionChange, session_id: UUID
    ) -> bool:
        """Return whether a locked session is not what the request was made from."""
        if not isinstance(request, SettingChange) or request.expected_version is None:
            return False
        view = await self._reads.find_within(connection, session_id)
        return view is None or view.version != request.expected_version

    async def _reply(self, connection: PoolConnectionProxy, outcome: Outcome) -> SessionReply:
        if isinstance(outcome, ApiError):
            return _refusal(outcome)
        if isinstance(outcome, Outdated):
            error = refused(
                ApiErrorCode.STALE,
                "the session has changed since that version; `session` shows what it is now",
            )
            view = await self._reads.find_within(connection, outcome.session_id)
            return _refusal(error, view)
        shown = outcome if isinstance(outcome, Shown) else Shown(outcome)
        view = await self._reads.find_within(connection, shown.session_id)
        return SessionReply(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session=view,
            message_id=shown.message_id,
            dropped=shown.dropped,
        )

    async def _looked_up(
        self, writing: Writing, request: SessionChange, at: datetime, trigger: bytes
    ) -> Case | None:
        """Lock what a request is about; None if there is no session that it may know of."""
        connection = writing.connection
        person = request.acting_for
        theirs = await identities.find_owners(connection, person)
        subject = request.session_id
        key = request.session_key if isinstance(request, SessionSwitch | SessionFork) else None
        lane = None if key is None else await lanes.find_by_any_key(connection, key)
        if isinstance(request, SessionSwitch | SessionSubmit):
            tips = await lineage.find_tips(connection, [subject])
            subject = tips.get(subject, subject)
        wanted = {request.session_id, subject} | (set() if lane is None else {lane.session_id})
        locked = await sessions.lock(connection, wanted)
        session = locked.get(subject)
        if session is None:
            return None
        case = Case(writing, self._catalog, session, at, trigger, lane, locked, theirs, self._slots)
        if not (case.is_visible(session) and case.is_visible(locked.get(request.session_id))):
            return None
        is_theirs = lane is None or theirs is None or case.is_visible(locked.get(lane.session_id))
        return case if is_theirs else case._replace(lane=None)


def _refusal(error: ApiError, session: SessionView | None = None) -> SessionReply:
    return SessionReply(id=new_envelope_id(), at=datetime.now(UTC), error=error, session=session)
