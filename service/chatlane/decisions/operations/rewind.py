"""Remove the last turns of a transcript, or run the last turn again.

API requests and commands both use this. The caller has locked the session and written all
earlier decisions about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.turns.retries import queue_again
from chatlane.store.history import transcript_changes

if TYPE_CHECKING:
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Agent
    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session


class Undone(NamedTuple):
    """The turns that were removed.

    Attributes:
        removed_rows: The number of removed rows.
        text: The text of the people's messages in the first removed turn.
    """

    removed_rows: int
    text: str | None


async def rewind(connection: PoolConnectionProxy, session: Session, turns: int) -> Undone:
    """Remove the last turns completely; a number above the number of turns removes all.

    No turn may be running in the session: its answer would refer to removed rows. The counters of
    the session change, so the caller has to write it.
    """
    last = await transcript_changes.last_turns(connection, session.id, turns)
    if last is None:
        return Undone(0, None)
    count = await transcript_changes.count_said(connection, session.id, last.from_seq)
    session.user_messages = max(0, session.user_messages - count)
    return Undone(
        await transcript_changes.take_out(connection, session.id, last.from_seq), last.text
    )


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
    """Remove the last turn and queue its messages again.

    Args:
        connection: The connection of the transaction that has locked the session.
        session: An idle session; its counters change, so the caller has to write it.
        agent: The agent that serves the session.

    Returns:
        The removed turn; None if there are no messages of people, or they were deleted since.

    Raises:
        MalformedKeyError: The address for an answer is unknown. Nothing was changed.
    """
    last = await transcript_changes.last_turns(connection, session.id, 1)
    if last is None:
        return None
    messages = await transcript_changes.rows_of_people_from(connection, session.id, last.from_seq)
    if not messages:
        return None
    queue_again(session, agent, messages, at=at, trigger=trigger, slots=slots, effects=effects)
    return Undone(
        await transcript_changes.take_out(connection, session.id, last.from_seq), last.text
    )
