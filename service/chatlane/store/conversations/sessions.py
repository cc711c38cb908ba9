"""Sessions: conversations with their counters, locked one row each."""

from __future__ import annotations

from dataclasses import fields
from operator import attrgetter
from typing import TYPE_CHECKING, Final, LiteralString

import asyncpg
from pydantic_core import to_json

from chatlane.domain.states import Session
from chatlane.errors import SupersededError
from chatlane.postgres.pool import columns, expect_rows
from chatlane.postgres.stored_values import known_value, read_override, read_reason
from chatlane_schemas.events import EndReason, ResetReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from asyncpg import Record

    from chatlane.domain.effects import Used
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

# The fields of `Session` that are columns. Every statement here names its columns from this tuple
# or a part of it, so a row is mapped by position without a second list.
SESSION_COLUMNS: Final = tuple(
    field.name for field in fields(Session) if not field.name.startswith(("is_", "has_"))
)
_COUNTERS: Final = (
    *("id", "agent", "last_activity_at", "active_turn", "next_seq", "next_arrival"),
    *("next_out_seq", "user_messages", "owner", "answers", "asked_turn_ended_at"),
    *("staff_until", "last_message_at"),
)
_ENDS: Final = ("id", "ended_at", "end_reason", "parent_id", "link_kind")
_FLAGS: Final = (
    *("id", "suspended_at", "resume_marked_at", "resume_reason", "carry_over", "opening_note"),
    *("reset_had_activity", "told_in", "interruptions"),
)
_INSERTED: Final = tuple(
    name
    for name in SESSION_COLUMNS
    if name not in {*_FLAGS[1:], "held_until", "model_override", "answers"}
)
_TYPES: Final = (
    dict.fromkeys(SESSION_COLUMNS, "text")
    | dict.fromkeys(("id", "parent_id", "active_turn", "told_in"), "uuid")
    | dict.fromkeys(("next_seq", "next_arrival", "next_out_seq", "user_messages"), "bigint")
    | {"answers": "bigint", "interruptions": "int", "reset_had_activity": "boolean"}
    | {"read_only": "boolean"}
    | dict.fromkeys((name for name in SESSION_COLUMNS if name.endswith("_at")), "timestamptz")
    | {"served_boundary": "timestamptz", "held_until": "timestamptz"}
    | {"staff_until": "timestamptz"}
)


def _new_rows(names: Sequence[str]) -> str:
    arrays = ", ".join(f"${place}::{_TYPES[name]}[]" for place, name in enumerate(names, 1))
    return f"unnest({arrays}) AS new ({', '.join(names)})"


def _update(names: Sequence[str]) -> str:
    values = ", ".join(f"{name} = new.{name}" for name in names[1:])
    return f"UPDATE sessions SET {values} FROM {_new_rows(names)} WHERE sessions.id = new.id"  # noqa: S608 - constants


LOCK_SESSIONS_SQL: Final = f"""
-- sessions: lock sessions in the order of their ids
SELECT {", ".join(SESSION_COLUMNS)}
FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""  # noqa: S608 - constants


async def lock(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, Session]:
    """Return the sessions by id, locked until the transaction ends; unknown ids are absent."""
    wanted = list(ids)
    rows = await connection.fetch(LOCK_SESSIONS_SQL, wanted) if wanted else []
    return {row["id"]: _from_row(row) for row in rows}


FIND_SESSION_SQL: Final = f"""
-- sessions: read one session without a lock
SELECT {", ".join(SESSION_COLUMNS)}
FROM sessions WHERE id = $1
"""  # noqa: S608 - constants


async def find(connection: Connection, session_id: UUID) -> Session | None:
    """Return a session without locking it: its values may be outdated."""
    row = await connection.fetchrow(FIND_SESSION_SQL, session_id)
    return None if row is None else _from_row(row)


LOCK_FREE_SESSIONS_SQL: Final = f"""
-- sessions: lock the sessions that no other transaction has locked
SELECT {", ".join(SESSION_COLUMNS)}
FROM sessions WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - constants


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


INSERT_SESSIONS_SQL: Final = f"""
-- sessions: insert new sessions
INSERT INTO sessions ({", ".join(_INSERTED)})
SELECT * FROM {_new_rows(_INSERTED)}
ON CONFLICT (id) DO NOTHING
"""  # noqa: S608 - constants


async def insert(connection: Connection, sessions: Iterable[Session]) -> None:
    """Write new sessions.

    Raises:
        SupersededError: The same trigger already opened one of them.
    """
    new = list(sessions)
    if not new:
        return
    status = await connection.execute(INSERT_SESSIONS_SQL, *_values(new, _INSERTED))
    expect_rows(status, new, "sessions")
    await _flag(connection, new)


def _values(sessions: Iterable[Session], names: Sequence[str]) -> list[list[object]]:
    return columns(map(attrgetter(*names), sessions), len(names))


UPDATE_SESSIONS_SQL: Final = f"""
-- sessions: update counters and state of locked sessions. Of the indexed columns only the agent
-- (after a change of the settings) and the owner change here; the key in `SHARE_SESSIONS_SQL`.
{_update(_COUNTERS)}
"""

END_SESSIONS_SQL: Final = f"""
-- sessions: write the end of locked sessions
{_update(_ENDS)}
"""


async def update(connection: Connection, sessions: Iterable[Session]) -> None:
    """Write sessions that this transaction has locked."""
    changed = list(sessions)
    if not changed:
        return
    await connection.execute(UPDATE_SESSIONS_SQL, *_values(changed, _COUNTERS))
    await _share(connection, changed)
    await _flag(connection, changed)
    ended = [session for session in changed if session.ended_at is not None]
    if ended:
        await connection.execute(END_SESSIONS_SQL, *_values(ended, _ENDS))


LOCK_SUMMED_UP_SQL: Final[LiteralString] = """
-- sessions: lock the compacted ancestors of locked sessions, or fail at once
WITH RECURSIVE parent (id, hops) AS (
    SELECT parent_id, 0 FROM sessions WHERE id = ANY($1::uuid[]) AND link_kind = 'compression'
    UNION ALL
    SELECT parent_id, hops + 1 FROM parent JOIN sessions USING (id)
    WHERE link_kind = 'compression' AND hops < 64
)
SELECT id FROM sessions WHERE id = ANY(SELECT id FROM parent) ORDER BY id FOR NO KEY UPDATE NOWAIT
"""

SHARE_SESSIONS_SQL: Final[LiteralString] = """
-- sessions: give shared sessions and their compacted ancestors the new key; a title stays if it
-- is unique under that key
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


FLAG_SESSIONS_SQL: Final = f"""
-- sessions: update the rarely set columns of locked or inserted sessions: suspension, interruption,
-- notes and announcements
{_update(_FLAGS)}
"""  # noqa: S608 - constants


async def _flag(connection: Connection, sessions: list[Session]) -> None:
    flagged = [session for session in sessions if session.has_new_flags]
    if flagged:
        await connection.execute(FLAG_SESSIONS_SQL, *_values(flagged, _FLAGS))


ADD_USAGE_SQL: Final[LiteralString] = """
-- sessions: add counts and amounts of results to the sums of locked sessions, and replace gauges;
-- new names only while there are few
UPDATE sessions SET
    usage = (
        SELECT jsonb_object_agg(name, total) FROM (
            SELECT name, least(sum(count), 9223372036854775807) AS total FROM (
                SELECT key AS name, value::numeric AS count, true AS is_known
                FROM jsonb_each_text(coalesce(sessions.usage, '{}'))
                UNION ALL
                SELECT key, value::numeric, false FROM jsonb_each_text(new.usage)
            ) AS counted
            GROUP BY name ORDER BY bool_or(is_known) DESC, name LIMIT 64
        ) AS summed),
    costs = CASE WHEN new.costs IS NULL THEN sessions.costs ELSE (
        SELECT jsonb_object_agg(name, total::text) FROM (
            SELECT name, least(sum(amount), 1000000000000) AS total FROM (
                SELECT key AS name, value::numeric AS amount, true AS is_known
                FROM jsonb_each_text(coalesce(sessions.costs, '{}'))
                UNION ALL
                SELECT key, value::numeric, false FROM jsonb_each_text(new.costs)
            ) AS counted
            GROUP BY name ORDER BY bool_or(is_known) DESC, name LIMIT 64
        ) AS summed) END,
    gauges = CASE WHEN new.gauges IS NULL THEN sessions.gauges ELSE (
        SELECT jsonb_object_agg(key, value) FROM (
            SELECT key, value FROM jsonb_each(coalesce(sessions.gauges, '{}') || new.gauges)
            ORDER BY coalesce(sessions.gauges, '{}') ? key DESC, key LIMIT 64
        ) AS latest) END
FROM unnest($1::uuid[], $2::jsonb[], $3::jsonb[], $4::jsonb[]) AS new (id, usage, costs, gauges)
WHERE sessions.id = new.id
"""


async def add_usage(connection: Connection, used: Mapping[UUID, Used]) -> None:
    """Add what results used to the sums of locked sessions."""
    rows = [
        (
            session_id,
            to_json(used_there.counts).decode(),
            to_json(used_there.costs).decode() if used_there.costs else None,
            to_json(used_there.gauges).decode() if used_there.gauges else None,
        )
        for session_id, used_there in used.items()
    ]
    if rows:
        await connection.execute(ADD_USAGE_SQL, *columns(rows, 4))
