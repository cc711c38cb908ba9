"""Add messages that arrived after the claim to a running turn, at the worker's request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.prompts.turn_prompt import with_senders
from chatlane.domain.turns.claims import held_status
from chatlane.domain.turns.lifecycle import MAX_TURN_BYTES, MAX_TURN_MESSAGES
from chatlane.domain.turns.turn_input import steerable
from chatlane.store import pending_messages, turns
from chatlane.store.conversations import sessions
from chatlane.store.history import messages
from chatlane_schemas.turns import RenewStatus, TakeReply, TurnTake

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Session, Turn
    from chatlane.postgres.pool import Store


async def take_in(store: Store, agent: Agent, request: TurnTake) -> TakeReply:
    """Move pending messages into a running turn and return those after `request.after_seq`.

    Only the current attempt of a turn that is not cancelled takes messages in. A repeated
    request with the same `after_seq` returns the same messages, so a lost reply is harmless.

    Raises:
        TransientError: Nothing was taken in, or that is unknown; the caller has to retry.
    """
    async with store.transaction() as connection:
        session_ids = await turns.find_sessions(connection, [request.turn_id])
        locked = await sessions.lock(connection, session_ids.values())
        turn = (await turns.lock(connection, session_ids)).get(request.turn_id)
        status = held_status(turn, agent.name, request.attempt, request.token)
        if turn is None or status is not RenewStatus.RENEWED:
            return TakeReply(id=request.id, at=datetime.now(UTC), status=status)
        session = locked[turn.session_id]
        if turn.cancel is None:
            await _take(connection, turn, session)
        turn_messages = (await messages.of_turns(connection, [turn.id])).get(turn.id, [])
    newer = [message for message in turn_messages if message.seq > request.after_seq]
    shown = with_senders(agent.prompts, session.session_key, newer)
    return TakeReply(id=request.id, at=datetime.now(UTC), status=status, messages=shown)


async def _take(connection: PoolConnectionProxy, turn: Turn, session: Session) -> None:
    heads = await pending_messages.steered_heads(connection, session.id, MAX_TURN_MESSAGES)
    if not heads or turn.source is None:
        return
    held = await messages.size_of_turn(connection, turn.id)
    taken = steerable(
        heads,
        turn.source,
        max_messages=MAX_TURN_MESSAGES - held.messages,
        max_bytes=MAX_TURN_BYTES - held.size_bytes,
    )
    if not taken:
        return
    arrivals = [head.arrival for head in taken]
    await pending_messages.take_some(connection, session.id, arrivals, turn.id, session.next_seq)
    session.next_seq += len(taken)
    turn.source = taken[-1].source
    turn.is_asked = turn.is_asked or any(head.is_of_person for head in taken)
    await sessions.update(connection, [session])
    await turns.update(connection, [turn])
