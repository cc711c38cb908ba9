"""Session summaries for commands, and the lists that were shown to users.

One statement answers a question of any number of commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.commands.session_summaries import (
    FIRST_WORDS_CHARACTERS,
    SessionSummary,
    ShownList,
)
from chatlane.postgres.pool import columns
from chatlane.store.conversations import titles
from chatlane_schemas.events import EndReason

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from asyncpg import Record

    from chatlane.domain.commands.session_summaries import SessionScope
    from chatlane.postgres.pool import Connection

_WAITING_SHOWN: Final = 101
# A session with this end reason continues in another session, which is listed itself.
_GOES_ON: Final = (EndReason.COMPRESSION,)

_COLUMNS: Final[LiteralString] = """
    id, session_key, owner, started_at, ended_at, title, title_scope,
    coalesce(model_override ->> 'model', model) AS model, user_messages
"""

CARDS_SQL: Final[LiteralString] = f"""
-- session_summaries: the sessions in which commands were given
SELECT {_COLUMNS},
       (SELECT count(*) FROM (SELECT FROM waiting WHERE waiting.session_id = sessions.id
                              LIMIT $2) AS line) AS waiting,
       (SELECT count(*) FROM lanes WHERE lanes.session_id = sessions.id)
           AS other_lanes
FROM sessions WHERE id = ANY($1::uuid[])
"""  # noqa: S608 - a constant


async def find(connection: Connection, ids: Iterable[UUID]) -> list[SessionSummary]:
    """Return the summaries of sessions, with all lanes, and at most 101 waiting messages."""
    rows = await connection.fetch(CARDS_SQL, list(ids), _WAITING_SHOWN)
    return [_card(row) for row in rows]


_IS_LISTED: Final[LiteralString] = """
    user_messages > 0 AND archived_at IS NULL AND coalesce(end_reason, '') <> ALL ($5::text[])
"""

NEWEST_SQL: Final[LiteralString] = f"""
-- session_summaries: the newest sessions of people, and of shared keys
WITH newest AS (
    SELECT own.* FROM unnest($1::text[], $2::text[]) AS want (owner, prefix)
    CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM sessions
        WHERE sessions.owner = want.owner AND starts_with(session_key, want.prefix)
          AND {_IS_LISTED}
        ORDER BY id DESC LIMIT $4) AS own
    UNION
    SELECT shared.* FROM unnest($3::text[]) AS want (session_key)
    CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM sessions
        WHERE sessions.session_key = want.session_key AND {_IS_LISTED}
        ORDER BY id DESC LIMIT $4) AS shared
)
SELECT newest.*, (
    SELECT left(content, $6) FROM messages
    WHERE messages.session_id = newest.id AND role = 'user'
      AND (details ? 'observed') IS NOT TRUE
    ORDER BY seq LIMIT 1) AS first_words
FROM newest
"""  # noqa: S608 - a constant


async def newest(
    connection: Connection, scopes: Iterable[SessionScope], limit: int
) -> list[SessionSummary]:
    """Return up to `limit` of the newest sessions within each scope that have user messages."""
    wanted = set(scopes)
    of_people = {(owner, scope.prefix) for scope in wanted for owner in scope.owners}
    shared = [scope.key for scope in wanted if not scope.owners]
    rows = await connection.fetch(
        NEWEST_SQL, *columns(of_people, 2), shared, limit, _GOES_ON, FIRST_WORDS_CHARACTERS
    )
    return [_card(row) for row in rows]


TITLED_SQL: Final[LiteralString] = f"""
-- session_summaries: sessions with a title
SELECT {_COLUMNS} FROM sessions WHERE id = ANY($1::uuid[])
"""  # noqa: S608 - a constant


async def titled(
    connection: Connection, wanted: Collection[str], scopes: Collection[str]
) -> list[SessionSummary]:
    """Return the sessions in these scopes whose titles look like one of the wanted ones."""
    found = await titles.find_alike(connection, wanted, scopes)
    ids = [session.id for session in found]
    rows = await connection.fetch(TITLED_SQL, ids) if ids else []
    return [_card(row) for row in rows]


def _card(row: Record) -> SessionSummary:
    return SessionSummary(**dict(row.items()))


FIND_SHOWN_SQL: Final[LiteralString] = """
-- shown_lists: the last list of each key
SELECT key, shown_at, session_ids FROM shown_lists WHERE key = ANY($1::bytea[])
"""


async def find_shown(connection: Connection, keys: Iterable[bytes]) -> dict[bytes, ShownList]:
    """Return the lists that were shown, by key."""
    rows = await connection.fetch(FIND_SHOWN_SQL, list(keys))
    return {row["key"]: ShownList(*row.values()) for row in rows}


WRITE_SHOWN_SQL: Final[LiteralString] = """
-- shown_lists: write the current list of a key
INSERT INTO shown_lists (key, shown_at, session_ids) VALUES ($1, $2, $3)
ON CONFLICT (key) DO UPDATE SET shown_at = excluded.shown_at, session_ids = excluded.session_ids
"""


async def write_shown(connection: Connection, lists: Sequence[ShownList]) -> None:
    """Write the lists that were shown, in the order of their keys."""
    if lists:
        await connection.executemany(WRITE_SHOWN_SQL, lists)
