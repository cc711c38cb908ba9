"""Edits and deletes of routed messages that their stream does not reflect yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.turns.retries import PersonRow
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from chatlane.domain.effects import RoutedChange
    from chatlane.postgres.pool import Connection

NOTE_SQL: Final[LiteralString] = """
-- routed_changes: record changed messages
INSERT INTO routed_changes (message_id, session_id)
SELECT * FROM unnest($1::uuid[], $2::uuid[]) AS new (message_id, session_id)
ORDER BY message_id
ON CONFLICT DO NOTHING
"""


async def note(connection: Connection, changes: Sequence[RoutedChange]) -> None:
    """Record changed messages of locked sessions."""
    if changes:
        await connection.execute(NOTE_SQL, *columns(changes, 2))


PENDING_SQL: Final[LiteralString] = """
-- routed_changes: the sessions of the oldest changes
SELECT session_id FROM routed_changes ORDER BY noted_at LIMIT $1
"""


async def pending(connection: Connection, limit: int) -> list[UUID]:
    """Return the sessions of the `limit` oldest changes, each once, oldest change first."""
    return list(dict.fromkeys(row[0] for row in await connection.fetch(PENDING_SQL, limit)))


UNANSWERED_SQL: Final[LiteralString] = """
-- routed_changes: unanswered routed messages of a session from the first changed one on
WITH changed AS (
    SELECT message_id FROM routed_changes WHERE session_id = $1
), first AS (
    SELECT min(seq) AS seq FROM messages JOIN changed ON messages.id = changed.message_id
    WHERE session_id = $1
), talk AS (
    -- Answers come in the order of the messages: all before the last answered one are done.
    SELECT coalesce((
        SELECT question.seq FROM messages AS answer
        JOIN messages AS question ON question.id = answer.reply_to
        WHERE answer.session_id = $1 AND answer.reply_to IS NOT NULL
        ORDER BY answer.seq DESC LIMIT 1), 0) AS answered
)
SELECT id, messages.seq, content, details::text, author, platform_message_id, source::text,
       created_at, state IS NOT DISTINCT FROM 'deleted' AS is_deleted,
       id IN (SELECT message_id FROM changed) AS is_changed
FROM messages CROSS JOIN first CROSS JOIN talk
WHERE session_id = $1 AND messages.seq >= first.seq AND messages.seq > talk.answered
  AND role = 'user' AND id IS NOT NULL AND turn_id IS NULL AND unanswered IS NULL
  AND (details ? 'observed') IS NOT TRUE
  AND (source IS NOT NULL OR state = 'deleted')
ORDER BY messages.seq LIMIT $2
"""


class RoutedRow(NamedTuple):
    """A routed message as stored in the transcript.

    Attributes:
        is_changed: Whether it was edited or deleted since it was routed.
    """

    id: UUID
    seq: int
    stored: PersonRow
    is_deleted: bool
    is_changed: bool

    @property
    def is_edited(self) -> bool:
        """Return whether the message still exists with another text than the routed one."""
        return self.is_changed and not self.is_deleted


async def unanswered(connection: Connection, session_id: UUID, limit: int) -> list[RoutedRow]:
    """Return the unanswered messages of a session, from its first changed message on."""
    rows = await connection.fetch(UNANSWERED_SQL, session_id, limit)
    return [
        RoutedRow(
            row["id"], row["seq"], PersonRow(*tuple(row)[2:8]), row["is_deleted"], row["is_changed"]
        )
        for row in rows
    ]


SETTLE_SQL: Final[LiteralString] = """
-- routed_changes: delete the changes of a session that the stream reflects
DELETE FROM routed_changes WHERE session_id = $1
"""


async def settle(connection: Connection, session_id: UUID) -> None:
    """Delete the recorded changes of a locked session."""
    await connection.execute(SETTLE_SQL, session_id)
