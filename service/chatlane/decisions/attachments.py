"""Attach files to messages that arrived before their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.lanes import details_json
from chatlane.domain.turns.debounce import NONE, rest_of_line
from chatlane.domain.turns.lifecycle import MAX_TURN_MESSAGES, repeat_notice
from chatlane.store import pending_messages, turns
from chatlane.store.history import messages
from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects
    from chatlane.domain.lanes import ResolvedMessage
    from chatlane.domain.states import Session


async def bring_files(
    connection: PoolConnectionProxy,
    message: ResolvedMessage,
    here: Session,
    others: Sequence[Session],
    effects: Effects,
) -> ResolvedMessage:
    """Attach the files of an event to its message, and return the event that remains to place.

    Earlier decisions of the batch have to be in the database. A message is pending in the session
    in which it was written, even if its lane points to another session since. Files that arrive
    after a turn has run with their message become a separate message. Files of a message that
    will not be answered are added to its row and start no turn.

    Args:
        message: An event of kind `attachments` that is no duplicate.
        here: The session to which its lane points; locked, like the others.
        others: Other sessions in which the message may be pending.
    """
    message_id = message.event.message_id
    if message_id is None or not message.event.attachments:
        return message
    files = [
        attachment.model_dump(mode="json", exclude_none=True)
        for attachment in message.event.attachments
    ]
    for session in (here, *others):
        if await pending_messages.bring_files(
            connection, session.id, message_id, files, message.size_bytes
        ):
            await _wake(connection, session, effects)
            return message
        if await messages.bring_files(connection, session.id, message_id, files):
            return message
    if not await messages.has_platform_message(connection, here.id, message_id):
        return message
    late = message.event.model_copy(update={"kind": Kind.MESSAGE})
    return message._replace(event=late, details=details_json(late))


async def _wake(connection: PoolConnectionProxy, session: Session, effects: Effects) -> None:
    """Announce a turn to the workers if it was debounced for these files only."""
    if session.active_turn is None:
        return
    found = await turns.lock(connection, [session.active_turn])
    turn = found.get(session.active_turn)
    if turn is None or turn.rest != "resting":
        return
    heads = await pending_messages.heads(connection, [session.id], MAX_TURN_MESSAGES)
    turn.due_in = min(turn.due_in, rest_of_line(heads.get(session.id, ()), turn))
    if turn.due_in == NONE:
        repeat_notice(turn, effects)
    else:
        effects.due_within(turn.due_in)
    # Not deferred: later messages of the same batch may read the turn again.
    await turns.update(connection, [turn])
