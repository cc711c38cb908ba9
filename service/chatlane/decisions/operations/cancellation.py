"""Stop the live turn and pending messages of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.sessions.session_handoff import tell_first_turn
from chatlane.domain.turns.worker_controls import stop_turn
from chatlane.store import audit, pending_messages, turns
from chatlane.store.history import messages
from chatlane_schemas.session_api.transcripts import Unanswered

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.turns import CancelReason


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
        authors: Platform ids of a person: only messages of this person are dropped. Messages of
            others are still answered, and a turn with messages of others continues. None: drop
            all messages.
    """
    turn = await live_turn(connection, session)
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
    was_empty = session.next_seq == 1
    dropped = await pending_messages.close(
        connection, session.id, session.next_seq, reason, authors
    )
    session.next_seq += dropped
    if dropped and was_empty:
        # No worker has seen the session, so its first turn still has to learn how it began.
        tell_first_turn(session)
    return dropped


async def live_turn(connection: PoolConnectionProxy, session: Session) -> Turn | None:
    """Lock and return the live turn of a session, if there is one."""
    if session.active_turn is None:
        return None
    found = await turns.lock(connection, [session.active_turn])
    return found.get(session.active_turn)
