"""Read the data that the commands of a batch need, in a fixed number of statements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from chatlane.domain.addressing.owners import owner_of
from chatlane.domain.commands.command_handlers import MAX_LISTED
from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.commands.session_summaries import (
    SessionScope,
    SessionSummaries,
    ShownLists,
    list_key,
    scope_of,
)
from chatlane.store.addressing import identities
from chatlane.store.addressing.identities import Name
from chatlane.store.conversations import lineage, session_summaries
from chatlane_schemas.content.visible_text import shown_title

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.commands.session_summaries import SessionSummary
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Lane, Session

_LISTING: Final = frozenset({CommandName.SESSIONS, CommandName.RESUME})
_NAMING: Final = frozenset(
    {CommandName.NEW, CommandName.TITLE, CommandName.BRANCH, CommandName.RESUME}
)


class _Wish(NamedTuple):
    """A command, and the scope of sessions that it may name."""

    name: CommandName
    key: str
    argument: str
    scope: SessionScope

    @property
    def session_id(self) -> UUID | None:
        """The session id in the argument of the command, if it is one."""
        try:
            return UUID(self.argument) if self.name is CommandName.RESUME else None
        except ValueError:
            return None


@dataclass(slots=True)
class CommandReads:
    """Read the sessions that the commands of a batch name, before and after sessions are locked."""

    connection: PoolConnectionProxy
    wishes: list[_Wish]
    known: SessionSummaries
    _targets: set[UUID] = field(default_factory=set, init=False)

    @property
    def owners(self) -> dict[str, frozenset[str]]:
        """The owner names in older sessions of a person, by the owner of the person's new ones."""
        return {
            owner: scope.owners
            for place, scope in self.known.scopes.items()
            if (owner := owner_of(*place)) is not None
        }

    async def find_targets(self) -> set[UUID]:
        """Return sessions to lock in addition to those to which the lanes point."""
        resuming = [
            wish for wish in self.wishes if wish.name is CommandName.RESUME and wish.argument
        ]
        if not resuming:
            return set()
        named = {id_ for wish in resuming if (id_ := wish.session_id) is not None}
        ids = {card.id for card in await self._told(resuming, ())} | named | self._shown_ids()
        self.known.tips = await lineage.find_tips(self.connection, ids)
        self._targets = ids | set(self.known.tips.values())
        return self._targets

    async def read(
        self,
        bound: Mapping[str, Lane],
        locked: Mapping[UUID, Session],
        questions: Iterable[UUID] = (),
    ) -> SessionSummaries:
        """Return the session summaries of the batch.

        Args:
            locked: The sessions of the batch; their state is current.
            questions: Sessions with messages on which the batch may open threads.
        """
        session_ids = {lane.session_id for lane in bound.values()} & locked.keys()
        given_in = {wish.key for wish in self.wishes}
        ids = {bound[key].session_id for key in given_in & bound.keys()}
        named = {wish.session_id for wish in self.wishes} - {None}
        ids |= locked.keys() & (named | self._targets | set(questions))
        ids |= self._shown_ids()
        owners = {
            session.owner
            for session in map(locked.__getitem__, session_ids)
            if session.owner is not None
        }
        summaries = await self._told(self.wishes, owners)
        summaries += await self._with_lanes(ids, bound)
        for card in summaries:
            known = self.known.by_id.setdefault(card.id, card)
            known.waiting = known.waiting or card.waiting
            known.other_lanes = max(known.other_lanes, card.other_lanes)
            known.first_words = known.first_words or card.first_words
        self.known.loaded = frozenset(locked)
        return self.known

    async def _with_lanes(self, ids: set[UUID], bound: Mapping[str, Lane]) -> list[SessionSummary]:
        found = await session_summaries.find(self.connection, ids) if ids else []
        loaded = Counter(lane.bound_to for lane in bound.values())
        for card in found:
            card.other_lanes -= loaded[card.id]
        return found

    def _shown_ids(self) -> set[UUID]:
        return {id_ for shown in self.known.shown.by_key.values() for id_ in shown.session_ids}

    async def _told(self, wishes: Iterable[_Wish], owners: Iterable[str]) -> list[SessionSummary]:
        listing = [wish.scope for wish in wishes if wish.name in _LISTING]
        naming = [wish for wish in wishes if wish.name in _NAMING and shown_title(wish.argument)]
        wanted = {shown_title(wish.argument) for wish in naming}
        scopes = set(owners).union(*(wish.scope.title_scopes for wish in naming))
        summaries = (
            await session_summaries.newest(self.connection, listing, MAX_LISTED) if listing else []
        )
        return summaries + await session_summaries.titled(self.connection, wanted, scopes)


async def open_reads(
    connection: PoolConnectionProxy, arrived: Iterable[ResolvedMessage], catalog: Catalog
) -> CommandReads | None:
    """Return the reads for the commands of a batch, or None if there are no commands."""
    commands = [
        (message, message.command, message.command.name)
        for message in arrived
        if message.command is not None and message.command.name is not None
    ]
    if not commands:
        return None
    scopes = await _find_scopes(connection, [message for message, _, _ in commands], catalog)
    wishes = [
        _Wish(name, key, command.argument, scopes[message.session_key, message.person])
        for message, command, name in commands
        for key in (message.session_key, *message.former_keys)
    ]
    keys = {
        list_key(message.session_key, message.person)
        for message, _, name in commands
        if name in _LISTING
    }
    shown = ShownLists(await session_summaries.find_shown(connection, keys) if keys else {})
    return CommandReads(connection, wishes, SessionSummaries(scopes=scopes, shown=shown))


async def _find_scopes(
    connection: PoolConnectionProxy, commands: Iterable[ResolvedMessage], catalog: Catalog
) -> dict[tuple[str, str | None], SessionScope]:
    places = {(message.session_key, message.person): message for message in commands}
    names = {
        place: name_of(message)
        for place, message in places.items()
        if catalog.platforms[message.event.platform].person_aliases
    }
    known = await identities.find_by_names(connection, filter(None, names.values()))
    return {
        place: scope_of(*place, known[name].owners if (name := names.get(place)) else ())
        for place in places
    }


def name_of(arrived: ResolvedMessage) -> Name | None:
    """Return the identity of a message's author, or None if the message names no person."""
    if arrived.person is None:
        return None
    event = arrived.event
    return Name(event.platform, event.account, event.scope or None, arrived.person)
