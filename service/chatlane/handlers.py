"""Everything that answers requests, put together from what it needs."""

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
from chatlane.routing.session_desk import SessionDesk
from chatlane.routing.session_sweeps import SweepDesk
from chatlane.routing.stopping import StopDesk
from chatlane.routing.transcript_desk import TranscriptDesk
from chatlane.store import identities
from chatlane.store.search import SearchReads
from chatlane.store.session_lists import SessionLists
from chatlane.store.session_reads import SessionReads
from chatlane.store.transcripts import TranscriptReads

if TYPE_CHECKING:
    from chatlane.api.answering import Answering
    from chatlane.api.routes import Handlers
    from chatlane.domain.catalog import Catalog
    from chatlane.routing.writing import Writer
    from chatlane.store.pool import Store


def every_handler(
    store: Store, writer: Writer, catalog: Catalog, slots: int, answering: Answering
) -> tuple[Handlers, ...]:
    """Return what answers all requests but those for turns, which are of one agent each.

    Args:
        writer: Opens the transactions of what publishes something.
        slots: How many slots a `stream` agent's messages are spread over.
        answering: Decodes requests and encodes answers.
    """
    reads = SessionReads(store)
    transcript_desk = TranscriptDesk(store, writer, catalog.agents, slots)
    return (
        SessionHandlers(reads, answering),
        SessionListHandlers(SessionLists(store), answering),
        ChangeHandlers(
            SESSION_CHANGES, SessionDesk(writer, reads, catalog, slots).change, answering
        ),
        ChangeHandlers(SESSION_SWEEPS, SweepDesk(writer).sweep, answering),
        ChangeHandlers(STOPS, StopDesk(writer).stop, answering),
        TranscriptHandlers(TranscriptReads(store, catalog), answering),
        ChangeHandlers(TRANSCRIPT_CHANGES, transcript_desk.change, answering),
        SearchHandlers(SearchReads(store, identities.find_owners), answering),
    )
