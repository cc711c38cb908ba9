"""Reads what the commands of a batch need to know, and carries them out among its messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from chatlane.domain.cards import Cards, Reach, reach_of
from chatlane.domain.commanding import MAX_LISTED
from chatlane.domain.commands import CommandName
from chatlane.domain.owners import alias_of, owners_of
from chatlane.store import aliases, cards
from chatlane_schemas.people import Person
from chatlane_schemas.session_changes import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.aliases import AliasRow
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.lanes import Arrived
    from chatlane.domain.states import Lane, Session
    from chatlane_schemas.inbound import InboundEvent

_LISTING: Final = frozenset({CommandName.SESSIONS})
_ENTITLING: Final = frozenset({CommandName.NEW, CommandName.TITLE})


def commands_in(arrived: Iterable[Arrived]) -> list[Arrived]:
    """Return the messages of a batch that are commands for us."""
    return [one for one in arrived if one.command is not None and one.command.name is not None]


async def find_cards(
    connection: PoolConnectionProxy,
    commands: Sequence[Arrived],
    catalog: Catalog,
    bound: Mapping[str, Lane],
    locked: Mapping[UUID, Session],
) -> Cards:
    """Return what these commands need to know, in a fixed number of statements.

    Args:
        commands: At least one.
        catalog: Which platforms know a person under several ids.
        bound: The lanes of the batch.
        locked: The sessions they lead to.
    """
    reaches = await find_reaches(connection, commands, catalog)
    found = Cards(reaches=reaches)
    homes = _homes(commands, bound)
    scopes = {key: locked[home].owner for key, home in homes.items() if home in locked}
    listing = [reaches[_place(one)] for one in commands if _name(one) in _LISTING]
    wanted = {
        (title, scope)
        for one in commands
        if _name(one) in _ENTITLING and (title := shown_title(_argument(one)))
        for scope in (*reaches[_place(one)].title_scopes, scopes.get(one.session_key))
        if scope is not None
    }
    told = await cards.titled(connection, wanted) if wanted else []
    told += await cards.newest(connection, listing, MAX_LISTED) if listing else []
    told += await cards.find(connection, set(homes.values())) if homes else []
    for card in told:
        known = found.by_id.setdefault(card.id, card)
        known.waiting = known.waiting or card.waiting
        known.first_words = known.first_words or card.first_words
    return found


async def find_reaches(
    connection: PoolConnectionProxy, commands: Sequence[Arrived], catalog: Catalog
) -> dict[tuple[str, str | None], Reach]:
    """Return whose sessions each command may name, by its lane and the person who gave it."""
    persons = {
        _place(one): _person(one.event, one.person)
        for one in commands
        if one.person and catalog.platforms[one.event.platform].person_aliases
    }
    ids = {alias for person in persons.values() if (alias := alias_of(person)) is not None}
    known: list[AliasRow] = await aliases.find_groups(connection, ids) if ids else []
    return {
        place: reach_of(*place, _other_owners(persons.get(place), known))
        for place in map(_place, commands)
    }


def _person(event: InboundEvent, identity: str) -> Person:
    return Person(
        platform=event.platform, account=event.account, scope=event.scope or None, id=identity
    )


def _other_owners(person: Person | None, known: Sequence[AliasRow]) -> Iterable[str]:
    """Return how sessions may name a person who has several ids."""
    if person is None or (alias := alias_of(person)) is None:
        return ()
    canonical = next((row.canonical for row in known if row.id == alias), None)
    return owners_of(person, [row for row in known if row.canonical == canonical])


def _homes(commands: Iterable[Arrived], bound: Mapping[str, Lane]) -> dict[str, UUID]:
    keys = {key for one in commands for key in (one.session_key, *one.former_keys)}
    return {key: bound[key].session_id for key in keys if key in bound}


def _place(one: Arrived) -> tuple[str, str | None]:
    return one.session_key, one.person


def _name(one: Arrived) -> CommandName | None:
    return one.command.name if one.command else None


def _argument(one: Arrived) -> str:
    return one.command.argument if one.command else ""
