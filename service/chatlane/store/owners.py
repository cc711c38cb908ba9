"""Which sessions are a person's."""

from typing import TYPE_CHECKING

from chatlane.domain.owners import alias_of, owners_of
from chatlane.store import aliases

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane_schemas.people import Person


async def find(connection: "PoolConnectionProxy", person: "Person") -> set[str]:
    """Return every text under which sessions may name a person as their owner."""
    alias = alias_of(person)
    if alias is None:
        return set()
    return owners_of(person, await aliases.find_groups(connection, [alias]))


async def find_if_named(
    connection: "PoolConnectionProxy", person: "Person | None"
) -> list[str] | None:
    """Return the texts of a person, sorted; None where nobody is named: then all may be seen."""
    return None if person is None else sorted(await find(connection, person))
