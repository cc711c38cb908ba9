"""Whose: the one answer to which person an id means, and what is theirs.

Every reader asks `find` for the identity of a person that a caller names by an id, and looks for
sessions by `Identity.owners`.
"""

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.addressing.aliases import AliasBook, AliasId, AliasKind, lookups
from chatlane.domain.addressing.identities import Identity, Span, identity_with
from chatlane.domain.addressing.owners import alias_of, parse_owner_text
from chatlane.domain.addressing.sources import Address
from chatlane.postgres.columns import columns
from chatlane.store.addressing import aliases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane_schemas.people import Person

FIND_SQL: Final[LiteralString] = """
-- aliases → former_ids: the identities that ids belonged to at a time, with all of their spans
WITH holder AS (
    SELECT want.platform, want.account, want.form, CASE WHEN $5 THEN want.form ELSE coalesce(
        (SELECT identity FROM former_ids
         WHERE former_ids.platform = want.platform AND former_ids.account = want.account
           AND former_ids.form = want.form AND since <= $4 AND until > $4
         ORDER BY until LIMIT 1),
        (SELECT canonical FROM aliases
         WHERE aliases.platform = want.platform AND aliases.account = want.account
           AND kind = 'person' AND alias = want.form LIMIT 1),
        want.form) END AS name
    FROM unnest($1::text[], $2::text[], $3::text[]) AS want (platform, account, form)
)
SELECT holder.*, spans.* FROM holder LEFT JOIN LATERAL (
    SELECT alias AS its, held_since AS since, NULL::timestamptz AS until FROM aliases
    WHERE aliases.platform = holder.platform AND aliases.account = holder.account
      AND kind = 'person' AND canonical = holder.name
    UNION ALL
    SELECT form, nullif(since, '-infinity'), until FROM former_ids
    WHERE former_ids.platform = holder.platform AND former_ids.account = holder.account
      AND identity = holder.name
) AS spans ON true
"""


async def find(
    connection: "PoolConnectionProxy", person: "Person", at: "datetime | None" = None
) -> Identity | None:
    """Return the identity that an id belongs to; None if it is the id of no person.

    Args:
        person: Named by an id.
        at: When; None for now.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    form = (alias.platform, alias.account, alias.alias)
    rows = await connection.fetch(FIND_SQL, *columns([form], 3), at, False)  # noqa: FBT003
    spans = [Span(*row[4:]) for row in rows if row[4] is not None]
    return identity_with(person.platform, person.account, person.scope or None, rows[0][3], spans)


class Name(NamedTuple):
    """The name of an identity, in the scope of a platform that has scopes."""

    platform: str
    account: str
    scope: str | None
    name: str


async def find_by_names(
    connection: "PoolConnectionProxy", names: "Iterable[Name]"
) -> dict[Name, Identity]:
    """Return identities by their names."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    unscoped = dict.fromkeys((one.platform, one.account, one.name) for one in wanted)
    rows = await connection.fetch(FIND_SQL, *columns(unscoped, 3), None, True)  # noqa: FBT003
    spans: dict[tuple[str, str, str], list[Span]] = {}
    for platform, account, _, name, *span in rows:
        if span[0] is not None:
            spans.setdefault((platform, account, name), []).append(Span(*span))
    return {
        one: identity_with(*one, spans.get((one.platform, one.account, one.name), ()))
        for one in wanted
    }


async def hand_over(
    connection: "PoolConnectionProxy",
    person: "Person",
    at: "datetime",
    accounts: "Iterable[str] | None" = None,
) -> Identity | None:
    """Give an id to a new identity, and return that; None if it is the id of no person.

    Args:
        connection: Of a transaction.
        person: Named by the id that changed hands.
        at: Since when, by the clock of the log.
        accounts: The accounts of the platform, on all of which the id changed hands, as on those
            that know the id besides; None for the account of the person alone.

    Raises:
        SupersededError: A router learned about the id meanwhile; try again.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    ids = [alias._replace(account=account) for account in accounts or ()] + [alias]
    marks = {mark for one in ids for mark in lookups(_account_of(one), persons=False)}
    book = AliasBook(await aliases.find_groups(connection, [*ids, *marks]))
    for one in sorted(_everywhere(book, alias, accounts)):
        book.hand_over(one, at)
    await aliases.write(connection, book.changes())
    return await find(connection, person)


async def split(
    connection: "PoolConnectionProxy",
    person: "Person",
    at: "datetime",
    accounts: "Iterable[str] | None" = None,
) -> Identity | None:
    """Take an id out of the identity it was merged into, and return its own.

    None where there is nothing to split: the id names its identity, or is alone.

    Args:
        connection: Of a transaction.
        person: Named by the id.
        at: Since when they are two, by the clock of the log.
        accounts: As for `hand_over`.

    Raises:
        SupersededError: A router learned about the id meanwhile; try again.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    book = AliasBook(await aliases.find_groups(connection, [alias]))
    split_rows = [book.split(one, at) for one in sorted(_everywhere(book, alias, accounts))]
    if not any(split_rows):
        return None
    await aliases.write(connection, book.changes())
    return await find(connection, person)


def _account_of(alias: AliasId) -> Address:
    return Address(alias.platform, alias.account)


def _everywhere(
    book: AliasBook, alias: AliasId, accounts: "Iterable[str] | None"
) -> "set[AliasId]":
    """Return an id on all accounts that a change of it is for."""
    if accounts is None:
        return {alias}
    named = {alias.account, *accounts} | book.accounts_with(alias)
    return {alias._replace(account=account) for account in named}


async def are_one_person(connection: "PoolConnectionProxy", owner: str, other: str) -> bool:
    """Return whether sessions with these owners are one person's."""
    if owner == other:
        return True
    name = Name(*parse_owner_text(owner))
    found = await find_by_names(connection, [name])
    return other in found[name].owners


HANDED_ON_SQL: Final[LiteralString] = """
-- former_ids: whether somebody else had one of these ids at a time
SELECT EXISTS (
    SELECT FROM unnest($1::text[], $2::text[], $3::text[]) AS want (platform, account, form)
    JOIN former_ids USING (platform, account, form) WHERE until > $4)
"""


async def are_handed_on(
    connection: "PoolConnectionProxy", ids: "Iterable[AliasId]", since: "datetime"
) -> bool:
    """Return whether one of some ids has changed hands since a time."""
    forms = [(one.platform, one.account, one.alias) for one in ids]
    found: bool = await connection.fetchval(HANDED_ON_SQL, *columns(forms, 3), since)
    return found


HAS_FORMER_IDS_SQL: Final[LiteralString] = """
-- former_ids: whether any id has changed hands at some time, as the first entry of an index says
SELECT min(platform) IS NOT NULL FROM former_ids
"""


async def has_former_ids(connection: "PoolConnectionProxy") -> bool:
    """Return whether any id has changed hands at some time."""
    found: bool = await connection.fetchval(HAS_FORMER_IDS_SQL)
    return found


FIND_HANDED_ON_SQL: Final[LiteralString] = """
-- former_ids: which ids somebody else had at some time
SELECT DISTINCT platform, account, form
FROM unnest($1::text[], $2::text[], $3::text[]) AS want (platform, account, form)
JOIN former_ids USING (platform, account, form)
"""


async def find_handed_on(
    connection: "PoolConnectionProxy", ids: "Iterable[AliasId]"
) -> "set[AliasId]":
    """Return those ids of people that have changed hands at some time."""
    forms = sorted({(one.platform, one.account, one.alias) for one in ids})
    if not forms:
        return set()
    rows = await connection.fetch(FIND_HANDED_ON_SQL, *columns(forms, 3))
    return {AliasId(platform, account, AliasKind.PERSON, form) for platform, account, form in rows}


async def find_owners(
    connection: "PoolConnectionProxy", person: "Person | None"
) -> list[str] | None:
    """Return what sessions of a person name as their owner, sorted.

    None where nobody is named: then all sessions may be seen. Empty for the id of no person.
    """
    if person is None:
        return None
    identity = await find(connection, person)
    return [] if identity is None else sorted(identity.owners)
