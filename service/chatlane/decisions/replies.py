"""Find the messages that the replies of a batch answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.domain.replies import Replies
from chatlane.store.deliveries import find_own_messages
from chatlane.store.history import edits, replies
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.replies import RepliedRow
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Lane
    from chatlane.store.history.edits import SessionMark


async def load(
    connection: PoolConnectionProxy,
    arrived: Sequence[ResolvedMessage],
    bound: Mapping[str, Lane],
) -> Replies | None:
    """Return the stored messages that replies of a batch answer; None without replies.

    The dedupe mark of a message names its session. Marks expire after some days. Then only the
    session of the lane is searched, by address. Our own messages are found by their receipts.
    """
    answering = [message for message in arrived if message.replied]
    if not answering:
        return None
    digests = {digest for message in answering for digest in message.replied}
    own = await replies.find_own(connection, await find_own_messages(connection, digests))
    marks = await edits.find_marks(connection, digests)
    places = [_sessions_of(message, marks, bound) for message in answering]
    wanted = {
        (session_id, message.event.reply_to or "")
        for message, session_ids in zip(answering, places, strict=True)
        for session_id in session_ids
    }
    found = await replies.find(connection, wanted) if wanted else {}
    loaded = Replies(own)
    for message, session_ids in zip(answering, places, strict=True):
        number = message.event.reply_to or ""
        candidates = [row for id_ in session_ids for row in found.get((id_, number), ())]
        row = _chosen(message, candidates)
        if row is not None and loaded.find(message.replied) is None:
            loaded.found.update(dict.fromkeys(message.replied, row))
    return loaded


def _sessions_of(
    message: ResolvedMessage,
    marks: Mapping[bytes, Sequence[SessionMark]],
    bound: Mapping[str, Lane],
) -> list[UUID]:
    """Return the sessions that may hold the answered message, the session of the lane first."""
    lane = bound.get(message.session_key)
    here = [] if lane is None else [lane.session_id]
    marked = [mark.session_id for digest in message.replied for mark in marks.get(digest, ())]
    return list(dict.fromkeys([*here, *marked]))


def _chosen(
    message: ResolvedMessage, candidates: Sequence[tuple[RepliedRow, bytes | None]]
) -> RepliedRow | None:
    """Return the candidate with the address of the reply; one without an address if it is alone.

    A session can contain two chats that use the same message ids. Rows that were imported or that
    the agent wrote have no address.
    """
    event = message.event.model_copy(update={"message_id": message.event.reply_to})
    addresses = {*message.replied, digest_of(source_of(event))}
    for row, digest in candidates:
        if digest in addresses:
            return row
    unknown = [row for row, digest in candidates if digest is None]
    return unknown[0] if len(unknown) == 1 else None
