"""Takes the last turns of a transcript back, and runs the last one again.

For requests and for commands alike. The session is locked, and everything that was decided
about it before is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.turns.retries import say_again
from chatlane.store.history import rewind as rewind_rows

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Agent
    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session


class Undone(NamedTuple):
    """What was taken back.

    Attributes:
        removed_rows: How many rows.
        text: What people had said in the first turn of it.
    """

    removed_rows: int
    text: str | None


async def rewind(connection: PoolConnectionProxy, session: Session, turns: int) -> Undone:
    """Take the last turns back, whole; more than there are takes back all.

    Nothing may be running in the session: an answer would come to what is not there.
    """
    last = await rewind_rows.last_turns(connection, session.id, turns)
    if last is None:
        return Undone(0, None)
    return Undone(await rewind_rows.take_out(connection, session.id, last.from_seq), last.text)


async def retry(
    connection: PoolConnectionProxy,
    session: Session,
    agent: Agent,
    *,
    at: datetime,
    trigger: bytes,
    slots: int,
    effects: Effects,
) -> Undone | None:
    """Take the last turn back and let what was said in it come again.

    Args:
        connection: Of the transaction that has locked the session.
        session: Idle; its counters change, so it has to be written.
        agent: Who serves it.
        at: When it was asked for.
        trigger: What makes the new ids these and no others.
        slots: How many slots a `stream` agent's messages are spread over.
        effects: Where rows and publications go.

    Returns:
        What was taken back; None where nobody has said anything, or it was deleted since.

    Raises:
        MalformedKeyError: Nothing tells where an answer would go. Nothing was changed.
    """
    last = await rewind_rows.last_turns(connection, session.id, 1)
    if last is None:
        return None
    said = await rewind_rows.said_from(connection, session.id, last.from_seq)
    if not said:
        return None
    say_again(session, agent, said, at=at, trigger=trigger, slots=slots, effects=effects)
    return Undone(await rewind_rows.take_out(connection, session.id, last.from_seq), last.text)
