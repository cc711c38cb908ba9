"""Find, export and delete what is kept of a person besides the sessions.

Folders, drafts and read marks, and the rooms in which adapters reported the person.

Drafts and read marks go with their session. Those of a session that the person no longer owns stay,
and are found by the owner that they name.
"""

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.postgres.pool import count_of
from chatlane.privacy.export_records import DraftRecord, FolderRecord

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

DELETE_DRAFTS_SQL: Final[LiteralString] = """
-- drafts: delete what a person has typed up to a time
DELETE FROM drafts WHERE owner = ANY($1::text[]) AND changed_at <= $2
"""
DELETE_MARKS_SQL: Final[LiteralString] = """
-- read_marks: delete the marks of a person up to a time
DELETE FROM read_marks WHERE owner = ANY($1::text[]) AND read_at <= $2
"""
COUNT_STATE_SQL: Final[LiteralString] = """
-- drafts → read_marks: the number of drafts and marks of a person up to a time
SELECT (SELECT count(*) FROM drafts WHERE owner = ANY($1::text[]) AND changed_at <= $2),
       (SELECT count(*) FROM read_marks WHERE owner = ANY($1::text[]) AND read_at <= $2)
"""
DRAFTS_SQL: Final[LiteralString] = """
-- drafts: what a person has typed and not sent
SELECT session_id, changed_at AS at, text FROM drafts WHERE owner = ANY($1::text[])
ORDER BY session_id
"""
DELETE_PROJECTS_SQL: Final[LiteralString] = """
-- projects: delete the folders of a person that are older than a time
DELETE FROM projects WHERE owner = ANY($1::text[]) AND created_at <= $2
"""
COUNT_PROJECTS_SQL: Final[LiteralString] = """
-- projects: the number of folders of a person that are older than a time
SELECT count(*) FROM projects WHERE owner = ANY($1::text[]) AND created_at <= $2
"""
DELETE_MEMBERS_SQL: Final[LiteralString] = """
-- room_reports → room_members: delete a person from the rooms that were reported up to a time
DELETE FROM room_members USING room_reports
WHERE owner = ANY($1::text[]) AND room_reports.room = room_members.room AND reported_at <= $2
"""
COUNT_MEMBERS_SQL: Final[LiteralString] = """
-- room_members → room_reports: the number of rooms that a person was reported in up to a time
SELECT count(*) FROM room_members JOIN room_reports USING (room)
WHERE owner = ANY($1::text[]) AND reported_at <= $2
"""
PROJECTS_SQL: Final[LiteralString] = """
-- projects: the folders of a person
SELECT id, name, colour, profile, created_at FROM projects WHERE owner = ANY($1::text[])
ORDER BY place, created_at, id
"""


async def delete(
    connection: "PoolConnectionProxy", owners: "Iterable[str]", until: "datetime"
) -> dict[str, int]:
    """Delete what a person kept up to a time; return the number of rows by table."""
    texts = sorted(owners)
    return {
        "projects": count_of(await connection.execute(DELETE_PROJECTS_SQL, texts, until)),
        "drafts": count_of(await connection.execute(DELETE_DRAFTS_SQL, texts, until)),
        "read_marks": count_of(await connection.execute(DELETE_MARKS_SQL, texts, until)),
        "room_members": count_of(await connection.execute(DELETE_MEMBERS_SQL, texts, until)),
    }


async def count(
    connection: "PoolConnectionProxy", owners: "Iterable[str]", until: "datetime"
) -> dict[str, int]:
    """Return how much a person kept up to a time, by table."""
    texts = sorted(owners)
    made: int = await connection.fetchval(COUNT_PROJECTS_SQL, texts, until)
    [(typed, marks)] = await connection.fetch(COUNT_STATE_SQL, texts, until)
    rooms: int = await connection.fetchval(COUNT_MEMBERS_SQL, texts, until)
    return {"projects": made, "drafts": typed, "read_marks": marks, "room_members": rooms}


async def folders(
    connection: "PoolConnectionProxy", owners: "Iterable[str]"
) -> "list[FolderRecord]":
    """Return the folders of a person."""
    found = await connection.fetch(PROJECTS_SQL, sorted(owners))
    return [FolderRecord.model_validate(dict(row)) for row in found]


async def drafts(connection: "PoolConnectionProxy", owners: "Iterable[str]") -> "list[DraftRecord]":
    """Return the texts that a person has typed and not sent."""
    found = await connection.fetch(DRAFTS_SQL, sorted(owners))
    return [DraftRecord.model_validate(dict(row)) for row in found]
