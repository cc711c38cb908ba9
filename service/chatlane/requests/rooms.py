"""Keep the members of rooms that adapters report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.owners import owner_text
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.rooms import room_name
from chatlane.domain.sessions.refusals import conflict, invalid, stale
from chatlane.store.addressing import identities, rooms
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiReply

if TYPE_CHECKING:
    from chatlane.domain.catalog import Catalog
    from chatlane.postgres.pool import Connection
    from chatlane.requests.context import Call
    from chatlane_schemas.session_api.rooms import RoomMembers
    from chatlane_schemas.session_api.sessions import ApiError

LONGEST_REPORT: Final = timedelta(hours=2)
# A report that is dated far ahead would keep later ones out.
_CLOCK_SKEW: Final = timedelta(minutes=1)


async def report(request: RoomMembers, call: Call) -> ApiReply:
    """Replace the members of a room, or return an error and write nothing."""
    return await write(call.connection, request, call.catalog, call.at)


async def write(
    connection: Connection, request: RoomMembers, catalog: Catalog, at: datetime
) -> ApiReply:
    """Replace the members of a room in a transaction that publishes nothing."""
    error = await _report(connection, request, catalog, at)
    return ApiReply(id=new_envelope_id(), at=datetime.now(UTC), error=error)


async def _report(
    connection: Connection, request: RoomMembers, catalog: Catalog, at: datetime
) -> ApiError | None:
    place = (request.platform, request.account)
    if place not in catalog.room_accounts:
        return conflict('the settings of the account do not say rooms = "members"')
    if request.at > at + _CLOCK_SKEW:
        return invalid("at: is in the future; compare the clock of the adapter")
    forms = {form for id_ in request.members if (form := person_form(request.platform, id_))}
    holders = await identities.find_holders(connection, *place, forms)
    is_newest = await rooms.report(
        connection,
        room_name(*place, request.scope, request.chat_id),
        (request.chat_id, request.scope),
        {form: owner_text(*place, request.scope, holders[form]) for form in forms},
        reported_at=request.at,
        until=request.until,
        longest=LONGEST_REPORT,
    )
    return None if is_newest else stale("a newer report of the room is kept")
