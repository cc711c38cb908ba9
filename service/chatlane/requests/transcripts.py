"""Decide requests that change a transcript, including retries and compactions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from chatlane.decisions.operations.rewind import retry
from chatlane.domain.addressing.keys import MalformedKeyError
from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects, MessageRow, without_nulls
from chatlane.domain.ids import row_id_of
from chatlane.domain.sessions.refusals import conflict, invalid, is_read_only, no_session, stale
from chatlane.domain.sessions.session_flags import end_session, session_behind
from chatlane.domain.sessions.transcripts import Version, placements
from chatlane.domain.turns.lifecycle import open_turn, void_turn
from chatlane.domain.turns.turn_results import reasoning_details
from chatlane.store import turns
from chatlane.store.addressing import identities, lanes
from chatlane.store.conversations import lane_merges, sessions
from chatlane.store.history import messages, transcript_changes
from chatlane.store.history.transcript_changes import Successors
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.events import EndReason
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.session_api.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRestore,
    TranscriptRetry,
    TranscriptRewind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from chatlane.domain.sessions.transcripts import KnownRow
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call
    from chatlane.store.history.transcript_changes import Reason, TranscriptCounters
    from chatlane_schemas.session_api.transcripts import AppendedRow, PlacedRow

Answer: TypeAlias = TranscriptChanged | ApiError


def publishes(request: TranscriptChange) -> bool:
    """Return whether a request publishes messages, besides its reply."""
    is_in_child = isinstance(request, TranscriptCompact) and request.in_child
    return is_in_child or isinstance(request, TranscriptRetry)


async def change(request: TranscriptChange, call: Call) -> TranscriptChanged:
    """Decide a request that publishes: a retry, or a compaction into a child session."""
    connection = call.connection
    owners = await identities.find_owners(connection, request.acting_for)
    session = (await sessions.lock(connection, [request.session_id])).get(request.session_id)
    if session is None or (owners is not None and session.owner not in owners):
        return _reply(no_session())
    if session.ended_at is not None:
        return _reply(conflict("the session has ended"))
    if session.read_only:
        return _reply(is_read_only())
    match request:
        case TranscriptRetry():
            return _reply(await _retry(request, session, call))
        case TranscriptCompact():
            return _reply(await _compact_to_child(request, session, call))
        case _:
            raise TypeError(type(request).__name__)


async def write(connection: Connection, request: TranscriptChange) -> TranscriptChanged:
    """Decide a request that publishes nothing; a refused request writes nothing."""
    owners = await identities.find_owners(connection, request.acting_for)
    session = await transcript_changes.lock(connection, request.session_id)
    if session is None or (owners is not None and session.owner not in owners):
        return _reply(no_session())
    if session.has_ended:
        return _reply(conflict("the session has ended"))
    if session.read_only:
        return _reply(is_read_only())
    before = session.version
    answer = await _apply(connection, session, request)
    if session.version != before:
        await transcript_changes.write(connection, session)
    return _reply(answer)


def _reply(answer: Answer) -> TranscriptChanged:
    if isinstance(answer, ApiError):
        return TranscriptChanged(id=new_envelope_id(), at=datetime.now(UTC), error=answer)
    return answer


async def _apply(
    connection: Connection, session: TranscriptCounters, request: TranscriptChange
) -> Answer:
    match request:
        case TranscriptAppend():
            return await _append(connection, session, request)
        case TranscriptReplace():
            return await _replace(connection, session, request)
        case TranscriptCompact():
            return await _compact(connection, session, request)
        case TranscriptRewind():
            return await _rewind(connection, session, request)
        case TranscriptRestore():
            return await _restore(connection, session, request)
        case _:
            raise TypeError(type(request).__name__)


async def _append(
    connection: Connection, session: TranscriptCounters, request: TranscriptAppend
) -> Answer:
    known = await _known(connection, session.id, request.rows)
    if isinstance(known, ApiError):
        return known
    placed = placements(request.rows, known, session.next_seq)
    now = datetime.now(UTC)
    message_times = (
        row.said_at or now
        for row, place in zip(request.rows, placed, strict=True)
        if row.role != Role.TOOL and not place.is_repeat
    )
    session.last_message_at = max(message_times, default=None)
    session.next_seq += await _insert(connection, session, request.rows, placed)
    return _changed(session, placed=placed)


async def _replace(
    connection: Connection, session: TranscriptCounters, request: TranscriptReplace
) -> Answer:
    if not request.rows and not request.allow_empty:
        return invalid("rows: none; an empty transcript takes allow_empty")
    refusal = _not_removable(session, request.expected_version)
    if refusal is not None:
        return refusal
    known = await _known(connection, session.id, request.rows)
    if isinstance(known, ApiError):
        return known
    placed = placements(request.rows, {}, session.next_seq)
    new = sum(not place.is_repeat for place in placed)
    successors = Successors(session.next_seq, session.next_seq + new - 1)
    removed = await _remove(connection, session, reason="replaced", successors=successors)
    session.next_seq += await _insert(connection, session, request.rows, placed)
    return _changed(session, placed=placed, removed_rows=removed)


async def _compact(
    connection: Connection, session: TranscriptCounters, request: TranscriptCompact
) -> Answer:
    # The summary takes the last places that become free, so that all later rows follow it.
    first = request.through_seq - len(request.rows) + 1
    placed = await _summary_places(connection, session, request, first)
    if isinstance(placed, ApiError):
        return placed
    removed = await _remove(
        connection,
        session,
        through_seq=request.through_seq,
        reason="replaced",
        successors=Successors(first, request.through_seq),
    )
    session.seq_gaps -= await _insert(
        connection, session, request.rows, placed, revision=session.revision
    )
    return _changed(session, placed=placed, removed_rows=removed)


async def _summary_places(
    connection: Connection, session: TranscriptCounters, request: TranscriptCompact, first: int
) -> tuple[PlacedRow, ...] | ApiError:
    """Return the places of a summary from `first` on, or why it cannot replace these rows."""
    seen = Version.parsed(request.expected_version)
    if not seen.has_only_grown_to(session.version):
        return _stale()
    if request.through_seq >= seen.next_seq:
        return invalid("through_seq: beyond what the summary was made from")
    enough = len(request.rows) + 1
    edge = await transcript_changes.find_edge(connection, session, request.through_seq, enough)
    if edge.found < enough:
        return invalid("rows: not fewer than they stand for")
    if edge.next_role == Role.TOOL:
        return invalid("through_seq: would part a call from its results")
    if edge.is_in_progress:
        return conflict("a turn is running on these rows")
    known = await _known(connection, session.id, request.rows)
    return known if isinstance(known, ApiError) else placements(request.rows, {}, first)


async def _rewind(
    connection: Connection, session: TranscriptCounters, request: TranscriptRewind
) -> Answer:
    refusal = _not_removable(session, request.expected_version)
    if refusal is not None:
        return refusal
    last = await transcript_changes.last_turns(connection, session.id, request.turns)
    if last is None:
        return _changed(session)
    count = await transcript_changes.count_said(connection, session.id, last.from_seq)
    await transcript_changes.uncount_messages(connection, session.id, count)
    removed = await _remove(connection, session, from_seq=last.from_seq, reason="undone")
    return _changed(session, removed_rows=removed, undone_text=last.text)


async def _restore(
    connection: Connection, session: TranscriptCounters, request: TranscriptRestore
) -> Answer:
    """Put the rows of one change back, and take out the rows that replaced them."""
    refusal = _not_removable(session, request.expected_version)
    if refusal is not None:
        return refusal
    found = await transcript_changes.find_removal(connection, session.id, request.removal)
    if found.first_seq is None or found.last_seq is None:
        return conflict("the archive has no rows of this change")
    if found.covered_by is not None:
        return conflict(f"change {found.covered_by} replaced rows there: restore it first")
    if found.reason == "replaced" and found.successor_from is None:
        return conflict("an earlier release did not note which rows took their place")
    if found.is_taken:
        return conflict("another row has the place or the id of one of them")
    removed = 0
    if found.successor_from is not None and found.successor_through is not None:
        removed = await _remove(
            connection,
            session,
            from_seq=found.successor_from,
            through_seq=found.successor_through,
            reason="undone",
            successors=Successors(found.first_seq, found.last_seq),
        )
    else:
        await transcript_changes.count_restored(connection, session.id, found.person_messages)
    restored = await transcript_changes.put_back(
        connection, session.id, request.removal, found.first_seq, found.last_seq
    )
    session.revision += 1
    session.seq_gaps -= restored
    return _changed(session, removed_rows=removed, restored_rows=restored)


async def _retry(request: TranscriptRetry, session: Session, call: Call) -> Answer:
    connection = call.connection
    found = await transcript_changes.find_version(connection, session.id)
    if request.expected_version not in {None, found}:
        return _stale()
    if session.active_turn is not None:
        return conflict("a turn is running")
    effects = Effects()
    try:
        undone = await retry(
            connection,
            session,
            call.catalog.agents.get(session.agent) or Agent(session.agent),
            at=call.at,
            trigger=call.trigger,
            slots=call.slots,
            effects=effects,
        )
    except MalformedKeyError:
        return conflict("nothing tells where an answer would go")
    if undone is None:
        return conflict("nobody has said anything")
    await call.unit_of_work.write(effects, sessions_of=[session])
    return TranscriptChanged(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=session.id,
        version=await transcript_changes.find_version(connection, session.id),
        removed_rows=undone.removed_rows,
        undone_text=undone.text,
        turn_id=session.active_turn,
    )


async def _compact_to_child(request: TranscriptCompact, parent: Session, call: Call) -> Answer:
    """End a session as compacted, and move its lanes, later rows and waiting messages to a child.

    The parent keeps only the rows that the summary replaces. Parent and child together hold the
    whole conversation, each row once.
    """
    connection = call.connection
    counters = await transcript_changes.lock(connection, parent.id)
    if counters is None:
        return no_session()
    placed = await _summary_places(connection, counters, request, 1)
    if isinstance(placed, ApiError):
        return placed
    tail, is_asking = await transcript_changes.count_tail(
        connection, parent.id, request.through_seq
    )
    if is_asking:
        return conflict("an answer is still to come")
    effects = Effects()
    if not await _stop_waiting_turn(connection, parent, effects):
        return conflict("a turn is running")
    end_session(parent, call.at, EndReason.COMPRESSION, effects)
    child = session_behind(parent, call.at, call.trigger, effects)
    child.next_seq += len(request.rows) + tail
    waiting = await lane_merges.move_waiting(connection, parent.id, child.id, child.session_key, 1)
    child.next_arrival += waiting
    if waiting:
        open_turn(child, call.at, call.trigger, effects)
    followed = await lanes.find(connection, await lanes.find_keys_of(connection, parent.id))
    for lane in followed.values():
        lane.session_id = child.id
    await call.unit_of_work.write(effects, lanes_of=followed.values(), sessions_of=[parent, child])
    await transcript_changes.move_tail(
        connection, parent.id, request.through_seq, child.id, len(request.rows) + 1
    )
    await _insert(connection, child, request.rows, placed)
    await transcript_changes.inherit(connection, parent.id, child.id)
    return TranscriptChanged(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=child.id,
        version=await transcript_changes.find_version(connection, child.id),
        placed=placed,
        turn_id=child.active_turn,
    )


async def _stop_waiting_turn(connection: Connection, session: Session, effects: Effects) -> bool:
    """Void an unclaimed turn of a session; return False if its turn is claimed."""
    if session.active_turn is None:
        return True
    found = await turns.lock(connection, [session.active_turn])
    for turn in found.values():
        if not turn.is_unclaimed:
            return False
        void_turn(turn, session, has_waiting=False, effects=effects)
    return True


def _stale() -> ApiError:
    return stale("the transcript has changed meanwhile; load it again")


def _not_removable(session: TranscriptCounters, expected: str | None) -> ApiError | None:
    """Refuse to remove rows of another version, or while a turn answers them."""
    if expected not in {None, session.version.text}:
        return _stale()
    return conflict("a turn is running") if session.active_turn is not None else None


def _changed(
    session: TranscriptCounters,
    *,
    placed: tuple[PlacedRow, ...] = (),
    removed_rows: int = 0,
    restored_rows: int = 0,
    undone_text: str | None = None,
) -> TranscriptChanged:
    return TranscriptChanged(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=session.id,
        version=session.version.text,
        placed=placed,
        removed_rows=removed_rows,
        restored_rows=restored_rows,
        undone_text=undone_text,
    )


async def _known(
    connection: Connection, session_id: UUID, rows: Sequence[AppendedRow]
) -> dict[int, KnownRow] | ApiError:
    known = await transcript_changes.find_known(connection, session_id, rows)
    return invalid("message_id: of a message of another session") if known is None else known


async def _insert(
    connection: Connection,
    session: TranscriptCounters | Session,
    rows: Sequence[AppendedRow],
    placed: Sequence[PlacedRow],
    *,
    revision: int = 0,
) -> int:
    """Write the new rows at their places; returns how many.

    Args:
        connection: Connection of the transaction that has locked the session.
        session: The session to write to.
        rows: The rows of the request.
        placed: The place of each.
        revision: Revision of the transcript, if other rows had these places before.
    """
    now = datetime.now(UTC)
    new = [
        MessageRow(
            session.id,
            place.seq,
            row.role,
            row.content,
            row.said_at or now,
            id=row.message_id,
            details=without_nulls(
                {
                    "tool_calls": row.tool_calls,
                    "tool_call_id": row.tool_call_id,
                    "tool_name": row.tool_name,
                    "reasoning": reasoning_details(row, session.agent),
                    "attachments": row.attachments or None,
                }
            ),
            author=row.author,
            platform_message_id=row.platform_message_id or None,
            row_id=row_id_of(session.id, place.seq, revision) if revision else None,
        )
        for row, place in zip(rows, placed, strict=True)
        if place.seq is not None and not place.is_repeat
    ]
    await messages.insert(connection, new)
    return len(new)


async def _remove(
    connection: Connection,
    session: TranscriptCounters,
    *,
    reason: Reason,
    from_seq: int = 1,
    through_seq: int = MAX_INT64,
    successors: Successors | None = None,
) -> int:
    """Move rows to the archive, and update the counters of the session."""
    removed = await transcript_changes.take_out(
        connection,
        session.id,
        from_seq,
        through_seq=through_seq,
        reason=reason,
        successors=successors,
    )
    if removed:
        session.revision += 1
        session.seq_gaps += removed
    return removed
