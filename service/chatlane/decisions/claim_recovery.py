"""Recover the claims of old results after the database was restored to an earlier state.

A restored database has lost claims, and routers read the messages that led to them again. A
result from before names the messages it answers. If they are pending, the claim is recovered
and the result applies as it did. If they have not been read yet, the result waits for the inbound
log. Without a restored database every result finds its turn, and nothing has to be recovered.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from chatlane.domain.sessions.session_handoff import announce_to_agent
from chatlane.domain.turns.turn_results import recall_claim
from chatlane.errors import ResultAheadError
from chatlane.observability.logs import get_logger
from chatlane.store import pending_messages, turns
from chatlane.store.history import messages
from chatlane.store.logs import partitions

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.states import Session, Turn
    from chatlane.domain.turns.turn_results import ArrivedResult
    from chatlane.nats.log_access import LogAccess
    from chatlane.postgres.pool import Transaction

_log = get_logger("recalling")


async def recall(
    connection: PoolConnectionProxy,
    arrived: ArrivedResult,
    session: Session,
    turn: Turn | None,
    *,
    is_alone: bool,
) -> Turn | None:
    """Return the turn that an old result ends, with its claim recovered.

    Args:
        connection: The connection of a transaction that has locked the session, and the turn if
            there is one.
        turn: The turn that the result names, if the database knows it.
        is_alone: Whether nothing else is decided in this transaction.

    Returns:
        The recovered turn, or `turn` if there is nothing to recover.

    Raises:
        ResultAheadError: The result has to be tried again alone, or later.
    """
    result = arrived.result
    if turn is not None and not _is_ahead(arrived, turn):
        return turn
    if not is_alone:
        raise ResultAheadError(result.id)
    live = turn or await _unclaimed(connection, session)
    ids = result.message_ids
    if live is None or result.turn_id is None or live.agent != arrived.agent:
        require_known(arrived)
        return turn
    heads = await pending_messages.find_answered(connection, session.id, ids)
    placed = await messages.count_placed(connection, ids, live.id)
    if len(heads) + placed < len(ids):
        # Once no more of them can arrive, the available ones have to suffice.
        require_known(arrived)
    if not heads and not live.attempt:
        return turn
    if live.id != result.turn_id:
        await turns.rename(connection, live, result.turn_id)
        session.active_turn = live.id
    if heads:
        arrivals = [head.arrival for head in heads]
        first_seq = session.next_seq
        session.next_seq += len(heads)
        await pending_messages.take_some(connection, session.id, arrivals, live.id, first_seq)
        live.source = heads[-1].source
        live.is_asked = live.is_asked or any(head.is_of_person for head in heads)
        announce_to_agent(session, live.id)
    recall_claim(live, result)
    _log.warning("claim_recalled", session_id=session.id, turn_id=live.id)
    return live


def _is_ahead(arrived: ArrivedResult, turn: Turn) -> bool:
    is_its = turn.session_id == arrived.result.session_id
    return is_its and turn.is_live and turn.attempt < (arrived.result.attempt or 0)


async def _unclaimed(connection: PoolConnectionProxy, session: Session) -> Turn | None:
    """Return the unclaimed turn of a session; before the restore its id may have been another."""
    id_: UUID | None = session.active_turn
    found = await turns.lock(connection, [id_]) if id_ is not None else {}
    return next((turn for turn in found.values() if turn.is_unclaimed), None)


def require_known(arrived: ArrivedResult) -> None:
    """Let a result wait if its session, turn or question is unknown and may still arrive.

    Raises:
        ResultAheadError: The result has to wait.
    """
    if arrived.may_wait:
        raise ResultAheadError(arrived.result.id)


@dataclass(slots=True)
class InboundProgress:
    """Track up to which time all messages of the inbound log are decided."""

    access: LogAccess
    transaction: Transaction
    _read_until: datetime | None = field(default=None, init=False)

    async def is_read(self, until: datetime) -> bool:
        """Return whether every message stored until `until` is decided.

        Raises:
            TransientError: The log or the store did not answer.
        """
        if self._read_until is None or self._read_until <= until:
            self._read_until = await self._find_read_until()
        return self._read_until is not None and self._read_until > until

    async def _find_read_until(self) -> datetime | None:
        async with self.transaction() as connection:
            positions = await partitions.positions(connection)
        state = await self.access.get_state("inbound")
        unread: list[datetime] = []
        for partition, position in positions.items():
            if partition.log != "inbound":
                continue
            if position.generation != state.generation:
                return None
            stored_at = await self.access.find_stored_after(partition, position.cursor)
            if stored_at is not None:
                unread.append(stored_at)
        return min(unread, default=state.answered_at)
