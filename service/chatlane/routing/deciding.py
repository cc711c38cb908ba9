"""Reads what the messages of a batch need, lets the domain decide, and writes the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.domain.aliases import AliasBook, AliasId
from chatlane.domain.effects import Effects
from chatlane.domain.lanes import Placement
from chatlane.domain.turns import ArrivedResult
from chatlane.routing.inbound import Prepared, arrive, prepare_inbound
from chatlane.routing.moves import Joining, readdress
from chatlane.routing.refused import Refused
from chatlane.routing.results import Settlement, prepare_result
from chatlane.store import aliases, lanes, seen, sessions
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.lanes import Arrived
    from chatlane.domain.log import LogMessage
    from chatlane.routing.writing import Writing


@dataclass(frozen=True, slots=True)
class Decoded:
    """One message of a log and what it turned out to be."""

    message: LogMessage
    content: Prepared | ArrivedResult | Refused


def decoded(message: LogMessage, catalog: Catalog, *, is_killer: bool = False) -> Decoded:
    """Decode one message; one that killed its readers is not looked into at all."""
    if is_killer:
        return Decoded(message, Refused(message, DeadReason.PROCESS_KILLER))
    if message.log == "inbound":
        return Decoded(message, prepare_inbound(message, catalog))
    return Decoded(message, prepare_result(message))


class Deciding:
    """One attempt at a batch: everything it learned is void when its transaction fails."""

    def __init__(self, catalog: Catalog, slots: int) -> None:
        self._catalog = catalog
        self._slots = slots
        self._effects = Effects()

    async def run(self, writing: Writing, messages: Sequence[Decoded]) -> None:
        """Decide about all messages and write what follows.

        Raises:
            SupersededError: Another router decided about the same people or lanes meanwhile.
        """
        contents = [one.content for one in messages]
        prepared = [one for one in contents if isinstance(one, Prepared)]
        results = [one for one in contents if isinstance(one, ArrivedResult)]
        arrived = await self._address(writing, prepared)
        connection = writing.connection
        keys = {key for one in arrived for key in (one.session_key, *one.former_keys)}
        bound = await lanes.find(connection, keys)
        homes = {lane.session_id for lane in bound.values()}
        homes |= {one.result.session_id for one in results}
        locked = await sessions.lock(connection, homes)
        known = await seen.probe(connection, {digest for one in arrived for digest in one.digests})
        await Joining(connection, bound, locked, self._effects).join(arrived)
        placement = Placement(bound, locked, known, self._effects, self._slots)
        for one in arrived:
            placement.place(one)
        if results:
            await Settlement(self._catalog, locked, self._effects).settle(connection, results)
        for content in contents:
            if isinstance(content, Refused):
                content.bury(self._effects)
        await writing.write(
            self._effects, lanes_of=bound.values(), sessions_of=placement.sessions.values()
        )
        # After the write: messages of this batch wait under the old address, too.
        await readdress(connection, arrived, self._catalog)

    async def _address(self, writing: Writing, prepared: Sequence[Prepared]) -> list[Arrived]:
        """Resolve who and where each message is, in order, learning links on the way."""
        if not prepared:
            return []
        wanted: set[AliasId] = set().union(*(one.lookups for one in prepared))
        known = await aliases.find_groups(writing.connection, wanted) if wanted else []
        book = AliasBook(known)
        placed: list[Arrived] = []
        for one in prepared:
            arrived = arrive(one, book, self._catalog)
            if isinstance(arrived, Refused):
                arrived.bury(self._effects)
            else:
                placed.append(arrived)
        await aliases.write(writing.connection, book.changes())
        return placed
