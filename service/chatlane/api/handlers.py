"""Build the handlers of all requests with their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.api.deliveries import DeliveryQueries
from chatlane.api.operators.dead_letters import DeadLetterQueries
from chatlane.api.operators.explanations import ExplanationQueries
from chatlane.api.operators.service_state import ServiceQueries
from chatlane.api.projects import ProjectQueries
from chatlane.api.questions import QuestionQueries
from chatlane.api.search import SearchQueries
from chatlane.api.sessions import SessionQueries
from chatlane.api.steps import StepQueries
from chatlane.api.transcripts import TranscriptQueries
from chatlane.privacy.erasure_requests_sql import ErasureQueries
from chatlane.requests.change_service import ChangeService
from chatlane.search.search_sql import SearchReads
from chatlane.store.addressing import identities
from chatlane.store.addressing.rooms import RoomReads
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.session_api.person_state import PersonErasure

if TYPE_CHECKING:
    from chatlane.api.deliveries import FindNewest
    from chatlane.api.endpoint import Handle, RequestHandler
    from chatlane.api.operators.service_state import StreamReads
    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.importer.exports.uploads import ImportLimits
    from chatlane.postgres.pool import Store


def every_handler(
    store: Store,
    writer: UnitOfWorkFactory,
    catalog: Catalog,
    slots: int,
    request_handler: RequestHandler,
    *,
    find_newest: FindNewest,
    streams: StreamReads,
    import_limits: ImportLimits,
) -> dict[str, Handle]:
    """Return the handlers of all requests except turn requests, which have one handler per agent.

    Args:
        writer: Opens transactions that publish.
        slots: Number of slots over which a `stream` agent's messages are spread.
        request_handler: Decodes requests and encodes replies.
        find_newest: Returns the newest message of a chat in the inbound log.
        streams: Reads the logs and durables.
        import_limits: What a person may import in total.
    """
    rooms = RoomReads(catalog.room_accounts)
    transcripts = TranscriptQueries(TranscriptReads(store, catalog, rooms), catalog)
    reads = (
        SessionQueries(SessionReads(store, rooms), SessionLists(store, rooms)),
        SearchQueries(SearchReads(store, identities.find_owners, rooms.find)),
        DeliveryQueries(store, SessionReads(store), find_newest),
        ProjectQueries(store),
        QuestionQueries(store, writer, SessionReads(store)),
        DeadLetterQueries(store),
        StepQueries(store),
        ExplanationQueries(store, catalog),
        ServiceQueries(store, catalog, streams),
    )
    changes = ChangeService(store, writer, catalog, slots, import_limits=import_limits)
    handlers = request_handler.changes(changes.change)
    handlers |= request_handler.reads(
        {"person.erasure": (PersonErasure, ErasureQueries(store).find)}
    )
    for queries in reads:
        handlers |= request_handler.reads(queries.table())
    return handlers | request_handler.reads_of_callers(transcripts.table())
