"""Continue a conversation in a child session that begins with a summary of the parent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from chatlane.domain.effects import Effects
from chatlane.domain.sessions.compaction import session_behind
from chatlane.domain.sessions.session_flags import end_session
from chatlane.domain.turns.lifecycle import open_turn, void_turn
from chatlane.store import turns
from chatlane.store.addressing import lanes
from chatlane.store.conversations import compaction, lane_merges
from chatlane.store.history import transcript_changes
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.session_api.transcripts import TranscriptChanged

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.states import Session
    from chatlane.store.history.transcript_changes import Answer
    from chatlane_schemas.session_api.transcripts import TranscriptCompact


async def compact_to_child(
    unit_of_work: UnitOfWork,
    parent: Session,
    request: TranscriptCompact,
    at: datetime,
    trigger: bytes,
) -> Answer:
    """End a session as compacted, and move its lanes, later rows and waiting messages to a child.

    The parent keeps only the rows that the summary replaces. Parent and child together hold the
    whole conversation, each row once.

    Args:
        writing: The transaction.
        parent: The session, locked and not ended.
        request: The summary.
        at: Time of the request.
        trigger: Seed of the derived ids, so that a repeated request derives the same ids.
    """
    connection = unit_of_work.connection
    placed = await transcript_changes.summary_places(connection, request)
    if isinstance(placed, ApiError):
        return placed
    tail, is_asking = await compaction.count_tail(connection, parent.id, request.through_seq)
    if is_asking:
        return transcript_changes.conflict("an answer is still to come")
    effects = Effects()
    if not await _stop_waiting_turn(connection, parent, effects):
        return transcript_changes.conflict("a turn is running")
    end_session(parent, at, EndReason.COMPRESSION, effects)
    child = session_behind(parent, at, trigger, effects)
    child.next_seq += len(request.rows) + tail
    waiting = await lane_merges.move_waiting(connection, parent.id, child.id, child.session_key, 1)
    child.next_arrival += waiting
    if waiting:
        open_turn(child, at, trigger, effects)
    followed = await lanes.find(connection, await lanes.find_keys_of(connection, parent.id))
    for lane in followed.values():
        lane.session_id = child.id
    await unit_of_work.write(effects, lanes_of=followed.values(), sessions_of=[parent, child])
    await compaction.move_tail(
        connection, parent.id, request.through_seq, child.id, len(request.rows) + 1
    )
    await transcript_changes.insert_new(connection, child.id, request.rows, placed)
    await compaction.inherit(connection, parent.id, child.id)
    return TranscriptChanged(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=child.id,
        version=await transcript_changes.find_version(connection, child.id),
        placed=placed,
        turn_id=child.active_turn,
    )


async def _stop_waiting_turn(
    connection: PoolConnectionProxy, session: Session, effects: Effects
) -> bool:
    """Void an unclaimed turn of a session; return False if its turn is claimed."""
    if session.active_turn is None:
        return True
    found = await turns.lock(connection, [session.active_turn])
    for turn in found.values():
        if not turn.is_unclaimed:
            return False
        void_turn(turn, session, has_waiting=False, effects=effects)
    return True
