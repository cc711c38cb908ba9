"""Decide requests that change a session, and commit each with its answer in one transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import singledispatch
from typing import TYPE_CHECKING

from chatlane.decisions.operations import switch_and_fork
from chatlane.decisions.operations.request_context import Case, Outdated, Shown, refused
from chatlane.requests import (
    bulk_session_operations,
    session_changes,
    session_creation,
    session_flags,
)
from chatlane.requests.session_creation import Opening
from chatlane.store.addressing import identities, lanes
from chatlane.store.api_requests import answer_once
from chatlane.store.conversations import lineage, sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.session_changes import (
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
from chatlane_schemas.session_api.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionSuspend,
    SessionUnmark,
)
from chatlane_schemas.session_api.session_openings import SessionCreate, SessionSubmit
from chatlane_schemas.session_api.session_sweeps import SessionRemove
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode, SessionReply

if TYPE_CHECKING:
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.operations.request_context import Outcome
    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.store.conversations.session_reads import SessionReads
    from chatlane_schemas.session_api.sessions import SessionView


@singledispatch
async def decide_change(request: SessionChange, case: Case) -> Outcome:
    """Decide a request by its type; a refused request writes nothing."""
    del case
    raise TypeError(type(request).__name__)


decide_change.register(SessionRemove, bulk_session_operations.remove)
decide_change.register(SessionUpdate, session_changes.update)
decide_change.register(SessionTitle, session_changes.set_title)
decide_change.register(SessionArchive, session_changes.archive)
decide_change.register(SessionEnd, session_changes.end)
decide_change.register(SessionReopen, session_changes.reopen)
decide_change.register(SessionReset, session_changes.reset)
decide_change.register(SessionSubmit, session_creation.submit)
decide_change.register(SessionSwitch, switch_and_fork.switch)
decide_change.register(SessionFork, switch_and_fork.fork)
decide_change.register(SessionSuspend, session_flags.suspend)
decide_change.register(SessionMark, session_flags.mark)
decide_change.register(SessionUnmark, session_flags.unmark)
decide_change.register(SessionHold, session_flags.hold)
decide_change.register(SessionRelease, session_flags.release)
decide_change.register(SessionOverride, session_flags.override)
decide_change.register(SessionNote, session_flags.note)


class SessionService:
    """Changes sessions for callers of the API.

    Args:
        writer: Opens the transactions.
        reads: Reads the session for the answer.
        catalog: The policies in force.
        slots: Number of slots for the messages of a `stream` agent.
    """

    def __init__(
        self, writer: UnitOfWorkFactory, reads: SessionReads, catalog: Catalog, slots: int
    ) -> None:
        self._writer = writer
        self._reads = reads
        self._catalog = catalog
        self._slots = slots

    async def change(
        self, principal: str, request: SessionChange | SessionCreate, digest: bytes
    ) -> SessionReply:
        """Make a change once and return its answer, which is the same for every repetition.

        Args:
            principal: The caller; request ids are unique per principal.
            request: The change.
            digest: Digest of the request's content, to detect another request under the same id.

        Raises:
            TransientError: Nothing changed, or the outcome is unknown; the caller repeats it.
        """
        trigger = f"{principal}:{request.id}".encode()
        async with self._writer.begin() as unit_of_work:
            connection = unit_of_work.connection

            async def decide(at: datetime) -> SessionReply:
                if isinstance(request, SessionCreate):
                    opening = Opening(unit_of_work, self._catalog, principal, at, trigger)
                    outcome = await opening.create(request)
                else:
                    outcome = await self._decide(unit_of_work, request, at, trigger)
                return await self._reply(connection, outcome)

            return await answer_once(connection, principal, request, digest, SessionReply, decide)

    async def _decide(
        self, unit_of_work: UnitOfWork, request: SessionChange, at: datetime, trigger: bytes
    ) -> Outcome:
        case = await self._looked_up(unit_of_work, request, at, trigger)
        if case is None:
            return refused(ApiErrorCode.NOT_FOUND, "there is no session with this id")
        if await self._is_outdated(unit_of_work.connection, request, case.session.id):
            return Outdated(case.session.id)
        outcome = await decide_change(request, case)
        if not isinstance(outcome, ApiError):
            unit_of_work.touched[case.session.id] = case.session
        return outcome

    async def _is_outdated(
        self, connection: PoolConnectionProxy, request: SessionChange, session_id: UUID
    ) -> bool:
        """Return True if a locked session no longer has the version that the request expects."""
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
        self, unit_of_work: UnitOfWork, request: SessionChange, at: datetime, trigger: bytes
    ) -> Case | None:
        """Lock the sessions of a request; return None if it may not see its session."""
        connection = unit_of_work.connection
        person = request.acting_for
        owners = await identities.find_owners(connection, person)
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
        case = Case(
            unit_of_work, self._catalog, session, at, trigger, lane, locked, owners, self._slots
        )
        if not (case.is_visible(session) and case.is_visible(locked.get(request.session_id))):
            return None
        is_lane_visible = (
            lane is None or owners is None or case.is_visible(locked.get(lane.session_id))
        )
        return case if is_lane_visible else case._replace(lane=None)


def _refusal(error: ApiError, session: SessionView | None = None) -> SessionReply:
    return SessionReply(id=new_envelope_id(), at=datetime.now(UTC), error=error, session=session)
