"""The API over a real NATS server: every request gets a reply, and only an inbox gets one."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import nats
import pytest
from nats.aio.client import Client

from chatlane.api.broker import open_api
from chatlane.api.endpoint import Handle, RequestHandler
from chatlane.api.routes import CONCURRENT, build_router
from chatlane.api.search import SearchQueries
from chatlane.api.sessions import SessionQueries
from chatlane.api.transcripts import TranscriptQueries
from chatlane.api.turns import TurnHandlers
from chatlane.domain.sessions.transcripts import Link, Version
from chatlane.errors import StoreUnavailableError
from chatlane.nats.connection import BusOptions
from chatlane.observability.metrics import Metrics
from chatlane.search.search_sql import Hit, Place
from chatlane.search.tokens import Search
from chatlane.store.conversations.session_lists import SessionPage
from chatlane.store.history.transcripts import RowsBefore
from chatlane_client import (
    ConflictingRequestError,
    RefusedRequestError,
    SessionNotFoundError,
    StaleRequestError,
    TranscriptApi,
)
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.session_changes import (
    SessionChange,
    SessionEnd,
    SessionFind,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionStop,
    SessionSwitch,
    SessionTitle,
    SessionUpdate,
)
from chatlane_schemas.session_api.session_life import (
    SessionHold,
    SessionMark,
    SessionNote,
    SessionOverride,
    SessionRelease,
    SessionRounds,
    SessionRoundsReply,
    SessionSuspend,
    SessionUnmark,
)
from chatlane_schemas.session_api.sessions import (
    ApiError,
    ApiErrorCode,
    ApiReply,
    SessionCount,
    SessionCounts,
    SessionFilter,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    AppendedRow,
    Revision,
    RowState,
    TranscriptAppend,
    TranscriptChange,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReplace,
    TranscriptReply,
    TranscriptRetry,
    TranscriptRewind,
    TranscriptSearch,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    RenewReply,
    RenewRequest,
    RenewStatus,
    StopReply,
    TakeReply,
    TurnCancel,
    TurnTake,
)
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

ReplyT = TypeVar("ReplyT", bound=Envelope)

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SESSION_ID = UUID("018f0000-0000-8000-8000-000000000001")
TURN_ID = UUID("018f0000-0000-8000-8000-0000000000aa")


def session(number: int = 1) -> SessionView:
    return SessionView(
        id=UUID(int=SESSION_ID.int - 1 + number),
        session_key=f"agent:main:telegram:bot:dm:{number}",
        agent="main",
        platform="telegram",
        started_at=AT,
        last_activity_at=AT,
        message_count=2,
    )


class FakeReads:
    """Sessions and rows in memory, with the failures a test asks for."""

    def __init__(self) -> None:
        self.sessions = [session(n) for n in range(1, 6)]
        self.failure: Exception | None = None
        self.asked_for: Person | None = None

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def find(
        self,
        session_id: UUID,
        person: Person | None = None,
        *,
        with_chain: bool = False,
        with_rooms: bool = False,
    ) -> SessionView | None:
        assert not with_chain
        assert not with_rooms
        self._check()
        self.asked_for = person
        return next((s for s in self.sessions if s.id == session_id), None)

    async def count_rounds(
        self, session_id: UUID, since: datetime | None, person: Person | None = None
    ) -> int | None:
        self._check()
        self.asked_for = person
        rounds = 1 if since else 2
        return rounds if any(s.id == session_id for s in self.sessions) else None

    async def find_by_key(
        self, session_key: str, person: Person | None = None
    ) -> SessionView | None:
        self.asked_for = person
        return next((s for s in self.sessions if s.session_key == session_key), None)

    async def find_by_title(
        self, title: str, person: Person | None = None, *, limit: int
    ) -> tuple[SessionView, ...]:
        self.asked_for = person
        return tuple(s for s in self.sessions if s.title == title)[:limit]

    async def page(self, wanted: SessionFilter, *, below: UUID | None, limit: int) -> SessionPage:
        self.asked_for = wanted.acting_for
        newest_first = sorted(self.sessions, key=lambda s: s.id, reverse=True)
        found = tuple(
            s
            for s in newest_first
            if (below is None or s.id < below) and wanted.platform in {None, s.platform}
        )
        page = found[:limit]
        return SessionPage(page, page[-1].id if len(found) > limit else None)

    async def count(self, wanted: SessionFilter) -> SessionCounts:
        self.asked_for = wanted.acting_for
        return SessionCounts(total=len(self.sessions), open=1, archived=0)


class FakeTranscripts:
    """Rows of one session in memory."""

    def __init__(self) -> None:
        self.stored = [
            TranscriptEntry(seq=seq, role=Role.USER, content=f"row {seq}", created_at=AT)
            for seq in range(1, 8)
        ]
        self.asked_for: Person | None = None

    async def version(self, session_id: UUID, person: Person | None = None) -> Version | None:
        self.asked_for = person
        return Version(0, 8) if session_id == SESSION_ID else None

    async def version_and_links(
        self, session_id: UUID, person: Person | None = None
    ) -> tuple[Version, tuple[Link, ...]] | None:
        version = await self.version(session_id, person)
        return None if version is None else (version, (Link(session_id, None, None),))

    async def rows(
        self,
        session_id: UUID,
        *,
        below_seq: int,
        limit: int,
        max_bytes: int,
        row_bytes: int,
        content_from: int | None,
        with_reasoning: bool,
        with_session_id: bool,
        for_member: bool,
    ) -> RowsBefore:
        assert not for_member
        del session_id, max_bytes, row_bytes, content_from, with_reasoning, with_session_id
        below = [row for row in reversed(self.stored) if row.seq < below_seq]
        return RowsBefore(tuple(below[:limit]), len(below) > limit)

    async def revisions(
        self, session_id: UUID, seq: int, *, before: int, limit: int
    ) -> tuple[Revision, ...]:
        del session_id
        return tuple(
            Revision(number=number, content=f"row {seq}", reason=RowState.EDITED, at=AT)
            for number in range(30, 0, -1)
            if number < before
        )[:limit]


class FakeSearch:
    """Finds the same rows for everybody, the best first."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Person | None]] = []
        self.hits = [
            Hit(1 / n, 9 - n, SESSION_ID, 0, n, "user", None, f"hit {n}", AT, None)
            for n in range(1, 4)
        ]

    async def search(
        self, search: Search, wanted: TranscriptSearch, *, behind: Place, limit: int
    ) -> tuple[Hit, ...]:
        self.asked.append((search.tsquery(), wanted.acting_for))
        # As near to each other as four bytes tell apart.
        left = [hit for hit in self.hits if (hit.rank, hit.id) < (behind.rank - 1e-6, behind.id)]
        return tuple(left[:limit])


class FakeService:
    """Changes nothing, and keeps the requests and their callers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, Envelope]] = []
        self.error: ApiError | None = None

    async def change(self, principal: str, request: Envelope, digest: bytes) -> ApiReply:
        del digest
        self.requests.append((principal, request))
        if isinstance(request, TranscriptChange):
            return TranscriptChanged(
                id="c1", at=AT, session_id=request.session_id, error=self.error
            )
        if isinstance(request, SessionStop | TurnCancel):
            return StopReply(id="a", at=AT, session_id=SESSION_ID, was_running=True)
        return SessionReply(id="a", at=AT, session=session())


class FakeDesk:
    """Grants everything once all claims of a test have arrived."""

    def __init__(self) -> None:
        self.together = 1
        self.waiting: list[str] = []
        self.everyone = asyncio.Event()

    async def claim(self, agent: str, request: ClaimRequest) -> ClaimReply:
        self.waiting.append(agent)
        if len(self.waiting) == self.together:
            self.everyone.set()
        await self.everyone.wait()
        return ClaimReply(id=request.id, at=AT, status=ClaimStatus.TAKEN, turn_id=request.turn_id)

    async def renew(self, agent: str, request: RenewRequest) -> RenewReply:
        del agent
        return RenewReply(id=request.id, at=AT, status=RenewStatus.RENEWED, lease_ms=30_000)

    async def take(self, agent: str, request: TurnTake) -> TakeReply:
        del agent
        return TakeReply(id=request.id, at=AT, status=RenewStatus.RENEWED)


class Api:
    """A running API and a caller."""

    def __init__(self, client: Client) -> None:
        self.client = client
        # Fakes of the classes that read and change the store.
        self.reads: Any = FakeReads()
        self.transcripts: Any = FakeTranscripts()
        self.search: Any = FakeSearch()
        self.desk: Any = FakeDesk()
        self.service = FakeService()
        self.metrics = Metrics()

    def handlers(self, request_handler: RequestHandler) -> dict[str, Handle]:
        return (
            request_handler.changes(self.service.change)
            | request_handler.reads(SessionQueries(self.reads, self.reads).table())
            | request_handler.reads_of_callers(TranscriptQueries(self.transcripts).table())
            | request_handler.reads(SearchQueries(self.search).table())
        )

    async def ask(self, subject: str, request: Envelope | bytes, reply: type[ReplyT]) -> ReplyT:
        body = encode(request) if isinstance(request, Envelope) else request
        answer = await self.client.request(subject, body, timeout=5)
        return decode(reply, answer.data)


@pytest.fixture
async def api(nats_url: str) -> AsyncIterator[Api]:
    client = await nats.connect(nats_url)
    api = Api(client)
    request_handler = RequestHandler(api.metrics)
    router = build_router(api.handlers(request_handler))
    turns = [TurnHandlers("main", api.desk, request_handler, api.metrics)]
    async with open_api(BusOptions(url=nats_url), router, turns, on_closed=lambda: None):
        yield api
    await client.close()


def api_subject(noun: str, verb: str, agent: str | None = None) -> str:
    return subjects.api("someone", noun, verb, agent)


async def test_session_is_found_by_its_id(api: Api) -> None:
    request = SessionGet(id="r1", at=AT, session_id=SESSION_ID)

    reply = await api.ask(api_subject("session", "get"), request, SessionReply)

    assert session() == reply.session
    assert reply.error is None


async def test_unknown_id_is_an_error_and_unknown_key_is_not(api: Api) -> None:
    get = SessionGet(id="r1", at=AT, session_id=UUID(int=9))
    peek = SessionPeek(id="r2", at=AT, session_key="agent:main:telegram:bot:dm:none")

    got = await api.ask(api_subject("session", "get"), get, SessionReply)
    peeked = await api.ask(api_subject("session", "peek"), peek, SessionReply)

    assert got.error is not None
    assert got.error.code == ApiErrorCode.NOT_FOUND
    assert (peeked.error, peeked.session) == (None, None)


async def test_reads_are_told_whom_they_are_for(api: Api) -> None:
    person = Person(platform="telegram", account="bot", id="701")
    requests: list[tuple[str, Envelope]] = [
        ("get", SessionGet(id="r1", at=AT, session_id=SESSION_ID, acting_for=person)),
        ("peek", SessionPeek(id="r2", at=AT, session_key="k", acting_for=person)),
        ("find", SessionFind(id="r3", at=AT, title="plan", acting_for=person)),
        ("list", SessionList(id="r4", at=AT, acting_for=person)),
        ("count", SessionCount(id="r5", at=AT, acting_for=person)),
    ]
    for verb, request in requests:
        api.reads.asked_for = None
        reply = await api.ask(api_subject("session", verb), request, ApiReply)
        assert reply.error is None
        assert person == api.reads.asked_for


async def test_changes_are_told_who_asks_by_the_subject(api: Api) -> None:
    changes: dict[str, SessionChange] = {
        "update": SessionUpdate(id="r1", at=AT, session_id=SESSION_ID, cwd="/a"),
        "title": SessionTitle(id="r2", at=AT, session_id=SESSION_ID, title="plan"),
        "end": SessionEnd(id="r3", at=AT, session_id=SESSION_ID),
        "reopen": SessionReopen(id="r4", at=AT, session_id=SESSION_ID),
        "reset": SessionReset(id="r5", at=AT, session_id=SESSION_ID),
        "switch": SessionSwitch(
            id="r6",
            at=AT,
            session_id=SESSION_ID,
            session_key="key",
            expected_session_id=SESSION_ID,
        ),
        "fork": SessionFork(id="r7", at=AT, session_id=SESSION_ID, through_seq=4),
        "suspend": SessionSuspend(id="r6", at=AT, session_id=SESSION_ID),
        "mark": SessionMark(id="r7", at=AT, session_id=SESSION_ID),
        "unmark": SessionUnmark(id="r8", at=AT, session_id=SESSION_ID),
        "hold": SessionHold(id="r9", at=AT, session_id=SESSION_ID, name="job", lasts_s=1),
        "release": SessionRelease(id="r10", at=AT, session_id=SESSION_ID, name="job"),
        "override": SessionOverride(id="r11", at=AT, session_id=SESSION_ID),
        "note": SessionNote(id="r12", at=AT, session_id=SESSION_ID, note="wait"),
    }
    for verb, change in changes.items():
        reply = await api.ask(api_subject("session", verb), change, SessionReply)
        assert reply.session == session()

    assert api.service.requests == [("someone", change) for change in changes.values()]


async def test_stops_are_told_who_asks_by_the_subject(api: Api) -> None:
    stop = SessionStop(id="r1", at=AT, session_id=SESSION_ID)
    cancel = TurnCancel(id="r2", at=AT, turn_id=TURN_ID)
    assert (await api.ask(api_subject("session", "stop"), stop, StopReply)).was_running
    assert (await api.ask(api_subject("turn", "cancel"), cancel, StopReply)).was_running
    assert api.service.requests == [("someone", stop), ("someone", cancel)]


async def test_rounds_are_counted(api: Api) -> None:
    async def rounds(since: datetime | None) -> int | None:
        request = SessionRounds(id="r1", at=AT, session_id=SESSION_ID, since=since)
        return (await api.ask(api_subject("session", "rounds"), request, SessionRoundsReply)).rounds

    assert await rounds(None) == 2
    assert await rounds(AT) == 1
    unknown = SessionRounds(id="r1", at=AT, session_id=UUID(int=9))
    refused = await api.ask(api_subject("session", "rounds"), unknown, ApiReply)
    assert refused.error is not None
    assert refused.error.code is ApiErrorCode.NOT_FOUND


async def test_list_is_read_page_by_page(api: Api) -> None:
    seen: list[UUID] = []
    cursor = None
    for _ in range(3):
        request = SessionList(id="r1", at=AT, limit=2, cursor=cursor)
        reply = await api.ask(api_subject("session", "list"), request, SessionListReply)
        seen += [found.id for found in reply.sessions]
        cursor = reply.next_cursor

    assert cursor is None
    assert sorted((s.id for s in api.reads.sessions), reverse=True) == seen


async def test_foreign_cursor_is_refused(api: Api) -> None:
    request = SessionList(id="r1", at=AT, cursor="abc")

    reply = await api.ask(api_subject("session", "list"), request, SessionListReply)

    assert reply.error is not None
    assert reply.error.code == ApiErrorCode.INVALID


async def test_transcript_comes_in_order_from_the_end(api: Api) -> None:
    request = TranscriptLoad(id="r1", at=AT, session_id=SESSION_ID, limit=3)

    newest = await api.ask(api_subject("transcript", "load"), request, TranscriptReply)
    older = await api.ask(
        api_subject("transcript", "load"),
        request.model_copy(update={"before_seq": newest.next_before_seq, "limit": 10}),
        TranscriptReply,
    )

    assert [row.seq for row in newest.rows] == [5, 6, 7]
    assert [row.seq for row in older.rows] == [1, 2, 3, 4]
    assert older.next_before_seq is None


async def test_what_a_row_said_before_comes_newest_first_and_in_pages(api: Api) -> None:
    transcripts = TranscriptApi(api.client, principal="someone")

    numbers = [one.number async for one in transcripts.revisions(SESSION_ID, 3)]

    assert numbers == list(range(30, 0, -1))
    with pytest.raises(SessionNotFoundError):
        await anext(transcripts.revisions(uuid4(), 3))


async def test_a_change_is_told_who_asks(api: Api) -> None:
    request = TranscriptRewind(id="r1", at=AT, session_id=SESSION_ID)

    reply = await api.ask(api_subject("transcript", "rewind"), request, TranscriptChanged)

    assert reply.session_id == SESSION_ID
    assert api.service.requests == [("someone", request)]


async def test_the_client_asks_what_it_says(api: Api) -> None:
    transcripts = TranscriptApi(api.client, principal="someone")
    row = AppendedRow(role=Role.USER, content="hi")

    pages = [page async for page in transcripts.pages(SESSION_ID, page_size=4, whole_chain=True)]
    version = await transcripts.version(SESSION_ID)
    await transcripts.append(SESSION_ID, [row], request_id="mine")
    await transcripts.replace(SESSION_ID, [row], expected_version=version)
    await transcripts.compact(SESSION_ID, [row], through_seq=5, expected_version=version)
    await transcripts.rewind(SESSION_ID, turns=2)
    await transcripts.retry(SESSION_ID, expected_version=version)

    assert [[row.seq for row in page] for page in pages] == [[4, 5, 6, 7], [1, 2, 3]]
    append, replace, compact, rewind, retry = (request for _, request in api.service.requests)
    assert isinstance(append, TranscriptAppend)
    assert (append.id, append.rows) == ("mine", (row,))
    assert isinstance(replace, TranscriptReplace)
    assert replace.expected_version == "0.8"
    assert isinstance(compact, TranscriptCompact)
    assert (compact.rows, compact.through_seq) == ((row,), 5)
    assert isinstance(rewind, TranscriptRewind)
    assert rewind.turns == 2
    assert isinstance(retry, TranscriptRetry)
    assert retry.expected_version == version


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ApiErrorCode.CONFLICT, ConflictingRequestError),
        (ApiErrorCode.STALE, StaleRequestError),
        (ApiErrorCode.NOT_FOUND, SessionNotFoundError),
        (ApiErrorCode.INVALID, RefusedRequestError),
    ],
)
async def test_the_client_raises_what_it_is_refused_for(
    api: Api, code: ApiErrorCode, expected: type[RefusedRequestError]
) -> None:
    api.service.error = ApiError(code=code, message="no")

    with pytest.raises(expected, match="no"):
        await TranscriptApi(api.client, principal="someone").rewind(SESSION_ID)


async def test_page_that_would_be_too_large_is_cut(api: Api) -> None:
    api.transcripts.stored = [
        row.model_copy(update={"content": "x" * 200_000}) for row in api.transcripts.stored
    ]
    request = TranscriptLoad(id="r1", at=AT, session_id=SESSION_ID)

    reply = await api.ask(api_subject("transcript", "load"), request, TranscriptReply)

    assert [row.seq for row in reply.rows] == [6, 7]
    assert reply.next_before_seq == 6


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"v":2}', b'{"v":1,"id":"a"}'])
async def test_bad_request_is_answered_with_an_error(api: Api, body: bytes) -> None:
    reply = await api.ask(api_subject("session", "get"), body, ApiReply)

    assert reply.error is not None
    assert reply.error.code == ApiErrorCode.INVALID


async def test_store_that_is_away_is_said_so(api: Api) -> None:
    api.reads.failure = StoreUnavailableError("57P01")
    request = SessionGet(id="r1", at=AT, session_id=SESSION_ID)

    reply = await api.ask(api_subject("session", "get"), request, SessionReply)

    assert reply.error is not None
    assert reply.error.code == ApiErrorCode.UNAVAILABLE


async def test_request_in_work_is_answered_before_the_api_stops(api: Api, nats_url: str) -> None:
    desk: Any = FakeDesk()
    desk.together = 2
    request_handler = RequestHandler(api.metrics)
    router = build_router(api.handlers(request_handler))
    turns = [TurnHandlers("other", desk, request_handler, api.metrics)]
    request = ClaimRequest(id="c1", at=AT, turn_id=TURN_ID, worker="w")

    async with open_api(BusOptions(url=nats_url), router, turns, on_closed=lambda: None):
        asking = asyncio.create_task(
            api.ask(api_subject("turn", "claim", "other"), request, ClaimReply)
        )
        await eventually(lambda: desk.waiting)
        asyncio.get_running_loop().call_later(0.2, desk.everyone.set)

    assert (await asking).status is ClaimStatus.TAKEN


async def test_what_was_asked_before_the_api_stops_is_answered(api: Api, nats_url: str) -> None:
    """Who gets no answer asks again after a second; nobody else was asked."""
    desk: Any = FakeDesk()
    desk.together = 2 * CONCURRENT
    request_handler = RequestHandler(api.metrics)
    router = build_router(api.handlers(request_handler))
    turns = [TurnHandlers("other", desk, request_handler, api.metrics)]
    subject = api_subject("turn", "claim", "other")
    requests = [
        ClaimRequest(id=f"c{n}", at=AT, turn_id=TURN_ID, worker="w") for n in range(CONCURRENT + 50)
    ]

    async with open_api(BusOptions(url=nats_url), router, turns, on_closed=lambda: None):
        asking = asyncio.gather(*(api.ask(subject, r, ClaimReply) for r in requests))
        await eventually(lambda: len(desk.waiting) == CONCURRENT)
        asyncio.get_running_loop().call_later(0.2, desk.everyone.set)

    assert [reply.id for reply in await asking] == [r.id for r in requests]


async def test_bug_is_answered_without_its_text(api: Api) -> None:
    api.reads.failure = KeyError("secret words")
    request = SessionGet(id="r1", at=AT, session_id=SESSION_ID)

    reply = await api.ask(api_subject("session", "get"), request, SessionReply)

    assert reply.error is not None
    assert "secret" not in reply.error.message


async def test_claims_are_decided_side_by_side(api: Api) -> None:
    """The desk shares a transaction between claims only if they reach it together."""
    api.desk.together = 100
    subject = api_subject("turn", "claim", "main")
    requests = [ClaimRequest(id=f"c{n}", at=AT, turn_id=TURN_ID, worker="w") for n in range(100)]

    replies = await asyncio.gather(*(api.ask(subject, r, ClaimReply) for r in requests))

    assert [r.id for r in requests] == [reply.id for reply in replies]
    assert api.desk.waiting == ["main"] * 100
    assert b'chatlane_turn_claims_total{agent="main",status="taken"} 100.0' in api.metrics.render()


async def test_renewal_is_answered(api: Api) -> None:
    request = RenewRequest(id="n1", at=AT, turn_id=TURN_ID, attempt=1, token=str(TURN_ID))

    reply = await api.ask(api_subject("turn", "renew", "main"), request, RenewReply)

    assert (reply.status, reply.lease_ms) == (RenewStatus.RENEWED, 30_000)


async def test_agent_that_is_not_declared_has_nobody_to_ask(api: Api) -> None:
    request = ClaimRequest(id="c1", at=AT, turn_id=TURN_ID, worker="w")

    with pytest.raises(nats.errors.NoRespondersError):
        await api.ask(api_subject("turn", "claim", "other"), request, ClaimReply)


async def test_answer_goes_to_an_inbox_only(api: Api) -> None:
    """Else a caller could have a router speak where the caller itself may not."""
    overheard = await api.client.subscribe("chat.v1.result.>")
    request = encode(SessionGet(id="r1", at=AT, session_id=SESSION_ID))
    subject = api_subject("session", "get")

    await api.client.publish(subject, request, reply=f"chat.v1.result.main.{SESSION_ID}")
    await api.ask(subject, request, SessionReply)

    with pytest.raises(nats.errors.TimeoutError):
        await overheard.next_msg(timeout=timedelta(milliseconds=200).total_seconds())


@pytest.mark.parametrize("reply", ["", "$JS.ACK.OUTBOUND.telegram-bot.1.1.1.1.0", "chat.v1.dead.x"])
async def test_what_nobody_waits_for_is_not_done(api: Api, reply: str) -> None:
    """What JetStream delivers where it was told to is no request of whom the subject names."""
    request = encode(SessionEnd(id="r1", at=AT, session_id=SESSION_ID))
    others = encode(SessionEnd(id="r2", at=AT, session_id=SESSION_ID))

    await api.client.publish(api_subject("session", "end"), request, reply=reply)
    await api.ask(api_subject("session", "end"), others, SessionReply)

    assert [asked.id for _, asked in api.service.requests] == ["r2"]


async def test_one_of_several_routers_answers(api: Api, nats_url: str) -> None:
    request_handler = RequestHandler(api.metrics)
    router = build_router(api.handlers(request_handler))
    request = SessionGet(id="r1", at=AT, session_id=SESSION_ID)
    inbox = api.client.new_inbox()
    answers = await api.client.subscribe(inbox)

    async with open_api(BusOptions(url=nats_url), router, on_closed=lambda: None):
        await api.client.publish(api_subject("session", "get"), encode(request), reply=inbox)
        await answers.next_msg(timeout=5)
        with pytest.raises(nats.errors.TimeoutError):
            await answers.next_msg(timeout=timedelta(milliseconds=200).total_seconds())


async def test_a_search_is_read_page_by_page(api: Api) -> None:
    person = Person(platform="telegram", account="bot", id="701")
    transcripts = TranscriptApi(api.client, principal="someone", acting_for=person)

    found = [hit async for hit in transcripts.search("hit -miss", page_size=1)]

    assert [hit.snippet for hit in found] == ["hit 1", "hit 2", "hit 3"]
    assert api.search.asked == [("('hit') & !('miss')", person)] * 3


async def test_a_search_for_nothing_is_refused(api: Api) -> None:
    transcripts = TranscriptApi(api.client, principal="someone")

    for query in ("...", "-miss"):
        with pytest.raises(RefusedRequestError):
            await anext(transcripts.search(query))
    assert api.search.asked == []
