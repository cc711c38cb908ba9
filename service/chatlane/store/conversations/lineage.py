"""Lineage of sessions: the successors of compacted sessions, and branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.sessions.transcripts import MAX_HOPS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Connection

FIND_TIPS_SQL: Final[LiteralString] = """
-- sessions: the sessions in which compacted conversations continue
WITH RECURSIVE chain (start, id, owner, has_ended, hops) AS (
    SELECT id, id, owner, ended_at IS NOT NULL, 0 FROM sessions WHERE id = ANY($1::uuid[])
    UNION ALL
    SELECT chain.start, heir.id, heir.owner, heir.has_ended, chain.hops + 1
    FROM chain CROSS JOIN LATERAL (
        SELECT child.id, child.owner, child.ended_at IS NOT NULL AS has_ended
        FROM sessions AS child
        WHERE child.parent_id = chain.id AND child.link_kind = 'compression'
          -- A link to another person's session is damaged, and not followed.
          AND (chain.owner IS NULL OR child.owner = chain.owner)
        -- Of two children the one that was compacted again, then the open one.
        ORDER BY child.end_reason IS NOT DISTINCT FROM 'compression' DESC,
                 child.ended_at IS NULL DESC, child.id DESC
        LIMIT 1
    ) AS heir
    -- The bound also ends a cycle.
    WHERE chain.has_ended AND chain.hops < $2
)
SELECT DISTINCT ON (start) start, id FROM chain ORDER BY start, hops DESC
"""


async def find_tips(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Return, for each known session, the session its conversation continues in, often itself.

    Locks nothing: call it before the lock, and check the locked row.
    """
    rows = await connection.fetch(FIND_TIPS_SQL, list(ids), MAX_HOPS)
    return {row["start"]: row["id"] for row in rows}


FIND_LAST_ROW_SQL: Final[LiteralString] = """
-- messages: the last row up to a place
SELECT seq FROM messages WHERE session_id = $1 AND seq <= $2 ORDER BY seq DESC LIMIT 1
"""


async def find_last_row(connection: Connection, session_id: UUID, through_seq: int) -> int | None:
    """Return the place of the last row up to a place; None if there is none."""
    seq: int | None = await connection.fetchval(FIND_LAST_ROW_SQL, session_id, through_seq)
    return seq


INSERT_BRANCH_SQL: Final[LiteralString] = """
-- messages → sessions: insert a branch with the rows and settings of its parent
WITH copied AS (
    -- A routed message is one row only, so a copy has neither its id nor its answer's; and the
    -- turn that runs on the parent is not one of the branch.
    INSERT INTO messages (
        session_id, seq, role, content, details, author, platform_message_id, source, turn_id,
        created_at, state, unanswered)
    SELECT $2, seq, role, content, details, author, platform_message_id, source,
           nullif(turn_id, $7), created_at, state, unanswered
    FROM messages WHERE session_id = $1 AND seq < $6
    RETURNING role, details
), counted AS (
    SELECT count(*) AS every, count(*) FILTER (
        WHERE role = 'user' AND (details ? 'observed') IS NOT TRUE) AS of_people
    FROM copied
)
INSERT INTO sessions (
    id, session_key, agent, platform, parent_id, link_kind, started_at, last_activity_at,
    served_boundary, next_seq, seq_gaps, user_messages, owner, cwd, model, config, origin,
    model_override, project_id, labels, room)
SELECT $2, $3, agent, $8, id, 'branch', $4, $4, $5, $6::bigint, $6 - 1 - every, of_people,
       owner, cwd, model, config, origin, model_override, project_id, labels, $9
FROM sessions CROSS JOIN counted WHERE id = $1
"""


async def insert_branch(connection: Connection, parent: Session, branch: Session) -> None:
    """Write a branch with the rows of its parent below the branch's `next_seq`.

    The parent is locked, and all of its rows are written.
    """
    await connection.execute(
        INSERT_BRANCH_SQL,
        parent.id,
        branch.id,
        branch.session_key,
        branch.started_at,
        branch.served_boundary,
        branch.next_seq,
        parent.active_turn,
        branch.platform,
        branch.room,
    )
    branch.is_new = False
