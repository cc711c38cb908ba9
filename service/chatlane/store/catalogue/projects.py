"""Read and write the folders of people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

import asyncpg

from chatlane.errors import SupersededError
from chatlane.postgres.pool import count_of
from chatlane_schemas.session_api.projects import PROJECT_COLOUR, Project
from chatlane_schemas.session_api.session_marks import SCHEDULED_ORIGIN, SCHEDULED_PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from uuid import UUID

    from chatlane.postgres.pool import Connection

_MOST_COUNTED: Final = 10_000
_BUILT_IN_NAME: Final = "Scheduled jobs"


class StoredProject(NamedTuple):
    """A folder of a person with its owner."""

    owner: str
    project: Project


FIND_ALL_SQL: Final[LiteralString] = """
-- projects: the folders of owners, in their order
SELECT owner, id, name, colour, profile, created_at FROM projects
WHERE owner = ANY($1::text[]) AND ($2::text IS NULL OR profile IS NULL OR profile = $2)
ORDER BY place, created_at, id
"""


async def find_all(
    connection: Connection, owners: Iterable[str], profile: str | None = None
) -> list[StoredProject]:
    """Return the folders of a person in their order, without the built-in folder and without counts.

    Args:
        owners: The owner texts of the person.
        profile: Only folders for this profile, and those for all; None for every folder.
    """
    rows = await connection.fetch(FIND_ALL_SQL, sorted(owners), profile)
    return [StoredProject(row["owner"], _project(row)) for row in rows]


OWNER_SQL: Final[LiteralString] = """
-- projects: whose folder it is
SELECT owner FROM projects WHERE id = $1
"""


async def find_owner(connection: Connection, project_id: UUID) -> str | None:
    """Return the owner of a folder; None if there is no such folder."""
    owner: str | None = await connection.fetchval(OWNER_SQL, project_id)
    return owner


COUNT_SQL: Final[LiteralString] = """
-- projects → sessions: how many sessions of owners are in folders
SELECT want.id, (
    SELECT count(*) FROM (
        SELECT FROM sessions
        WHERE project_id = want.id AND owner = ANY($2::text[]) AND archived_at IS NULL
          AND end_reason IS DISTINCT FROM 'compression'
        LIMIT $3) AS found)
FROM unnest($1::uuid[]) AS want (id)
"""
COUNT_SCHEDULED_SQL: Final[LiteralString] = """
-- projects → sessions: how many sessions of owners are in the built-in folder
SELECT count(*) FROM (
    SELECT FROM sessions
    WHERE origin = $2 AND origin <> 'chat' AND owner = ANY($1::text[]) AND archived_at IS NULL
      AND end_reason IS DISTINCT FROM 'compression'
      AND NOT EXISTS (SELECT FROM projects WHERE projects.id = sessions.project_id)
    LIMIT $3) AS found
"""


async def with_counts(
    connection: Connection, owners: Iterable[str], projects: Sequence[Project]
) -> tuple[Project, ...]:
    """Return folders with the number of their sessions, and the built-in folder if it has any."""
    texts = sorted(owners)
    ids = [project.id for project in projects]
    found = await connection.fetch(COUNT_SQL, ids, texts, _MOST_COUNTED)
    counts: dict[UUID, int] = {row[0]: row[1] for row in found}
    counted = [project.model_copy(update={"sessions": counts[project.id]}) for project in projects]
    scheduled: int = await connection.fetchval(
        COUNT_SCHEDULED_SQL, texts, SCHEDULED_ORIGIN, _MOST_COUNTED
    )
    if scheduled:
        counted.append(
            Project(
                id=SCHEDULED_PROJECT,
                name=_BUILT_IN_NAME,
                colour=PROJECT_COLOUR,
                sessions=scheduled,
                is_built_in=True,
            )
        )
    return tuple(counted)


INSERT_SQL: Final[LiteralString] = """
-- projects: add a folder behind the others of its owner
INSERT INTO projects (id, owner, name, colour, profile, place)
SELECT $1, $2, $3, $4, $5, coalesce(max(place), 0) + 1 FROM projects WHERE owner = ANY($6::text[])
RETURNING id, name, colour, profile, created_at
"""


async def insert(
    connection: Connection, owner: str, owners: Iterable[str], project: Project
) -> Project:
    """Add a folder behind the others of a person.

    Raises:
        SupersededError: Another transaction took the name at the same time.
    """
    try:
        [row] = await connection.fetch(
            INSERT_SQL,
            project.id,
            owner,
            project.name,
            project.colour,
            project.profile,
            sorted(owners),
        )
    except asyncpg.UniqueViolationError as exc:
        raise SupersededError("projects") from exc
    return _project(row)


UPDATE_SQL: Final[LiteralString] = """
-- projects: rename a folder, or change its colour
UPDATE projects SET name = coalesce($2, name), colour = coalesce($3, colour) WHERE id = $1
RETURNING id, name, colour, profile, created_at
"""


async def update(
    connection: Connection, project_id: UUID, name: str | None, colour: str | None
) -> Project | None:
    """Rename a folder or change its colour; return None if it is gone.

    Raises:
        SupersededError: Another transaction took the name at the same time.
    """
    try:
        row = await connection.fetchrow(UPDATE_SQL, project_id, name, colour)
    except asyncpg.UniqueViolationError as exc:
        raise SupersededError("projects") from exc
    return None if row is None else _project(row)


ARRANGE_SQL: Final[LiteralString] = """
-- projects: write the places of folders
WITH locked AS (
    SELECT id FROM projects WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE
)
UPDATE projects SET place = new.place
FROM unnest($1::uuid[]) WITH ORDINALITY AS new (id, place)
WHERE projects.id = new.id AND projects.id IN (SELECT id FROM locked)
"""


async def arrange(connection: Connection, ids: Sequence[UUID]) -> None:
    """Put all folders of a person into an order."""
    await connection.execute(ARRANGE_SQL, ids)


REMOVE_SQL: Final[LiteralString] = """
-- projects: remove a folder
DELETE FROM projects WHERE id = $1
"""


async def remove(connection: Connection, project_id: UUID) -> bool:
    """Remove a folder; return whether it was there."""
    return count_of(await connection.execute(REMOVE_SQL, project_id)) > 0


MOVE_SQL: Final[LiteralString] = """
-- sessions: put a session into a folder, or take it out
UPDATE sessions SET project_id = $2 WHERE id = $1
"""
IS_SCHEDULED_SQL: Final[LiteralString] = """
-- sessions: whether a scheduled job opened a session
SELECT origin = $2 FROM sessions WHERE id = $1
"""


async def move(connection: Connection, session_id: UUID, project_id: UUID | None) -> None:
    """Put a locked session into a folder; None takes it out."""
    await connection.execute(MOVE_SQL, session_id, project_id)


async def is_scheduled(connection: Connection, session_id: UUID) -> bool:
    """Return whether a scheduled job opened a session."""
    return await connection.fetchval(IS_SCHEDULED_SQL, session_id, SCHEDULED_ORIGIN) is True


def _project(row: asyncpg.Record) -> Project:
    return Project(
        id=row["id"],
        name=row["name"],
        colour=row["colour"],
        profile=row["profile"],
        created_at=row["created_at"],
    )
