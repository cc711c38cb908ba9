"""SQL of the import: insert whole sessions, and map old keys to lanes."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple
from uuid import UUID

from chatlane_schemas.session_api.sessions import CHAT_ORIGIN

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy


class AdoptedSession(NamedTuple):
    """An imported session with the counters of its transcript.

    `config`, `usage` and `costs` are JSON text.
    """

    id: UUID
    session_key: str
    agent: str
    platform: str
    parent_id: UUID | None
    link_kind: str | None
    started_at: datetime
    ended_at: datetime | None
    end_reason: str | None
    last_activity_at: datetime | None
    last_message_at: datetime | None
    next_seq: int
    user_messages: int
    title: str | None
    cwd: str | None
    model: str | None
    config: str | None
    usage: str | None
    costs: str | None
    origin: str = CHAT_ORIGIN
    owner: str | None = None
    archived_at: datetime | None = None
    pinned_at: datetime | None = None
    read_only: bool = False


SIZE_OF_IMPORTS_SQL: Final[LiteralString] = """
-- sessions → messages: how much a person has imported
SELECT count(*), coalesce(sum(octet_length(content)), 0)
FROM sessions JOIN messages ON messages.session_id = sessions.id
WHERE sessions.owner = $1 AND sessions.origin = ANY($2::text[])
"""


class ImportSize(NamedTuple):
    """Messages of imported conversations, and the bytes of their texts."""

    messages: int
    text_bytes: int


async def size_of_imports(
    connection: "PoolConnectionProxy", owner: str, origins: "Iterable[str]"
) -> ImportSize:
    """Return how much a person has imported from some programs."""
    [row] = await connection.fetch(SIZE_OF_IMPORTS_SQL, owner, sorted(origins))
    return ImportSize(int(row[0]), int(row[1]))


INSERT_SESSION_SQL: Final[LiteralString] = """
-- adoption: insert an imported session, unless it exists
INSERT INTO sessions (
    id, session_key, agent, platform, parent_id, link_kind, started_at, ended_at, end_reason,
    last_activity_at, last_message_at, next_seq, user_messages, title, cwd, model, config, usage,
    costs, origin, owner, archived_at, pinned_at, read_only)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
        $17::jsonb, $18::jsonb, $19::jsonb, $20, $21, $22, $23, $24)
ON CONFLICT (id) DO NOTHING
"""


async def insert(connection: "PoolConnectionProxy", session: AdoptedSession) -> None:
    """Insert a session."""
    await connection.execute(INSERT_SESSION_SQL, *session)


GROW_SESSION_SQL: Final[LiteralString] = """
-- adoption: count the new rows of an imported session
UPDATE sessions SET
    next_seq = $2, user_messages = user_messages + $3,
    last_activity_at = greatest(last_activity_at, $4),
    last_message_at = greatest(last_message_at, $5),
    title = coalesce(title, $6)
WHERE id = $1
"""


async def grow(  # noqa: PLR0917 - the columns that new rows change
    connection: "PoolConnectionProxy",
    session_id: UUID,
    next_seq: int,
    user_messages: int,
    active_at: datetime | None,
    last_message_at: datetime | None,
    title: str | None = None,
) -> None:
    """Add new rows to the counters of a locked session; gives it a title if it has none."""
    await connection.execute(
        GROW_SESSION_SQL, session_id, next_seq, user_messages, active_at, last_message_at, title
    )


FIND_MESSAGES_SQL: Final[LiteralString] = """
-- adoption: the rows that were imported before
SELECT id FROM messages WHERE id = ANY($1::uuid[])
"""


async def known_messages(connection: "PoolConnectionProxy", ids: Sequence[UUID]) -> set[UUID]:
    """Return the ids that already exist as messages."""
    return {row[0] for row in await connection.fetch(FIND_MESSAGES_SQL, ids)}


INSERT_LANE_SQL: Final[LiteralString] = """
-- adoption: insert a lane, unless its key has one
INSERT INTO lanes (session_key, session_id) VALUES ($1, $2) ON CONFLICT (session_key) DO NOTHING
"""


async def bind(connection: "PoolConnectionProxy", session_key: str, session_id: UUID) -> bool:
    """Create a lane for a session; returns False if the key already has one."""
    return await connection.execute(INSERT_LANE_SQL, session_key, session_id) == "INSERT 0 1"


INSERT_ALIAS_SQL: Final[LiteralString] = """
-- adoption: insert an old key of a lane
INSERT INTO lane_aliases (alias, session_key) VALUES ($1, $2) ON CONFLICT (alias) DO NOTHING
"""

FIND_ALIAS_SQL: Final[LiteralString] = """
-- adoption: the lane of an old key
SELECT session_key FROM lane_aliases WHERE alias = $1
"""


class Kept(Enum):
    """Result of storing an old key as an alias of a lane."""

    NEW = auto()
    KNOWN = auto()
    ELSEWHERE = auto()


async def keep_alias(connection: "PoolConnectionProxy", alias: str, session_key: str) -> Kept:
    """Store an old key as an alias of a lane, unless it is an alias of another lane."""
    if await connection.execute(INSERT_ALIAS_SQL, alias, session_key) == "INSERT 0 1":
        return Kept.NEW
    known = await connection.fetchval(FIND_ALIAS_SQL, alias)
    return Kept.KNOWN if known == session_key else Kept.ELSEWHERE


def chunks(rows: Sequence[object], size: int) -> Iterable[slice]:
    """Yield slices that cover `rows`, so that no statement exceeds its timeout."""
    return (slice(start, start + size) for start in range(0, len(rows), size))
