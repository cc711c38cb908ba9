"""Decide requests that delete one session, or that end or delete many in bounded batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.decisions.operations.request_context import refused
from chatlane.domain.effects import Effects
from chatlane.domain.sessions.session_flags import end_session
from chatlane.store import audit, turns
from chatlane.store.addressing import identities
from chatlane.store.api_requests import answer_once
from chatlane.store.conversations import removals, sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_sweeps import (
    SessionCleanup,
    SessionPrune,
    SessionSweepReply,
)
from chatlane_schemas.session_api.sessions import ApiErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.operations.request_context import Case, Outcome
    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.states import Session
    from chatlane.store.conversations.removals import Candidate
    from chatlane_schemas.session_api.session_sweeps import SessionRemove

# Rows that one statement deletes in some hundred milliseconds; a single session may have more.
_ROWS_AT_ONCE: Final = 20_000
_BELOW_ALL: Final = UUID(int=0)
_ABOVE_ALL: Final = UUID(int=2**128 - 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def remove(_request: SessionRemove, case: Case) -> Outcome:
    """Delete a session and its transcript, unless a worker has its turn or a hold keeps it."""
    session, connection = case.session, case.unit_of_work.connection
    if session.id not in await _removable(connection, [session], case.at):
        return refused(
            ApiErrorCode.CONFLICT, "a worker has a turn of the session, or a hold keeps it"
        )
    await _remove(case.unit_of_work, [session], case.at)
    return session.id


async def _removable(
    connection: PoolConnectionProxy, found: Sequence[Session], at: datetime
) -> set[UUID]:
    """Return the locked sessions without a claimed turn and without a hold."""
    live = {session.active_turn: session for session in found if session.active_turn is not None}
    claimed = {
        turn.session_id
        for turn in (await turns.lock(connection, live) if live else {}).values()
        if turn.is_live and not turn.is_unclaimed
    }
    held = {
        session.id
        for session in found
        if session.held_until is not None and session.held_until > at
    }
    return {session.id for session in found} - claimed - held


async def _remove(unit_of_work: UnitOfWork, gone: Sequence[Session], at: datetime) -> None:
    effects = Effects()
    for session in gone:
        if session.ended_at is None:
            end_session(session, at, EndReason.REMOVED, effects)
    await removals.remove(unit_of_work.connection, [session.id for session in gone])
    for session in gone:
        detail = {"origin_key": session.session_key}
        await audit.write(unit_of_work.connection, "session_removed", session.id, detail)
    await unit_of_work.write(effects)


class BulkSessionService:
    """Ends and deletes many sessions for callers of the API; runs each request once.

    Args:
        writer: Opens the transactions.
    """

    def __init__(self, writer: UnitOfWorkFactory) -> None:
        self._writer = writer

    async def sweep(
        self, principal: str, request: SessionPrune | SessionCleanup, digest: bytes
    ) -> SessionSweepReply:
        """Apply a request to a batch of sessions; a repeated request gets the first answer.

        Args:
            principal: The caller; request ids are unique per principal.
            request: The operation.
            digest: Digest of the request's content, to detect another request under the same id.

        Raises:
            TransientError: Nothing changed, or the outcome is unknown; the caller repeats it.
        """
        async with self._writer.begin() as unit_of_work:

            async def decide(at: datetime) -> SessionSweepReply:
                if isinstance(request, SessionPrune):
                    done, cursor = await _prune(unit_of_work, request, at)
                else:
                    done, cursor = await _clean_up(unit_of_work, request, at)
                return SessionSweepReply(
                    id=new_envelope_id(), at=datetime.now(UTC), done=done, next_cursor=cursor
                )

            return await answer_once(
                unit_of_work.connection, principal, request, digest, SessionSweepReply, decide
            )


async def _prune(
    unit_of_work: UnitOfWork, request: SessionPrune, at: datetime
) -> tuple[int, UUID | None]:
    since = at - timedelta(days=min(request.idle_days, (at - _EPOCH).days))
    found = await removals.find_open(
        unit_of_work.connection,
        above=request.cursor or _BELOW_ALL,
        below=_first_id(since),
        limit=request.limit,
    )
    locked = await sessions.lock_free(unit_of_work.connection, found)
    forgotten = await removals.find_forgotten(unit_of_work.connection, locked, since)
    effects = Effects()
    ended = [locked[session_id] for session_id in sorted(forgotten)]
    for session in ended:
        end_session(session, at, EndReason.PRUNED, effects)
    await unit_of_work.write(effects, sessions_of=ended)
    return len(ended), found[-1] if len(found) == request.limit else None


async def _clean_up(
    unit_of_work: UnitOfWork, request: SessionCleanup, at: datetime
) -> tuple[int, UUID | None]:
    connection, person = unit_of_work.connection, request.acting_for
    found = await removals.of_origin(
        connection,
        request.origin,
        below=request.cursor or _ABOVE_ALL,
        theirs=await identities.find_owners(connection, person),
        limit=request.limit,
    )
    some = _bounded(found)
    locked = await sessions.lock_free(connection, [candidate.id for candidate in some])
    removable = await _removable(connection, list(locked.values()), at)
    removed = [locked[session_id] for session_id in sorted(removable)]
    await _remove(unit_of_work, removed, at)
    is_last = len(some) == len(found) < request.limit
    return len(removed), None if is_last else some[-1].id


def _bounded(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the first sessions that one statement may delete, at least one."""
    rows = 0
    for number, candidate in enumerate(found):
        rows += candidate.rows
        if number and rows > _ROWS_AT_ONCE:
            return found[:number]
    return found


def _first_id(at: datetime) -> UUID:
    """Return the lowest session id of a time: sessions that began earlier have lower ids."""
    milliseconds = (at - _EPOCH) // timedelta(milliseconds=1)
    return UUID(int=milliseconds << 80)
