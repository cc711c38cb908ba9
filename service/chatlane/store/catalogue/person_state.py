"""Read and write what people have typed and read in their sessions.

The rows have the owner of the session, so that the next owner of the session does not see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane_schemas.session_api.session_marks import Draft

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.sessions import SessionView

_MOST_COUNTED: Final = 100

HOLD_SQL: Final[LiteralString] = """
-- sessions: the owner and the last row of a session, which cannot be removed meanwhile
SELECT owner, next_seq - 1 AS last_seq FROM sessions
WHERE id = $1 AND owner = ANY($2::text[]) FOR KEY SHARE
"""


async def hold(
    connection: Connection, session_id: UUID, owners: Collection[str]
) -> tuple[str, int] | None:
    """Return the owner and the last place of a session of a person; None for another's session.

    The session cannot be removed before the end of the transaction, and is not locked otherwise.
    """
    row = await connection.fetchrow(HOLD_SQL, session_id, sorted(owners))
    return None if row is None else (row["owner"], row["last_seq"])


KEEP_DRAFT_SQL: Final[LiteralString] = """
-- drafts: keep a draft, unless it would replace a text that its writer has not seen
INSERT INTO drafts (session_id, owner, text, changed_at) VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (session_id, owner) DO UPDATE SET
    text = excluded.text,
    changed_at = greatest(excluded.changed_at, drafts.changed_at + interval '1 microsecond')
WHERE drafts.changed_at = $4 OR drafts.text = excluded.text
RETURNING changed_at
"""


async def keep_draft(
    connection: Connection, session_id: UUID, owner: str, text: str, replaces: datetime | None
) -> datetime | None:
    """Keep a draft and return its time; None if another text is there than the replaced one."""
    at: datetime | None = await connection.fetchval(
        KEEP_DRAFT_SQL, session_id, owner, text, replaces
    )
    return at


REMOVE_DRAFT_SQL: Final[LiteralString] = """
-- drafts: remove a draft, unless its text is one that the caller has not seen
WITH gone AS (
    DELETE FROM drafts WHERE session_id = $1 AND owner = $2 AND changed_at = $3
)
SELECT NOT EXISTS (
    SELECT FROM drafts WHERE session_id = $1 AND owner = $2 AND changed_at IS DISTINCT FROM $3)
"""


async def remove_draft(
    connection: Connection, session_id: UUID, owner: str, replaces: datetime | None
) -> bool:
    """Remove a draft; return False if another one is there than the named one."""
    is_gone: bool = await connection.fetchval(REMOVE_DRAFT_SQL, session_id, owner, replaces)
    return is_gone


MARK_READ_SQL: Final[LiteralString] = """
-- read_marks: move the mark of a person forwards, and return where it is
WITH moved AS (
    INSERT INTO read_marks (session_id, owner, through_seq, read_at)
    VALUES ($1, $2, $3, clock_timestamp())
    ON CONFLICT (session_id, owner) DO UPDATE SET
        through_seq = excluded.through_seq, read_at = excluded.read_at
    WHERE read_marks.through_seq < excluded.through_seq
    RETURNING through_seq
)
SELECT greatest(
    (SELECT through_seq FROM moved),
    (SELECT through_seq FROM read_marks WHERE session_id = $1 AND owner = $2))
"""


async def mark_read(connection: Connection, session_id: UUID, owner: str, through_seq: int) -> int:
    """Move the mark of a person forwards, and return where it is."""
    place: int = await connection.fetchval(MARK_READ_SQL, session_id, owner, through_seq)
    return place


DRAFT_SQL: Final[LiteralString] = """
-- sessions → drafts: what the owner of a session has typed
SELECT drafts.text, drafts.changed_at
FROM sessions JOIN drafts ON drafts.session_id = sessions.id AND drafts.owner = sessions.owner
WHERE sessions.id = $1
"""


async def with_draft(connection: Connection, view: SessionView) -> SessionView:
    """Return the view of a session with the draft of its owner."""
    row = await connection.fetchrow(DRAFT_SQL, view.id)
    if row is None:
        return view
    draft = Draft(text=row["text"], changed_at=row["changed_at"])
    return view.model_copy(update={"draft": draft})


UNREAD_SQL: Final[LiteralString] = """
-- sessions → messages → read_marks: how many answers the owners of sessions have not read
SELECT sessions.id, (
    SELECT count(*) FROM (
        SELECT FROM messages
        WHERE messages.session_id = sessions.id AND seq > read_marks.through_seq
          AND role = 'assistant' AND content <> '' AND state IS DISTINCT FROM 'deleted'
        LIMIT $2) AS found)
FROM unnest($1::uuid[]) AS want (id)
JOIN sessions ON sessions.id = want.id
JOIN read_marks ON read_marks.session_id = want.id AND read_marks.owner = sessions.owner
"""


async def with_unread(
    connection: Connection, views: Collection[SessionView]
) -> tuple[SessionView, ...]:
    """Return views of sessions with the number of answers that their owners have not read."""
    ids = [view.id for view in views]
    rows = await connection.fetch(UNREAD_SQL, ids, _MOST_COUNTED) if ids else []
    unread: dict[UUID, int] = {row[0]: row[1] for row in rows}
    return tuple(
        view.model_copy(update={"unread": unread[view.id]}) if view.id in unread else view
        for view in views
    )
