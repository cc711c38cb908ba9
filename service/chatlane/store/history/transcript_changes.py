"""Change transcripts: each change in one transaction, under the lock of its session."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, LiteralString, TypeAlias

from chatlane.domain.effects import MessageRow, without_nulls
from chatlane.domain.sessions.transcripts import KnownRow, Version, placements
from chatlane.postgres.columns import columns
from chatlane.store.addressing import identities
from chatlane.store.history import messages, rewind
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.fields import MAX_INT64
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    PlacedRow,
    TranscriptAppend,
    TranscriptChange,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRewind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

Answer: TypeAlias = TranscriptChanged | ApiError


@dataclass(slots=True)
class _Locked:
    """The columns of a locked session that a change reads and updates."""

    id: UUID
    next_seq: int
    revision: int
    seq_gaps: int
    active_turn: UUID | None
    has_ended: bool
    owner: str | None

    @property
    def version(self) -> Version:
        return Version(self.revision, self.next_seq)


LOCK_SQL: Final[LiteralString] = """
-- sessions: lock the one whose transcript changes
SELECT id, next_seq, revision, seq_gaps, active_turn,
       ended_at IS NOT NULL AS has_ended, owner
FROM sessions WHERE id = $1 ORDER BY id FOR NO KEY UPDATE
"""

UPDATE_SQL: Final[LiteralString] = """
-- sessions: counters of a transcript that was changed, locked before
UPDATE sessions SET next_seq = $2, revision = $3, seq_gaps = $4 WHERE id = $1
"""


async def change(connection: PoolConnectionProxy, request: TranscriptChange) -> Answer:
    """Lock the session, decide and write; an error means that nothing was written."""
    person = request.acting_for
    owners = await identities.find_owners(connection, person)
    row = await connection.fetchrow(LOCK_SQL, request.session_id)
    if row is None or (owners is not None and row["owner"] not in owners):
        return not_found()
    session = _Locked(*row.values())
    if session.has_ended:
        return conflict("the session has ended")
    before = session.version
    answer = await _apply(connection, session, request)
    if session.version != before:
        await connection.execute(
            UPDATE_SQL, session.id, session.next_seq, session.revision, session.seq_gaps
        )
    return answer


VERSION_SQL: Final[LiteralString] = """
-- sessions: which transcript it is now
SELECT revision, next_seq FROM sessions WHERE id = $1
"""


async def find_version(connection: PoolConnectionProxy, session_id: UUID) -> str | None:
    """Return the version of a transcript as seen by the current transaction."""
    row = await connection.fetchrow(VERSION_SQL, session_id)
    return None if row is None else Version(*row.values()).text


async def _apply(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptChange
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
        case _:
            raise TypeError(type(request).__name__)


async def _append(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptAppend
) -> Answer:
    known = await _known(connection, session.id, request.rows)
    if isinstance(known, ApiError):
        return known
    placed = placements(request.rows, known, session.next_seq)
    session.next_seq += await insert_new(connection, session.id, request.rows, placed)
    return _changed(session, placed=placed)


async def _replace(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptReplace
) -> Answer:
    if not request.rows and not request.allow_empty:
        return _invalid("rows: none; an empty transcript takes allow_empty")
    refusal = _unlike(session, request.expected_version) or _in_work(session)
    if refusal is not None:
        return refusal
    known = await _known(connection, session.id, request.rows)
    if isinstance(known, ApiError):
        return known
    removed = await _remove(connection, session, reason="replaced")
    placed = placements(request.rows, {}, session.next_seq)
    session.next_seq += await insert_new(connection, session.id, request.rows, placed)
    return _changed(session, placed=placed, removed_rows=removed)


FIND_EDGE_SQL: Final[LiteralString] = """
-- messages: how much a summary is to stand for, what comes behind it, what is in work
SELECT (SELECT count(*) FROM (
            SELECT FROM messages WHERE session_id = $1 AND seq <= $2 LIMIT $3) AS oldest) AS found,
       (SELECT role FROM messages WHERE session_id = $1 AND seq > $2
        ORDER BY seq LIMIT 1) AS next_role,
       EXISTS (SELECT FROM messages
               WHERE turn_id = $4 AND session_id = $1 AND seq <= $2) AS is_in_work
"""


async def _compact(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptCompact
) -> Answer:
    refusal = await _not_to_be_summed_up(connection, session, request)
    if refusal is not None:
        return refusal
    known = await _known(connection, session.id, request.rows)
    if isinstance(known, ApiError):
        return known
    removed = await _remove(connection, session, through_seq=request.through_seq, reason="replaced")
    # The summary takes the last places that became free, so that all later rows follow it.
    first = request.through_seq - len(request.rows) + 1
    placed = placements(request.rows, {}, first)
    written = await insert_new(connection, session.id, request.rows, placed)
    session.seq_gaps -= written
    return _changed(session, placed=placed, removed_rows=removed)


async def summary_places(
    connection: PoolConnectionProxy, request: TranscriptCompact
) -> tuple[PlacedRow, ...] | ApiError:
    """Return the places of a summary at the start of another session, or an error.

    Args:
        connection: Connection of the transaction that has locked the session.
        request: The compaction of a session that exists and has not ended.
    """
    row = await connection.fetchrow(LOCK_SQL, request.session_id)
    if row is None:
        return not_found()
    refusal = await _not_to_be_summed_up(connection, _Locked(*row.values()), request)
    if refusal is not None:
        return refusal
    known = await _known(connection, request.session_id, request.rows)
    return known if isinstance(known, ApiError) else placements(request.rows, {}, 1)


async def _not_to_be_summed_up(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptCompact
) -> ApiError | None:
    seen = Version.parsed(request.expected_version)
    if not seen.has_only_grown_to(session.version):
        return stale()
    if request.through_seq >= seen.next_seq:
        return _invalid("through_seq: beyond what the summary was made from")
    enough = len(request.rows) + 1
    [[found, next_role, is_in_work]] = await connection.fetch(
        FIND_EDGE_SQL, session.id, request.through_seq, enough, session.active_turn
    )
    if found < enough:
        return _invalid("rows: not fewer than they stand for")
    if next_role == Role.TOOL:
        return _invalid("through_seq: would part a call from its results")
    return conflict("a turn is running on these rows") if is_in_work else None


async def _rewind(
    connection: PoolConnectionProxy, session: _Locked, request: TranscriptRewind
) -> Answer:
    refusal = _unlike(session, request.expected_version) or _in_work(session)
    if refusal is not None:
        return refusal
    last = await rewind.last_turns(connection, session.id, request.turns)
    if last is None:
        return _changed(session)
    removed = await _remove(connection, session, from_seq=last.from_seq, reason="undone")
    return _changed(session, removed_rows=removed, undone_text=last.text)


def _unlike(session: _Locked, expected: str | None) -> ApiError | None:
    if expected is None or expected == session.version.text:
        return None
    return stale()


def not_found() -> ApiError:
    """Return the error of a request for a session that does not exist or is not visible to the caller."""
    return ApiError(code=ApiErrorCode.NOT_FOUND, message="there is no session with this id")


def stale() -> ApiError:
    """Return the error of a request with an outdated version."""
    return ApiError(
        code=ApiErrorCode.STALE, message="the transcript has changed meanwhile; load it again"
    )


def _invalid(message: str) -> ApiError:
    return ApiError(code=ApiErrorCode.INVALID, message=message)


def _in_work(session: _Locked) -> ApiError | None:
    """Reject the removal of rows while a turn answers them."""
    return conflict("a turn is running") if session.active_turn is not None else None


def conflict(message: str) -> ApiError:
    """Return the error of a request that contradicts the stored state."""
    return ApiError(code=ApiErrorCode.CONFLICT, message=message)


def _changed(
    session: _Locked,
    *,
    placed: tuple[PlacedRow, ...] = (),
    removed_rows: int = 0,
    undone_text: str | None = None,
) -> TranscriptChanged:
    return TranscriptChanged(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        session_id=session.id,
        version=session.version.text,
        placed=placed,
        removed_rows=removed_rows,
        undone_text=undone_text,
    )


FIND_KNOWN_SQL: Final[LiteralString] = """
-- messages: which of these are stored already, wait, or were taken out
WITH line AS MATERIALIZED (
    -- Read once: for each row anew, a thousand rows and a long line outlast the timeout.
    SELECT session_id, platform_message_id, message_id FROM waiting
    WHERE session_id = $1 AND (platform_message_id IN (SELECT unnest($3::text[]))
                               OR message_id IN (SELECT unnest($4::uuid[])))
)
SELECT want.place, found.session_id, found.seq
FROM unnest($2::int[], $3::text[], $4::uuid[]) AS want (place, platform_message_id, id)
CROSS JOIN LATERAL (
    SELECT session_id, seq FROM messages
    WHERE session_id = $1 AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, seq FROM messages WHERE id = want.id
    UNION ALL
    SELECT session_id, NULL FROM line
    WHERE platform_message_id = want.platform_message_id OR message_id = want.id
    UNION ALL
    SELECT session_id, NULL FROM removed_messages
    WHERE session_id = $1 AND platform_message_id = want.platform_message_id
    UNION ALL
    SELECT session_id, NULL FROM removed_messages WHERE id = want.id
) AS found
"""


async def _known(
    connection: PoolConnectionProxy,
    session_id: UUID,
    rows: Sequence[AppendedRow],
) -> dict[int, KnownRow] | ApiError:
    """Return the stored rows by index in `rows`; an error if one belongs to another session."""
    named = [
        (number, row.platform_message_id or None, row.message_id)
        for number, row in enumerate(rows)
        if row.platform_message_id or row.message_id
    ]
    if not named:
        return {}
    found = await connection.fetch(FIND_KNOWN_SQL, session_id, *columns(named, 3))
    if any(stored["session_id"] != session_id for stored in found):
        return _invalid("message_id: of a message of another session")
    # A row in the transcript takes precedence over a waiting or archived one.
    ordered = sorted(found, key=lambda stored: stored["seq"] is not None)
    return {stored["place"]: KnownRow(stored["seq"]) for stored in ordered}


async def insert_new(
    connection: PoolConnectionProxy,
    session_id: UUID,
    rows: Sequence[AppendedRow],
    placed: Sequence[PlacedRow],
) -> int:
    """Write the new rows at their places; returns how many."""
    now = datetime.now(UTC)
    new = [
        MessageRow(
            session_id,
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
                    "attachments": row.attachments or None,
                }
            ),
            author=row.author,
            platform_message_id=row.platform_message_id or None,
        )
        for row, place in zip(rows, placed, strict=True)
        if place.seq is not None and not place.is_repeat
    ]
    await messages.insert(connection, new)
    return len(new)


async def _remove(
    connection: PoolConnectionProxy,
    session: _Locked,
    *,
    reason: str,
    from_seq: int = 1,
    through_seq: int = MAX_INT64,
) -> int:
    """Move rows to the archive, and update the counters of the session."""
    removed = await rewind.take_out(
        connection, session.id, from_seq, through_seq=through_seq, reason=reason
    )
    if removed:
        session.revision += 1
        session.seq_gaps += removed
    return removed
