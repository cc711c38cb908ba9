"""Find and write the titles of sessions. Titles of one person are compared as people see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

import asyncpg

from chatlane.domain.sessions.titles import are_alike
from chatlane.errors import SupersededError
from chatlane.postgres.pool import columns

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from chatlane.domain.effects import TitleRow
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Connection

# Titles of a person beyond this number are compared with nothing, oldest first.
_MOST_COMPARED: Final = 2000


class Titled(NamedTuple):
    """A session with a title."""

    id: UUID
    title: str


FIND_TITLES_SQL: Final[LiteralString] = """
-- sessions: the newest titles of owners, and of keys that people share
SELECT titled.id, titled.title FROM unnest($1::text[]) AS want (scope)
CROSS JOIN LATERAL (
    (SELECT id, title FROM sessions WHERE title_scope = want.scope AND title IS NOT NULL
     ORDER BY id DESC LIMIT $2)
    UNION
    -- A title from an import has no scope.
    (SELECT id, title FROM sessions WHERE owner = want.scope AND title IS NOT NULL
     ORDER BY id DESC LIMIT $2)
    UNION
    (SELECT id, title FROM sessions WHERE session_key = want.scope AND title IS NOT NULL
     ORDER BY id DESC LIMIT $2)
) AS titled
"""


async def find_alike(
    connection: Connection, titles: Collection[str], scopes: Collection[str]
) -> list[Titled]:
    """Return the sessions whose titles look like one of these, newest first.

    Args:
        scopes: Owners, and keys of sessions that people share.
    """
    if not titles or not scopes:
        return []
    rows = await connection.fetch(FIND_TITLES_SQL, sorted(set(scopes)), _MOST_COMPARED)
    found = {
        Titled(*row.values())
        for row in rows
        if any(are_alike(title, row["title"]) for title in titles)
    }
    return sorted(found, reverse=True)


IS_OF_PERSON_SQL: Final[LiteralString] = """
-- sessions: whether a person gave a session its title
SELECT title IS NOT NULL AND NOT title_by_model FROM sessions WHERE id = $1
"""


async def is_of_person(connection: Connection, session_id: UUID) -> bool:
    """Return whether a locked session has a title that a person gave."""
    return await connection.fetchval(IS_OF_PERSON_SQL, session_id) is True


SET_TITLE_SQL: Final[LiteralString] = """
-- sessions: set or clear the title of a locked session
UPDATE sessions SET
    title = $2, title_scope = CASE WHEN $2::text IS NULL THEN NULL ELSE $3 END, title_by_model = $4
WHERE id = $1
"""


async def set_title(
    connection: Connection, session: Session, title: str, *, by_model: bool = False
) -> bool:
    """Set the title of a locked session, `""` for none; returns False if another one looks like it.

    Raises:
        SupersededError: Another transaction took the title at the same time.
    """
    scope = session.owner or session.session_key
    alike = await find_alike(connection, [title] if title else [], [scope])
    if any(other.id != session.id for other in alike):
        return False
    try:
        await connection.execute(SET_TITLE_SQL, session.id, title or None, scope, by_model)
    except asyncpg.UniqueViolationError as exc:
        raise SupersededError("titles") from exc
    return True


CLEAR_TITLES_SQL: Final[LiteralString] = """
-- sessions: clear titles first, so that another session can take them
UPDATE sessions SET title = NULL, title_scope = NULL, title_by_model = false WHERE id = ANY($1::uuid[])
"""

WRITE_TITLES_SQL: Final[LiteralString] = """
-- sessions: write the titles of locked sessions
UPDATE sessions SET title = new.title, title_scope = new.scope
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS new (id, title, scope)
WHERE sessions.id = new.id
"""


async def write(connection: Connection, rows: Iterable[TitleRow]) -> None:
    """Write titles; of several titles for one session the last one wins.

    Raises:
        SupersededError: Another transaction took one of the titles meanwhile.
    """
    changed = {row.session_id: row for row in rows}
    if not changed:
        return
    await connection.execute(CLEAR_TITLES_SQL, list(changed))
    given = [row for row in changed.values() if row.title is not None]
    try:
        await connection.execute(WRITE_TITLES_SQL, *columns(given, 3))
    except asyncpg.UniqueViolationError as exc:
        raise SupersededError("titles") from exc
