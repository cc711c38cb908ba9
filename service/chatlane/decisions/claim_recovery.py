"""Results that were stored before this router began, and what they answer in a restored database.

A database that was restored to an earlier moment has forgotten claims, and reads again what led
to them. A result of that time names the messages it answers: where they wait, the claim is
recalled, and the result counts as it did. Where they are not there yet it waits for the inbound
log. Without a restored database none of this happens: every result finds its turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.sessions.session_handoff import tell_agent
from chatlane.domain.turns.lifecycle import recall_claim
from chatlane.errors import ResultAheadError
from chatlane.observability.logs import get_logger
from chatlane.store import pending_messages, turns
from chatlane.store.history import messages
from chatlane.store.logs import partitions

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.states import Session, Turn
    from chatlane.domain.turns.lifecycle import ArrivedResult
    from chatlane.nats.log_access import LogAccess

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

_log = get_logger("recalling")


async def recall(
    connection: PoolConnectionProxy,
    one: ArrivedResult,
    session: Session,
    turn: Turn | None,
    *,
    is_alone: bool,
) -> Turn | None:
    """Return the turn that an old result ends, with the claim it tells of.

    Args:
        connection: Of a transaction that has locked the session, and the turn if there is one.
        one: The result of a turn.
        session: Which it names.
        turn: Which it names, if that is known.
        is_alone: Whether nothing else is decided in this transaction.

    Returns:
        The turn that was given, where there is nothing to recall.

    Raises:
        ResultAheadError: To be tried again alone, or later.
    """
    result = one.result
    if turn is not None and not _is_ahead(one, turn):
        return turn
    if not is_alone:
        raise ResultAheadError(result.id)
    live = turn or await _unclaimed(connection, session)
    ids = result.message_ids
    if live is None or result.turn_id is None or live.agent != one.agent:
        require_known(one)
        return turn
    heads = await pending_messages.find_answered(connection, session.id, ids)
    placed = await messages.count_placed(connection, ids, live.id)
    if len(heads) + placed < len(ids):
        # Once none of them can come any more, those that are there have to do.
        require_known(one)
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
        tell_agent(session, live.id)
    recall_claim(live, result)
    _log.warning("claim_recalled", session_id=session.id, turn_id=live.id)
    return live


def _is_ahead(one: ArrivedResult, turn: Turn) -> bool:
    """Return whether a result is of an attempt that was not given out yet."""
    is_its = turn.session_id == one.result.session_id
    return is_its and turn.is_live and turn.attempt < (one.result.attempt or 0)


async def _unclaimed(connection: PoolConnectionProxy, session: Session) -> Turn | None:
    """Return the turn of a session, if nobody has it: it may have had another id before."""
    id_: UUID | None = session.active_turn
    found = await turns.lock(connection, [id_]) if id_ is not None else {}
    return next((its for its in found.values() if its.is_unclaimed), None)


def require_known(one: ArrivedResult) -> None:
    """Let a result wait whose conversation, turn or question is not known.

    Raises:
        ResultAheadError: What it answers may still come.
    """
    if one.may_wait:
        raise ResultAheadError(one.result.id)


class InboundProgress:
    """Tells whether everything of the inbound log up to some time is decided."""

    def __init__(self, access: LogAccess, transaction: Transaction) -> None:
        self._access = access
        self._transaction = transaction
        self._read_until: datetime | None = None

    async def is_read(self, until: datetime) -> bool:
        """Return whether every message that was stored until then is decided.

        Raises:
            TransientError: It cannot be said now.
        """
        if self._read_until is None or self._read_until <= until:
            self._read_until = await self._find_read_until()
        return self._read_until is not None and self._read_until > until

    async def _find_read_until(self) -> datetime | None:
        async with self._transaction() as connection:
            positions = await partitions.positions(connection)
        state = await self._access.get_state("inbound")
        unread: list[datetime] = []
        for partition, position in positions.items():
            if partition.log != "inbound":
                continue
            if position.generation != state.generation:
                return None
            stored_at = await self._access.find_stored_after(partition, position.cursor)
            if stored_at is not None:
                unread.append(stored_at)
        return min(unread, default=state.told_at)
