"""Resolve ids to identities, and find the owners of an identity's sessions.

Every reader calls `find` for the identity of a person that a caller names by an id, and looks up
sessions by `Identity.owners`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, LiteralString, NamedTuple

from chatlane.domain.addressing.alias_rows import AliasId, AliasKind, lookups
from chatlane.domain.addressing.aliases import AliasBook
from chatlane.domain.addressing.owners import (
    Identity,
    Span,
    alias_of,
    identity_with,
    parse_owner_text,
)
from chatlane.domain.addressing.sources import Address
from chatlane.postgres.pool import columns
from chatlane.store.addressing import aliases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from chatlane.postgres.pool import Connection
    from chatlane_schemas.session_api.people import Person, PersonId

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
    connection: Connection, person: PersonId, at: datetime | None = None
) -> Identity | None:
    """Return the identity that an id belongs to; None if it is the id of no person.

    Args:
        person: The person, named by an id.
        at: The time at which the id is resolved; None for now.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    form = (alias.platform, alias.account, alias.alias)
    rows = await connection.fetch(FIND_SQL, *columns([form], 3), at, False)  # noqa: FBT003
    spans = [Span(*row[4:]) for row in rows if row[4] is not None]
    return identity_with(person.platform, person.account, person.scope or None, rows[0][3], spans)


FIND_HOLDERS_SQL: Final[LiteralString] = """
-- aliases: the identities that hold ids now
SELECT form, coalesce(
    (SELECT canonical FROM aliases
     WHERE aliases.platform = $1 AND aliases.account = $2 AND kind = 'person'
       AND alias = want.form), form)
FROM unnest($3::text[]) AS want (form)
"""


async def find_holders(
    connection: Connection, platform: str, account: str, forms: Iterable[str]
) -> dict[str, str]:
    """Return the names of the identities that hold ids of an account now, by id."""
    rows = await connection.fetch(FIND_HOLDERS_SQL, platform, account, sorted(forms))
    return {form: name for form, name in rows}  # noqa: C416 - rows are records


class Name(NamedTuple):
    """The name of an identity, in the scope of a platform that has scopes."""

    platform: str
    account: str
    scope: str | None
    name: str


async def find_by_names(connection: Connection, names: Iterable[Name]) -> dict[Name, Identity]:
    """Return identities by their names."""
    wanted = list(dict.fromkeys(names))
    if not wanted:
        return {}
    unscoped = dict.fromkeys(
        (wanted_name.platform, wanted_name.account, wanted_name.name) for wanted_name in wanted
    )
    rows = await connection.fetch(FIND_SQL, *columns(unscoped, 3), None, True)  # noqa: FBT003
    spans: dict[tuple[str, str, str], list[Span]] = {}
    for platform, account, _, name, *span in rows:
        if span[0] is not None:
            spans.setdefault((platform, account, name), []).append(Span(*span))
    return {
        wanted_name: identity_with(
            *wanted_name,
            spans.get((wanted_name.platform, wanted_name.account, wanted_name.name), ()),
        )
        for wanted_name in wanted
    }


async def hand_over(
    connection: Connection, person: Person, at: datetime, accounts: Iterable[str] | None = None
) -> Identity | None:
    """Assign an id to a new identity and return it; None if it is the id of no person.

    Args:
        person: The person, named by the id that changed hands.
        at: When the id changed hands, by the clock of the log.
        accounts: Accounts of the platform. The id changes hands on all of them, and on every
            other account that knows the id; None for the account of the person alone.

    Raises:
        SupersededError: A router changed the id at the same time; try again.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    ids = [alias._replace(account=account) for account in accounts or ()] + [alias]
    marks = {mark for alias_id in ids for mark in lookups(_account_of(alias_id), persons=False)}
    book = AliasBook(await aliases.find_groups(connection, [*ids, *marks]))
    for alias_id in sorted(_everywhere(book, alias, accounts)):
        book.hand_over(alias_id, at)
    await aliases.write(connection, book.changes())
    return await find(connection, person)


async def split(
    connection: Connection, person: Person, at: datetime, accounts: Iterable[str] | None = None
) -> Identity | None:
    """Move an id out of the identity it was merged into, and return its own identity.

    Returns None if there is nothing to split: the id names its identity, or is its only id. The
    arguments and errors are those of `hand_over`.
    """
    alias = alias_of(person)
    if alias is None:
        return None
    book = AliasBook(await aliases.find_groups(connection, [alias]))
    were_split = [book.split(id_, at) for id_ in sorted(_everywhere(book, alias, accounts))]
    if not any(were_split):
        return None
    await aliases.write(connection, book.changes())
    return await find(connection, person)


def _account_of(alias: AliasId) -> Address:
    return Address(alias.platform, alias.account)


def _everywhere(book: AliasBook, alias: AliasId, accounts: Iterable[str] | None) -> set[AliasId]:
    """Return the id on all accounts to which a change of it applies."""
    if accounts is None:
        return {alias}
    named = {alias.account, *accounts} | book.accounts_with(alias)
    return {alias._replace(account=account) for account in named}


async def are_one_person(connection: Connection, owner: str, other: str) -> bool:
    """Return whether sessions with these owners belong to the same person."""
    if owner == other:
        return True
    name = Name(*parse_owner_text(owner))
    found = await find_by_names(connection, [name])
    return other in found[name].owners


HANDED_ON_SQL: Final[LiteralString] = """
-- former_ids: whether one of these ids has changed hands since a time
SELECT EXISTS (
    SELECT FROM unnest($1::text[], $2::text[], $3::text[]) AS want (platform, account, form)
    JOIN former_ids USING (platform, account, form) WHERE until > $4)
"""


async def are_handed_on(connection: Connection, ids: Iterable[AliasId], since: datetime) -> bool:
    """Return whether any of these ids has changed hands since a time."""
    forms = [(alias_id.platform, alias_id.account, alias_id.alias) for alias_id in ids]
    found: bool = await connection.fetchval(HANDED_ON_SQL, *columns(forms, 3), since)
    return found


HAS_FORMER_IDS_SQL: Final[LiteralString] = """
-- former_ids: whether any id has changed hands at some time, as the first entry of an index says
SELECT min(platform) IS NOT NULL FROM former_ids
"""


async def has_former_ids(connection: Connection) -> bool:
    """Return whether any id has ever changed hands."""
    found: bool = await connection.fetchval(HAS_FORMER_IDS_SQL)
    return found


FIND_HANDED_ON_SQL: Final[LiteralString] = """
-- former_ids: which of these ids have ever changed hands
SELECT DISTINCT platform, account, form
FROM unnest($1::text[], $2::text[], $3::text[]) AS want (platform, account, form)
JOIN former_ids USING (platform, account, form)
"""


async def find_handed_on(connection: Connection, ids: Iterable[AliasId]) -> set[AliasId]:
    """Return the person ids that have ever changed hands."""
    forms = sorted({(alias_id.platform, alias_id.account, alias_id.alias) for alias_id in ids})
    if not forms:
        return set()
    rows = await connection.fetch(FIND_HANDED_ON_SQL, *columns(forms, 3))
    return {AliasId(platform, account, AliasKind.PERSON, form) for platform, account, form in rows}


async def find_owners(connection: Connection, person: Person | None) -> list[str] | None:
    """Return the owner texts of a person's sessions, on other accounts as well, sorted.

    Returns None for no person, which allows all sessions, and an empty list for the id of no
    person.
    """
    if person is None:
        return None
    found = [await find(connection, person_id) for person_id in person.ids]
    return sorted({owner for identity in found if identity for owner in identity.owners})
