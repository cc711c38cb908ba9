"""Build all request handlers with their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.api.changes import (
    SESSION_CHANGES,
    SESSION_SWEEPS,
    STOPS,
    TRANSCRIPT_CHANGES,
    ChangeHandlers,
)
from chatlane.api.search import SearchHandlers
from chatlane.api.session_lists import SessionListHandlers
from chatlane.api.sessions import SessionHandlers
from chatlane.api.transcripts import TranscriptHandlers
from chatlane.decisions.operations.cancellation import StopService
from chatlane.requests.bulk_session_operations import BulkSessionService
from chatlane.requests.session_service import SessionService
from chatlane.requests.transcript_service import TranscriptService
from chatlane.search.search_sql import SearchReads
from chatlane.store.addressing import identities
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads

if TYPE_CHECKING:
    from chatlane.api.endpoint import RequestHandler
    from chatlane.api.routes import Handlers
    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.postgres.pool import Store


def every_handler(
    store: Store,
    writer: UnitOfWorkFactory,
    catalog: Catalog,
    slots: int,
    request_handler: RequestHandler,
) -> tuple[Handlers, ...]:
    """Return the handlers of all requests except turn requests, which have one handler per agent.

    Args:
        writer: Opens transactions that publish.
        slots: Number of slots over which a `stream` agent's messages are spread.
        answering: Decodes requests and encodes answers.
    """
    reads = SessionReads(store)
    transcript_desk = TranscriptService(store, writer, catalog.agents, slots)
    return (
        SessionHandlers(reads, request_handler),
        SessionListHandlers(SessionLists(store), request_handler),
        ChangeHandlers(
            SESSION_CHANGES, SessionService(writer, reads, catalog, slots).change, request_handler
        ),
        ChangeHandlers(SESSION_SWEEPS, BulkSessionService(writer).sweep, request_handler),
        ChangeHandlers(STOPS, StopService(writer).stop, request_handler),
        TranscriptHandlers(TranscriptReads(store, catalog), request_handler),
        ChangeHandlers(TRANSCRIPT_CHANGES, transcript_desk.change, request_handler),
        SearchHandlers(SearchReads(store, identities.find_owners), request_handler),
    )
