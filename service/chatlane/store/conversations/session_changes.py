"""Change what only requests and commands change of a session: settings, title, holds and others.

Callers hold the row lock of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from pydantic_core import from_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from uuid import UUID

    from pydantic import JsonValue

    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Connection

FIND_CONFIG_SQL: Final[LiteralString] = """
-- sessions: the config of a locked session
SELECT config FROM sessions WHERE id = $1
"""


async def find_config(connection: Connection, session_id: UUID) -> dict[str, JsonValue] | None:
    """Return the config of a locked session; None if it has none."""
    config: str | None = await connection.fetchval(FIND_CONFIG_SQL, session_id)
    return None if config is None else from_json(config)


UPDATE_PREFERENCES_SQL: Final[LiteralString] = """
-- sessions: set or clear the settings; NULL keeps a setting
UPDATE sessions SET
    cwd = CASE WHEN 'cwd' = ANY($5::text[]) THEN NULL ELSE coalesce($2, cwd) END,
    model = CASE WHEN 'model' = ANY($5::text[]) THEN NULL ELSE coalesce($3, model) END,
    config = CASE WHEN 'config' = ANY($5::text[]) THEN NULL ELSE coalesce($4::jsonb, config) END
WHERE id = $1
"""


async def update_preferences(
    connection: Connection,
    session_id: UUID,
    *,
    cwd: str | None,
    model: str | None,
    config: str | None,
    clear: Iterable[str],
) -> None:
    """Set the given columns and clear the named ones; `config` is JSON text."""
    await connection.execute(UPDATE_PREFERENCES_SQL, session_id, cwd, model, config, list(clear))


DESCRIBE_SQL: Final[LiteralString] = """
-- sessions: origin and settings of a session that a request opened
UPDATE sessions SET origin = $2, cwd = $3, model = $4, config = $5::jsonb WHERE id = $1
"""


async def describe(
    connection: Connection,
    session_id: UUID,
    *,
    origin: str,
    cwd: str | None,
    model: str | None,
    config: str | None,
) -> None:
    """Write the origin and the initial settings of a new session; `config` is JSON text."""
    await connection.execute(DESCRIBE_SQL, session_id, origin, cwd, model, config)


PIN_SQL: Final[LiteralString] = """
-- sessions: pin a session and keep the time, or unpin it
UPDATE sessions SET pinned_at = CASE WHEN $2 THEN coalesce(pinned_at, $3) END WHERE id = $1
"""


async def pin(connection: Connection, session_id: UUID, at: datetime, *, pinned: bool) -> None:
    """Pin a locked session, or unpin it."""
    await connection.execute(PIN_SQL, session_id, pinned, at)


LABEL_SQL: Final[LiteralString] = """
-- sessions: replace the labels of a session
UPDATE sessions SET labels = nullif($2::text[], '{}') WHERE id = $1
"""


async def label(connection: Connection, session_id: UUID, labels: Iterable[str]) -> None:
    """Replace the labels of a locked session."""
    await connection.execute(LABEL_SQL, session_id, list(labels))


NOTE_WORKTREE_SQL: Final[LiteralString] = """
-- sessions: note the working copy of a session, or forget it
UPDATE sessions SET worktree = $2::jsonb WHERE id = $1
"""


async def note_worktree(connection: Connection, session_id: UUID, worktree: str | None) -> None:
    """Note the working copy of a locked session as JSON, or forget it."""
    await connection.execute(NOTE_WORKTREE_SQL, session_id, worktree)


PROTECT_SQL: Final[LiteralString] = """
-- sessions: make a session read only, or take that back
UPDATE sessions SET read_only = $2 WHERE id = $1
"""


async def protect(connection: Connection, session_id: UUID, *, read_only: bool) -> None:
    """Make a locked session read only, or take that back."""
    await connection.execute(PROTECT_SQL, session_id, read_only)


ARCHIVE_SQL: Final[LiteralString] = """
-- sessions: archive a session and keep the time, or restore it
UPDATE sessions SET archived_at = CASE WHEN $2 THEN coalesce(archived_at, $3) END WHERE id = $1
"""


async def archive(
    connection: Connection, session_id: UUID, at: datetime, *, archived: bool
) -> None:
    """Archive a locked session, or unarchive it."""
    await connection.execute(ARCHIVE_SQL, session_id, archived, at)


REOPEN_SQL: Final[LiteralString] = """
-- sessions: reopen a session
UPDATE sessions SET
    ended_at = NULL, end_reason = NULL, last_activity_at = $2, served_boundary = $3,
    suspended_at = NULL, resume_marked_at = NULL, resume_reason = NULL,
    interruptions = 0, check_at = clock_timestamp(), ending_at = NULL
WHERE id = $1
"""


async def reopen(connection: Connection, session: Session) -> None:
    """Write a locked session that was reopened."""
    await connection.execute(
        REOPEN_SQL, session.id, session.last_activity_at, session.served_boundary
    )


HOLD_SQL: Final[LiteralString] = """
-- session_holds: set or renew a hold
INSERT INTO session_holds (session_id, name, held_until) VALUES ($1, $2, $3)
ON CONFLICT (session_id, name) DO UPDATE SET held_until = excluded.held_until
"""

RELEASE_SQL: Final[LiteralString] = """
-- session_holds: delete a hold and the expired ones
DELETE FROM session_holds WHERE session_id = $1 AND (name = $2 OR held_until <= $3)
"""

COUNT_HOLDS_SQL: Final[LiteralString] = """
-- session_holds: count the other holds of a session
SELECT count(*) FROM session_holds WHERE session_id = $1 AND name <> $2
"""

HELD_UNTIL_SQL: Final[LiteralString] = """
-- sessions: write the end of the last hold
UPDATE sessions SET held_until = (
    SELECT max(held_until) FROM session_holds WHERE session_id = $1)
WHERE id = $1
"""


async def hold(
    connection: Connection,
    session_id: UUID,
    name: str,
    *,
    now: datetime,
    until: datetime,
    most: int,
) -> bool:
    """Set or renew a hold of a locked session; returns False if it has `most` other holds."""
    await connection.execute(RELEASE_SQL, session_id, name, now)
    if await connection.fetchval(COUNT_HOLDS_SQL, session_id, name) >= most:
        return False
    await connection.execute(HOLD_SQL, session_id, name, until)
    await connection.execute(HELD_UNTIL_SQL, session_id)
    return True


async def release(connection: Connection, session_id: UUID, name: str, now: datetime) -> None:
    """End the hold of a locked session with this name, if there is one."""
    await connection.execute(RELEASE_SQL, session_id, name, now)
    await connection.execute(HELD_UNTIL_SQL, session_id)


OVERRIDE_SQL: Final[LiteralString] = """
-- sessions: write the model override
UPDATE sessions SET model_override = $2::jsonb WHERE id = $1
"""


async def override(connection: Connection, session_id: UUID, model_override: str | None) -> None:
    """Set or clear the model override of a locked session; it is JSON text."""
    await connection.execute(OVERRIDE_SQL, session_id, model_override)
