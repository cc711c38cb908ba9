"""Clear messages that their platform removes at a time, and return addresses that have ended."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json, to_json

from chatlane.decisions.edits import void_emptied
from chatlane.domain.edits import kept_when_deleted
from chatlane.domain.effects import Effects, RoutedChange, RowChange
from chatlane.jobs import Job
from chatlane.store.conversations import sessions
from chatlane.store.history import expiry
from chatlane_schemas.session_api.transcripts import RowState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.postgres.pool import Store
    from chatlane.store.history.expiry import Due, Place

_AT_ONCE: Final = 200


@dataclass(slots=True)
class MessageExpiry:
    """Clears what has expired; several routers may do so at once."""

    store: Store
    writer: UnitOfWorkFactory

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic job."""
        return (Job("expired messages", timedelta(seconds=2), self.sweep),)

    async def sweep(self) -> int:
        """Clear the parts of messages that have expired; return how many there were."""
        async with self.store.transaction() as connection:
            due = await expiry.find_due(connection, _AT_ONCE)
        if due.contents or due.addresses:
            async with self.writer.begin() as unit_of_work:
                await _clear(unit_of_work, due)
        return len(due.contents) + len(due.addresses)


async def _clear(unit_of_work: UnitOfWork, due: Due) -> None:
    connection = unit_of_work.connection
    locked = await sessions.lock(connection, due.session_ids)
    places = await expiry.find_places(connection, due.contents, locked)
    effects = _cleared(places)
    await unit_of_work.write(effects, sessions_of=locked.values())
    await expiry.forget_words(connection, due.contents, {place.session_id for place in places})
    await expiry.forget_addresses(connection, due.addresses, locked)
    await expiry.done(connection, due)
    emptied = {place.turn_id for place in places if place.turn_id is not None}
    ended = Effects()
    await void_emptied(connection, emptied, locked, ended)
    await unit_of_work.write(ended, sessions_of=locked.values())


def _cleared(places: Sequence[Place]) -> Effects:
    """Return the writes that leave nothing but the places of messages."""
    effects = Effects()
    for place in places:
        if place.is_waiting:
            effects.deleted_waiting.append((place.session_id, place.place))
            continue
        details = from_json(place.details or "{}")
        kept = to_json(kept_when_deleted(details)).decode()
        effects.row_changes.append(
            RowChange(place.session_id, place.place, None, kept, RowState.DELETED)
        )
        is_routed = place.turn_id is None and not details.get("observed")
        if is_routed and place.message_id is not None:
            effects.routed_changes.append(RoutedChange(place.message_id, place.session_id))
    return effects
