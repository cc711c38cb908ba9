"""Decide requests that delete one session, or that end or delete many in bounded batches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.effects import Effects
from chatlane.domain.sessions.refusals import conflict
from chatlane.domain.sessions.session_flags import end_session
from chatlane.requests.context import Shown
from chatlane.store import audit, turns
from chatlane.store.addressing import identities
from chatlane.store.conversations import removals, sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_sweeps import SessionSweepReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call, Case, Outcome
    from chatlane.store.conversations.removals import Candidate
    from chatlane_schemas.session_api.session_sweeps import (
        SessionCleanup,
        SessionPrune,
        SessionRemove,
    )

# Rows that one statement deletes in some hundred milliseconds; a single session may have more.
_ROWS_AT_ONCE: Final = 20_000
_BELOW_ALL: Final = UUID(int=0)
_ABOVE_ALL: Final = UUID(int=2**128 - 1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def remove(_request: SessionRemove, case: Case) -> Outcome:
    """Delete a session and its transcript, unless a worker has its turn or a hold keeps it."""
    session, call = case.session, case.call
    if session.id not in await _removable(call.connection, [session], call.at):
        return conflict("a worker has a turn of the session, or a hold keeps it")
    return Shown(None, deleted=await _remove(call.unit_of_work, [session], call.at))


async def _removable(connection: Connection, found: Sequence[Session], at: datetime) -> set[UUID]:
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


async def _remove(
    unit_of_work: UnitOfWork, removed: Sequence[Session], at: datetime
) -> dict[str, int]:
    effects = Effects()
    for session in removed:
        if session.ended_at is None:
            end_session(session, at, EndReason.REMOVED, effects)
    deleted = await removals.remove(unit_of_work.connection, [session.id for session in removed])
    for session in removed:
        detail = {"origin_key": session.session_key}
        await audit.write(unit_of_work.connection, "session_removed", session.id, detail)
    await unit_of_work.write(effects)
    return deleted


async def prune(request: SessionPrune, call: Call) -> SessionSweepReply:
    """End a batch of sessions without recent activity."""
    since = call.at - timedelta(days=min(request.idle_days, (call.at - _EPOCH).days))
    found = await removals.find_open(
        call.connection,
        above=request.cursor or _BELOW_ALL,
        below=_first_id(since),
        limit=request.limit,
    )
    locked = await sessions.lock_free(call.connection, found)
    forgotten = await removals.find_forgotten(call.connection, locked, since)
    effects = Effects()
    ended = [locked[session_id] for session_id in sorted(forgotten)]
    for session in ended:
        end_session(session, call.at, EndReason.PRUNED, effects)
    await call.unit_of_work.write(effects, sessions_of=ended)
    return _reply(len(ended), found[-1] if len(found) == request.limit else None)


async def clean_up(request: SessionCleanup, call: Call) -> SessionSweepReply:
    """Delete a batch of the sessions that a kind of caller opened."""
    found = await removals.of_origin(
        call.connection,
        request.origin,
        below=request.cursor or _ABOVE_ALL,
        owners=await identities.find_owners(call.connection, request.acting_for),
        limit=request.limit,
    )
    some = _bounded(found)
    locked = await sessions.lock_free(call.connection, [candidate.id for candidate in some])
    removable = await _removable(call.connection, list(locked.values()), call.at)
    removed = [locked[session_id] for session_id in sorted(removable)]
    await _remove(call.unit_of_work, removed, call.at)
    is_last = len(some) == len(found) < request.limit
    return _reply(len(removed), None if is_last else some[-1].id)


def _reply(done: int, cursor: UUID | None) -> SessionSweepReply:
    return SessionSweepReply(
        id=new_envelope_id(), at=datetime.now(UTC), done=done, next_cursor=cursor
    )


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
