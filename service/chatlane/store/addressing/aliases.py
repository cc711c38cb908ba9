"""Aliases: ids of a person or chat, and the canonical id they resolve to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString

from chatlane.domain.addressing.alias_rows import (
    AliasId,
    AliasKind,
    AliasRow,
    Changes,
    Holder,
    are_handed_over,
    person_lookups,
)
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.postgres.pool import columns, expect_rows

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from asyncpg import Record

    from chatlane.domain.addressing.sources import Address
    from chatlane.postgres.pool import Connection

FIND_GROUPS_SQL: Final[LiteralString] = """
-- aliases: all rows of the persons (on all accounts) and chats that a batch names
WITH want AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
        AS want (platform, account, kind, alias)
), named AS (
    SELECT platform, account, kind, canonical
    FROM want JOIN aliases USING (platform, account, kind, alias)
    WHERE kind = 'chat' OR alias = ''
    UNION
    SELECT platform, aliases.account, aliases.kind, canonical
    FROM want JOIN aliases USING (platform, alias)
    WHERE want.kind = 'person' AND aliases.kind = 'person' AND alias <> ''
)
SELECT platform, account, kind, alias, canonical, first_seen_at, partner, was_canonical,
       held_since, taken_from, had.names, had.since, had.until
FROM named JOIN aliases USING (platform, account, kind, canonical)
CROSS JOIN LATERAL (
    SELECT array_agg(identity ORDER BY until) AS names,
           array_agg(nullif(since, '-infinity') ORDER BY until) AS since,
           array_agg(until ORDER BY until) AS until
    FROM former_ids
    WHERE kind = 'person' AND former_ids.platform = aliases.platform
      AND former_ids.account = aliases.account AND form = alias
) AS had
"""


async def find_groups(connection: Connection, ids: Iterable[AliasId]) -> list[AliasRow]:
    """Return, for each known alias, all rows with the same canonical id.

    For a person this includes the rows of every account that knows the id.
    """
    rows = await connection.fetch(FIND_GROUPS_SQL, *columns(list(ids), 4))
    return [_from_row(row) for row in rows]


async def read_book(
    connection: Connection, wanted: Collection[AliasId], addresses: Iterable[Address]
) -> AliasBook:
    """Return the stored aliases of the persons and chats of events.

    `wanted` is the result of `lookups` for all of these addresses.
    """
    known = await find_groups(connection, wanted) if wanted else []
    if handed_over := are_handed_over(known):
        more = {
            alias
            for address in addresses
            if (address.platform, address.account) in handed_over
            for alias in person_lookups(address)
        }
        known += await find_groups(connection, more.difference(wanted))
    return AliasBook(known)


def _from_row(row: Record) -> AliasRow:
    platform, account, kind, *rest, names, since, until = row.values()
    alias = AliasRow(platform, account, AliasKind(kind), *rest)
    if not names:
        return alias
    return alias._replace(former=frozenset(map(Holder, names, since, until)))


SPLIT_CHAT_SQL: Final[LiteralString] = """
-- aliases: make a chat its own canonical id
UPDATE aliases SET canonical = alias, was_canonical = false, revision = revision + 1
WHERE platform = $1 AND account = $2 AND kind = 'chat' AND alias = $3 AND canonical <> alias
"""


async def split_chat(connection: Connection, platform: str, account: str, alias: str) -> bool:
    """Make a chat its own canonical id again; returns False if it resolved to no other id.

    `alias` is the newer id of the chat, in the form of `chat_alias`.
    """
    status = await connection.execute(SPLIT_CHAT_SQL, platform, account, alias)
    return status.endswith(" 1")


INSERT_ALIASES_SQL: Final[LiteralString] = """
-- aliases: insert new ids; a conflict means that another router was first
INSERT INTO aliases (
    platform, account, kind, alias, canonical, first_seen_at, partner, was_canonical, held_since,
    taken_from)
SELECT * FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[],
    $8::bool[], $9::timestamptz[], $10::text[])
ON CONFLICT DO NOTHING
"""

UPDATE_ALIASES_SQL: Final[LiteralString] = """
-- aliases: update rows that have not changed since they were read
UPDATE aliases SET
    canonical = new.canonical, first_seen_at = new.first_seen_at, partner = new.partner,
    was_canonical = new.was_canonical, held_since = new.held_since,
    taken_from = new.taken_from, revision = aliases.revision + 1
FROM unnest(
    $1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[],
    $8::bool[], $9::timestamptz[], $10::text[], $11::text[], $12::text[])
    AS new (platform, account, kind, alias, canonical, first_seen_at, partner, was_canonical,
            held_since, taken_from, canonical_before, partner_before)
WHERE aliases.platform = new.platform AND aliases.account = new.account
  AND aliases.kind = new.kind AND aliases.alias = new.alias
  AND aliases.canonical = new.canonical_before
  AND aliases.partner IS NOT DISTINCT FROM new.partner_before
"""


MERGE_FORMER_SQL: Final[LiteralString] = """
-- former_ids: move the spans of one identity to another
UPDATE former_ids SET identity = $4 WHERE platform = $1 AND account = $2 AND identity = $3
"""

INSERT_FORMER_SQL: Final[LiteralString] = """
-- former_ids: insert spans in which ids belonged to people
INSERT INTO former_ids (platform, account, form, identity, since, until)
SELECT platform, account, form, identity, coalesce(since, '-infinity'), until
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::timestamptz[])
    AS new (platform, account, form, identity, since, until)
"""


async def write(connection: Connection, changes: Changes) -> None:
    """Write the changes of a batch.

    Raises:
        SupersededError: Another router changed the same ids; read them again.
    """
    if changes.inserted:
        status = await connection.execute(
            INSERT_ALIASES_SQL, *columns((row[:10] for row in changes.inserted), 10)
        )
        expect_rows(status, changes.inserted, "aliases")
    if changes.updated:
        rows = [(*row[:10], before.canonical, before.partner) for before, row in changes.updated]
        status = await connection.execute(UPDATE_ALIASES_SQL, *columns(rows, 12))
        expect_rows(status, rows, "aliases")
    for merge in changes.merges:
        await connection.execute(
            MERGE_FORMER_SQL, merge.platform, merge.account, merge.newer, merge.older
        )
    if changes.former:
        await connection.execute(INSERT_FORMER_SQL, *columns(changes.former, 6))
