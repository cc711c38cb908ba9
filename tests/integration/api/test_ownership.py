"""Who may ask what: only what NATS pins in a subject is believed.

The same handlers as a router's, on a real Postgres; a request says on which subject it came.
"""

from typing import Any
from uuid import UUID

import pytest

from chatlane.api.endpoint import ApiRequest, RequestHandler
from chatlane.api.sessions import SessionQueries
from chatlane.api.transcripts import TranscriptQueries
from chatlane.domain.catalog import Agent
from chatlane.observability.metrics import Metrics
from chatlane.requests.change_service import ChangeService
from chatlane.store.conversations.session_lists import SessionLists
from chatlane.store.conversations.session_reads import SessionReads
from chatlane.store.history.transcripts import TranscriptReads
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import Envelope, new_envelope_id
from chatlane_schemas.session_api.people import Person, PersonId
from chatlane_schemas.session_api.session_changes import SessionEnd
from chatlane_schemas.session_api.sessions import ApiErrorCode, ApiReply, SessionGet
from chatlane_schemas.session_api.transcripts import TranscriptLoad
from tests.integration.turns.test_resets import KernelWith
from tests.support.worlds.kernel import DAY, SLOTS, Kernel, catalog, event

pytestmark = pytest.mark.integration

ANN = Person(platform="telegram", account="bot", id="701")
BOTH = Person(
    platform="web",
    account="site",
    id="ann",
    also=(PersonId(platform="telegram", account="bot", id="701"),),
)
OTHER_ACCOUNT = Person(platform="telegram", account="two", id="701")
BOT = ("telegram", "bot")
SITE = ("web", "site")


class Api:
    """The handlers, asked on subjects of any form."""

    def __init__(self, kernel: Kernel, people_of: set[tuple[str, str]] | None = None) -> None:
        reads = SessionReads(kernel.store)
        request_handler = RequestHandler(
            Metrics(),
            agent_of=reads.agent_of,
            people_of=lambda *account: people_of or () if account == SITE else (),
        )
        service = ChangeService(kernel.store, kernel.writer, kernel.catalog, SLOTS)
        transcripts = TranscriptQueries(TranscriptReads(kernel.store))
        handlers = request_handler.changes(service.change)
        handlers |= request_handler.reads(SessionQueries(reads, SessionLists(kernel.store)).table())
        handlers |= request_handler.reads_of_callers(transcripts.table())
        self._handlers = {
            SessionGet: handlers["session.get"],
            TranscriptLoad: handlers["transcript.load"],
            SessionEnd: handlers["session.end"],
        }

    async def refusal(self, request: Envelope, **subject: Any) -> ApiErrorCode | None:  # noqa: ANN401 - what a subject says
        asked = ApiRequest("someone", encode(request), **subject)
        reply = decode(ApiReply, await self._handlers[type(request)](asked))
        return None if reply.error is None else reply.error.code


def about(session: UUID, person: Person | None = None) -> list[Envelope]:
    """Return one request of each kind: to read, to read the transcript, to change."""
    return [
        model(id=new_envelope_id(), at=DAY, session_id=session, acting_for=person)
        for model in (SessionGet, TranscriptLoad, SessionEnd)
    ]


async def test_who_acts_for_people_names_one_of_the_account(kernel: Kernel) -> None:
    session = (await kernel.say(event(chat="701", user="701", mid="1", text="a"))).session
    api = Api(kernel)

    for request in (*about(session), *about(session, OTHER_ACCOUNT)):
        assert await api.refusal(request, account=BOT) is ApiErrorCode.FORBIDDEN
    for request in about(UUID(int=9), ANN):
        assert await api.refusal(request, account=BOT) is ApiErrorCode.NOT_FOUND
    for request in about(session, ANN):
        assert await api.refusal(request, account=BOT) is None


async def test_other_ids_of_a_person_count_where_the_account_allows_theirs(kernel: Kernel) -> None:
    session = (await kernel.say(event(chat="701", user="701", mid="1", text="a"))).session
    other = (await kernel.say(event(chat="702", user="702", mid="2", text="b"))).session

    for allowed in (None, {("telegram", "two")}):
        for request in about(session, BOTH):
            refusal = await Api(kernel, allowed).refusal(request, account=SITE)
            assert refusal is ApiErrorCode.FORBIDDEN
    api = Api(kernel, {BOT})
    swapped = Person(
        **BOTH.ids[1].model_dump(), also=(PersonId(**BOTH.model_dump(exclude={"also"})),)
    )
    for request in about(session, swapped):
        assert await api.refusal(request, account=BOT) is ApiErrorCode.FORBIDDEN
    for request in about(other, BOTH):
        assert await api.refusal(request, account=SITE) is ApiErrorCode.NOT_FOUND
    for request in about(session, BOTH):
        assert await api.refusal(request, account=SITE) is None


async def test_a_worker_finds_the_sessions_of_its_agent_only(kernel_with: KernelWith) -> None:
    kernel = await kernel_with(catalog(agents=[Agent("notes")], profiles={"notes": "notes"}))
    said = event(chat="701", user="701", mid="1", text="a", profile="notes")
    notes = (await kernel.say(said)).session
    api = Api(kernel)

    for request in (*about(notes), *about(UUID(int=9))):
        assert await api.refusal(request, agent="main") is ApiErrorCode.NOT_FOUND
    for request in about(notes):
        assert await api.refusal(request, agent="notes") is None


async def test_who_is_bound_to_nothing_asks_for_anybody(kernel: Kernel) -> None:
    session = (await kernel.say(event(chat="701", user="701", mid="1", text="a"))).session
    api = Api(kernel)

    for request in (*about(session), *about(session, ANN)):
        assert await api.refusal(request) is None
    for request in about(session, OTHER_ACCOUNT):
        assert await api.refusal(request) is ApiErrorCode.NOT_FOUND
