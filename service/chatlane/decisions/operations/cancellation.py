"""Stop the live turn and pending messages of a session, and answer stop requests of the API."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.effects import Effects
from chatlane.domain.sessions.session_handoff import tell_first_turn
from chatlane.domain.turns.lifecycle import stop_turn
from chatlane.store import audit, pending_messages, turns
from chatlane.store.addressing import identities
from chatlane.store.api_requests import answer_once
from chatlane.store.conversations import sessions
from chatlane.store.history import messages
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode
from chatlane_schemas.session_api.transcripts import Unanswered
from chatlane_schemas.turns import CancelReason, StopReply, TurnCancel

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.session_api.session_changes import SessionStop


class Stopped(NamedTuple):
    """The outcome of a stop.

    Attributes:
        turn_id: The id of the turn that was live.
        was_running: Whether a worker has the turn and now ends it; the next turn waits for that.
        dropped: How many pending messages will not be answered; they are in the transcript.
        left: How many messages of other people are still answered, including those of a running
            turn.
    """

    turn_id: UUID | None = None
    was_running: bool = False
    dropped: int = 0
    left: int = 0

    @property
    def is_nothing(self) -> bool:
        """Return whether there was nothing to stop."""
        return self.turn_id is None and self.dropped == 0


async def stop_session(
    connection: PoolConnectionProxy,
    session: Session,
    reason: CancelReason,
    at: datetime,
    effects: Effects,
    *,
    authors: Collection[str] | None = None,
) -> Stopped:
    """End the live turn of a session and drop its pending messages; the session stays open.

    Pending messages become rows of the transcript that are marked as not answered.

    The function reads the database, so a batch has to write its earlier decisions first. It
    writes turn and rows; the caller writes the session.

    Args:
        session: The session, locked.
        at: When the stop was decided.
        authors: Platform ids of a person: only messages of this person are dropped. Messages of
            others are still answered, and a turn with messages of others continues. None: drop
            all messages.
    """
    turn = await _live_turn(connection, session)
    dropped = await _close_waiting(connection, session, Unanswered(reason), authors)
    left = 0 if authors is None else await pending_messages.count(connection, session.id)
    of_others = 0
    if turn is not None and authors is not None:
        of_others = await messages.count_of_others(connection, turn.id, authors)
    if turn is None or of_others or (turn.is_unclaimed and left):
        stopped = Stopped(dropped=dropped, left=left + of_others)
    else:
        was_running = stop_turn(turn, session, reason, at, has_waiting=left > 0, effects=effects)
        # Not deferred: a result in the same batch reads the turn again.
        await turns.update(connection, [turn])
        stopped = Stopped(turn.id, was_running, dropped, left)
    if not stopped.is_nothing:
        detail = {"reason": reason, "turn": stopped.turn_id, "dropped": dropped}
        await audit.write(connection, "session_stopped", session.id, detail)
    return stopped


async def _close_waiting(
    connection: PoolConnectionProxy,
    session: Session,
    reason: Unanswered,
    authors: Collection[str] | None,
) -> int:
    """Move pending messages into the transcript, marked as not answered."""
    was_empty = session.next_seq == 1
    dropped = await pending_messages.close(
        connection, session.id, session.next_seq, reason, authors
    )
    session.next_seq += dropped
    if dropped and was_empty:
        # No worker has seen the session, so its first turn still has to learn how it began.
        tell_first_turn(session)
    return dropped


async def _live_turn(connection: PoolConnectionProxy, session: Session) -> Turn | None:
    if session.active_turn is None:
        return None
    found = await turns.lock(connection, [session.active_turn])
    return found.get(session.active_turn)


class StopService:
    """Answer `session.stop` and `turn.cancel` once; a repeated request gets the same answer."""

    def __init__(self, writer: UnitOfWorkFactory) -> None:
        self._writer = writer

    async def stop(
        self, principal: str, request: SessionStop | TurnCancel, digest: bytes
    ) -> StopReply:
        """Stop the session or turn of a request and return the outcome.

        Args:
            principal: The caller; request ids are unique per caller.
            request: The session or turn to stop.
            digest: The digest of the request, to detect another request with the same id.

        Raises:
            TransientError: Nothing was stopped, or that is unknown; the caller has to retry.
        """
        async with self._writer.begin() as unit_of_work:
            connection = unit_of_work.connection

            async def decide(at: datetime) -> StopReply:
                session = await _lock(connection, request)
                if session is None:
                    return _not_found()
                effects = Effects()
                if isinstance(request, TurnCancel):
                    stopped = await _cancel(connection, session, request, at, effects)
                else:
                    reason = CancelReason.STOPPED
                    stopped = await stop_session(connection, session, reason, at, effects)
                await unit_of_work.write(effects, sessions_of=[session])
                return _reply(session, stopped)

            return await answer_once(connection, principal, request, digest, StopReply, decide)


async def _cancel(
    connection: PoolConnectionProxy,
    session: Session,
    request: TurnCancel,
    at: datetime,
    effects: Effects,
) -> Stopped:
    """End one turn; an unclaimed turn ends together with its pending messages."""
    turn = await _live_turn(connection, session)
    if turn is None or turn.id != request.turn_id:
        return Stopped()
    if turn.is_unclaimed:
        return await stop_session(connection, session, CancelReason.STOPPED, at, effects)
    has_waiting = bool(await pending_messages.sessions_with_waiting(connection, [session.id]))
    was_running = stop_turn(
        turn, session, CancelReason.STOPPED, at, has_waiting=has_waiting, effects=effects
    )
    return Stopped(turn.id, was_running)


async def _lock(
    connection: PoolConnectionProxy, request: SessionStop | TurnCancel
) -> Session | None:
    """Lock and return the session of a request, if the person it acts for may see it."""
    if isinstance(request, TurnCancel):
        session_id = (await turns.find_sessions(connection, [request.turn_id])).get(request.turn_id)
    else:
        session_id = request.session_id
    if session_id is None:
        return None
    owners = await identities.find_owners(connection, request.acting_for)
    session = (await sessions.lock(connection, [session_id])).get(session_id)
    return session if session is None or owners is None or session.owner in owners else None


def _reply(session: Session, stopped: Stopped) -> StopReply:
    return StopReply(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=session.id,
        turn_id=stopped.turn_id,
        was_running=stopped.was_running,
        dropped=stopped.dropped,
    )


def _not_found() -> StopReply:
    error = ApiError(code=ApiErrorCode.NOT_FOUND, message="there is no such session or turn")
    return StopReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)
