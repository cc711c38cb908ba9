"""Sessions: conversations with their counters, locked one row each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

import asyncpg
from pydantic_core import to_json

from chatlane.domain.states import Session
from chatlane.errors import SupersededError
from chatlane.postgres.pool import columns, count_of
from chatlane.postgres.stored_values import known_value, read_override, read_reason
from chatlane_schemas.events import EndReason, ResetReason

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from asyncpg import Record

    from chatlane.postgres.pool import Connection

# Must be identical to the expression of the index in migration 0132, or Postgres does not use it.
TITLE_KEY: Final[LiteralString] = (
    "normalize(regexp_replace(title, '"
    r"[\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u202A-\u202E"
    r"\u2060-\u206F\u3164\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\U0001BCA0-\U0001BCA3"
    r"\U0001D173-\U0001D17A\U000E0000-\U000E0FFF]"
    "', '', 'g'), NFC)"
)
"""SQL expression that compares titles like `title_key` of the schemas."""

# Columns of the `Session` fields, in their order: rows are mapped by position, because mapping
# by name costs a microsecond for each message.
SESSION_COLUMNS: Final[LiteralString] = """
    id, session_key, agent, platform, started_at, start_reason, parent_id, link_kind,
    ended_at, end_reason, last_activity_at, served_boundary, active_turn,
    next_seq, next_arrival, next_out_seq, user_messages, owner,
    suspended_at, resume_marked_at, resume_reason, held_until, model_override, answers,
    carry_over, opening_note, reset_had_activity, told_in, interruptions, asked_turn_ended_at
"""
LOCK_SESSIONS_SQL: Final[LiteralString] = f"""
-- sessions: lock those a transaction works on, in the order everybody locks them
SELECT {SESSION_COLUMNS}
FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - a constant


async def lock(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Session]:
    """Return the sessions by id, locked until the transaction ends; unknown ids are absent."""
    wanted = list(ids)
    rows = await connection.fetch(LOCK_SESSIONS_SQL, wanted) if wanted else []
    return {row["id"]: _from_row(row) for row in rows}


FIND_SESSION_SQL: Final[LiteralString] = f"""
-- sessions: one to look at, not to work on
SELECT {SESSION_COLUMNS}
FROM sessions WHERE id = $1
"""  # noqa: S608 - a constant


async def find(connection: Connection, session_id: UUID) -> Session | None:
    """Return a session without locking it: its values may be outdated."""
    row = await connection.fetchrow(FIND_SESSION_SQL, session_id)
    return None if row is None else _from_row(row)


LOCK_FREE_SESSIONS_SQL: Final[LiteralString] = f"""
-- sessions: lock those that nobody works on now; a sweep comes back for the others
SELECT {SESSION_COLUMNS}
FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - a constant


async def lock_free(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Session]:
    """Lock and return the sessions that no other transaction has locked."""
    rows = await connection.fetch(LOCK_FREE_SESSIONS_SQL, sorted(ids))
    return {row["id"]: _from_row(row) for row in rows}


def _from_row(row: Record) -> Session:
    session = Session(*row.values())
    # Most sessions have neither reason, and every message reads one.
    if session.start_reason is not None:
        reason = known_value(ResetReason, session.start_reason, "sessions.start_reason")
        session.start_reason = reason
    if session.end_reason is not None:
        # An unknown reason is counted and kept, so that it is written back unchanged.
        known_value(EndReason, session.end_reason, "sessions.end_reason")
    if session.model_override is not None:
        override = read_override(session.model_override)
        session.model_override = override.model_dump_json(exclude_none=True) if override else None
    if session.resume_reason is not None:
        session.resume_reason = read_reason(session.resume_reason)
    return session


INSERT_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: new conversations
INSERT INTO sessions (
    id, session_key, agent, platform, started_at, start_reason, parent_id, link_kind,
    ended_at, end_reason, last_activity_at, served_boundary, active_turn,
    next_seq, next_arrival, next_out_seq, user_messages, owner, asked_turn_ended_at)
SELECT * FROM unnest(
    $1::uuid[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::uuid[],
    $8::text[], $9::timestamptz[], $10::text[], $11::timestamptz[], $12::timestamptz[],
    $13::uuid[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::text[],
    $19::timestamptz[])
ON CONFLICT (id) DO NOTHING
"""


async def insert(connection: Connection, sessions: Iterable[Session]) -> None:
    """Write new sessions.

    Raises:
        SupersededError: The same trigger already opened one of them.
    """
    new = list(sessions)
    rows = [
        (
            session.id,
            session.session_key,
            session.agent,
            session.platform,
            session.started_at,
            session.start_reason,
            session.parent_id,
            session.link_kind,
            session.ended_at,
            session.end_reason,
            session.last_activity_at,
            session.served_boundary,
            session.active_turn,
            session.next_seq,
            session.next_arrival,
            session.next_out_seq,
            session.user_messages,
            session.owner,
            session.asked_turn_ended_at,
        )
        for session in new
    ]
    if not rows:
        return
    status = await connection.execute(INSERT_SESSIONS_SQL, *columns(rows, 19))
    if count_of(status) != len(rows):
        raise SupersededError("sessions")
    await _flag(connection, new)


UPDATE_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: counters and state of those locked before; of indexed columns only these can change:
-- the agent, after the settings did, and the owner; the key with `SHARE_SESSIONS_SQL`
UPDATE sessions SET
    agent = new.agent, last_activity_at = new.last_activity_at, active_turn = new.active_turn,
    next_seq = new.next_seq, next_arrival = new.next_arrival,
    next_out_seq = new.next_out_seq, user_messages = new.user_messages, owner = new.owner,
    answers = new.answers, asked_turn_ended_at = new.asked_turn_ended_at
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[],
    $7::bigint[], $8::text[], $9::text[], $10::bigint[], $11::timestamptz[])
    AS new (id, last_activity_at, active_turn, next_seq, next_arrival, next_out_seq,
            user_messages, agent, owner, answers, asked_turn_ended_at)
WHERE sessions.id = new.id
"""

END_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: how those locked before have ended
UPDATE sessions SET
    ended_at = new.ended_at, end_reason = new.end_reason, parent_id = new.parent_id,
    link_kind = new.link_kind
FROM unnest($1::uuid[], $2::timestamptz[], $3::text[], $4::uuid[], $5::text[])
    AS new (id, ended_at, end_reason, parent_id, link_kind)
WHERE sessions.id = new.id
"""


async def update(connection: Connection, sessions: Iterable[Session]) -> None:
    """Write sessions that this transaction has locked."""
    changed = list(sessions)
    if not changed:
        return
    counters = [
        (
            session.id,
            session.last_activity_at,
            session.active_turn,
            session.next_seq,
            session.next_arrival,
            session.next_out_seq,
            session.user_messages,
            session.agent,
            session.owner,
            session.answers,
            session.asked_turn_ended_at,
        )
        for session in changed
    ]
    await connection.execute(UPDATE_SESSIONS_SQL, *columns(counters, 11))
    await _share(connection, changed)
    await _flag(connection, changed)
    ends = [
        (session.id, session.ended_at, session.end_reason, session.parent_id, session.link_kind)
        for session in changed
        if session.ended_at is not None
    ]
    if ends:
        await connection.execute(END_SESSIONS_SQL, *columns(ends, 5))


LOCK_SUMMED_UP_SQL: Final[LiteralString] = """
-- sessions: lock what was summed up in some that are locked, unless another transaction has it
WITH RECURSIVE parent (id, hops) AS (
    SELECT parent_id, 0 FROM sessions WHERE id = ANY($1::uuid[]) AND link_kind = 'compression'
    UNION ALL
    SELECT parent_id, hops + 1 FROM parent JOIN sessions USING (id)
    WHERE link_kind = 'compression' AND hops < 64
)
SELECT id FROM sessions WHERE id = ANY(SELECT id FROM parent) ORDER BY id FOR NO KEY UPDATE NOWAIT
"""

SHARE_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: those that came to be shared, and what was summed up in them: their key, and a title
-- that is the only one under it
WITH RECURSIVE shared (id, parent_id, link_kind, session_key, hops) AS (
    SELECT sessions.id, parent_id, link_kind, new.session_key, 0
    FROM unnest($1::uuid[], $2::text[]) AS new (id, session_key) JOIN sessions USING (id)
    UNION ALL
    SELECT parent.id, parent.parent_id, parent.link_kind, shared.session_key, shared.hops + 1
    FROM shared JOIN sessions AS parent ON parent.id = shared.parent_id
    WHERE shared.link_kind = 'compression' AND shared.hops < 64
), named AS (
    SELECT shared.id, shared.session_key, sessions.title IS NOT NULL AND NOT EXISTS (
        SELECT FROM sessions AS other WHERE other.title = sessions.title
          AND other.title_scope = shared.session_key AND other.id <> sessions.id)
        AND row_number() OVER (
            PARTITION BY sessions.title, shared.session_key ORDER BY shared.id) = 1 AS keeps_title
    FROM shared JOIN sessions ON sessions.id = shared.id
)
UPDATE sessions SET
    owner = NULL, session_key = named.session_key,
    title = CASE WHEN keeps_title THEN title END,
    title_scope = CASE WHEN keeps_title THEN named.session_key END
FROM named WHERE sessions.id = named.id
"""


async def _share(connection: Connection, sessions: list[Session]) -> None:
    rows = [(session.id, session.session_key) for session in sessions if session.has_new_key]
    if not rows:
        return
    # Their children are already locked, which violates the order of ids: waiting could deadlock.
    await connection.fetch(LOCK_SUMMED_UP_SQL, [session_id for session_id, _ in rows])
    try:
        await connection.execute(SHARE_SESSIONS_SQL, *columns(rows, 2))
    except asyncpg.UniqueViolationError as exc:
        raise SupersededError("titles") from exc


FLAG_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: what few of those that were locked or inserted before have: that they were given up
-- or interrupted, what they leave to the next one, what they have to tell
UPDATE sessions SET
    suspended_at = new.suspended_at, resume_marked_at = new.resume_marked_at,
    resume_reason = new.resume_reason, carry_over = new.carry_over,
    opening_note = new.opening_note, reset_had_activity = new.reset_had_activity,
    told_in = new.told_in, interruptions = new.interruptions
FROM unnest(
    $1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::text[], $5::text[], $6::text[],
    $7::boolean[], $8::uuid[], $9::int[])
    AS new (id, suspended_at, resume_marked_at, resume_reason, carry_over, opening_note,
            reset_had_activity, told_in, interruptions)
WHERE sessions.id = new.id
"""


async def _flag(connection: Connection, sessions: list[Session]) -> None:
    rows = [
        (
            session.id,
            session.suspended_at,
            session.resume_marked_at,
            session.resume_reason,
            session.carry_over,
            session.opening_note,
            session.reset_had_activity,
            session.told_in,
            session.interruptions,
        )
        for session in sessions
        if session.has_new_flags
    ]
    if rows:
        await connection.execute(FLAG_SESSIONS_SQL, *columns(rows, 9))


ADD_USAGE_SQL: Final[LiteralString] = """
-- sessions: what results reported, added to the sums of those locked before; new names only
-- while there are few
UPDATE sessions SET usage = (
    SELECT jsonb_object_agg(name, total) FROM (
        SELECT name, least(sum(count), 9223372036854775807) AS total FROM (
            SELECT key AS name, value::numeric AS count, true AS is_known
            FROM jsonb_each_text(coalesce(sessions.usage, '{}'))
            UNION ALL
            SELECT key, value::numeric, false FROM jsonb_each_text(new.usage)
        ) AS counted
        GROUP BY name ORDER BY bool_or(is_known) DESC, name LIMIT 64
    ) AS summed)
FROM unnest($1::uuid[], $2::jsonb[]) AS new (id, usage)
WHERE sessions.id = new.id
"""


async def add_usage(connection: Connection, used: Mapping[UUID, Counter[str]]) -> None:
    """Add named counts to the sums of locked sessions."""
    rows = [(session_id, to_json(counts).decode()) for session_id, counts in used.items() if counts]
    if rows:
        await connection.execute(ADD_USAGE_SQL, *columns(rows, 2))
