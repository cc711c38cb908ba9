"""A router in memory: it keeps the contract and nothing else.

One process, no database, and a chat is a session. What the tests of the client ask of it they
ask of the real router as well; the few faults it can be told to have are its own.
"""

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final, TypeVar
from uuid import UUID, uuid4

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane.domain.catalog import Agent
from chatlane.nats.tasks import end_task
from chatlane_client.transport.connection import open_connection, until_connected
from chatlane_client.transport.retry import CancellationGuard
from chatlane_client.transport.wire import publish_stored
from chatlane_schemas import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    Envelope,
    HistoryPointer,
    InboundEvent,
    OutboundMessage,
    Outcome,
    Part,
    RenewReply,
    RenewRequest,
    RenewStatus,
    ResultMessage,
    Role,
    RoutedMessage,
    Source,
    TranscriptRow,
    TurnMessage,
    TurnNotice,
    decode,
    encode,
    new_envelope_id,
    source_of,
)
from chatlane_schemas.session_api.sessions import (
    ApiError,
    ApiErrorCode,
    ApiReply,
    SessionGet,
    SessionList,
    SessionListReply,
    SessionPeek,
    SessionReply,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    TranscriptEntry,
    TranscriptLoad,
    TranscriptReply,
)
from chatlane_schemas.topology import subjects

_RETRY_PAUSE: Final = timedelta(milliseconds=100)
_POLL: Final = timedelta(milliseconds=10)

RequestT = TypeVar("RequestT", bound=Envelope)


def _new_fields() -> tuple[str, datetime]:
    return new_envelope_id(), datetime.now(UTC)


@dataclass
class Faults:
    """What goes wrong, how many times more."""

    lost_claim_replies: int = 0
    incomplete_claim_replies: int = 0
    lost_renew_replies: int = 0
    unavailable_answers: int = 0


@dataclass
class FakeTurn:
    session: "FakeSession"
    messages: list[TurnMessage]
    id: UUID = field(default_factory=uuid4)
    state: str = "ready"
    dispatch: int = 0
    attempt: int = 0
    token: str = ""
    claim_id: str = ""
    lease_until: float = 0.0

    @property
    def first_seq(self) -> int:
        return self.messages[0].seq


@dataclass
class FakeSession:
    key: str
    agent: Agent
    source: Source
    id: UUID = field(default_factory=uuid4)
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    rows: list[TranscriptEntry] = field(default_factory=list)
    waiting: list[InboundEvent] = field(default_factory=list)
    turn: FakeTurn | None = None
    out_seq: int = 0
    asked: dict[str, Source] = field(default_factory=dict)
    answered: set[tuple[str, int]] = field(default_factory=set)

    def add_row(self, row: TranscriptRow, turn_id: UUID | None = None) -> int:
        seq = len(self.rows) + 1
        self.rows.append(
            TranscriptEntry(
                seq=seq,
                role=row.role,
                content=row.content,
                tool_calls=row.tool_calls,
                tool_call_id=row.tool_call_id,
                tool_name=row.tool_name,
                turn_id=turn_id,
                created_at=datetime.now(UTC),
            )
        )
        return seq

    def take_waiting(self) -> list[TurnMessage]:
        """Give what waits its place in the transcript."""
        events, self.waiting = self.waiting, []
        return [
            TurnMessage(
                id=uuid4(),
                seq=self.add_row(TranscriptRow(role=Role.USER, content=event.text)),
                text=event.text,
                source=source_of(event),
                stored_at=event.at,
            )
            for event in events
        ]

    def view(self) -> SessionView:
        return SessionView(
            id=self.id,
            session_key=self.key,
            agent=self.agent.name,
            platform=self.source.platform,
            started_at=self.started_at,
            last_activity_at=self.started_at,
            message_count=len(self.rows),
            is_busy=self.turn is not None,
        )


class FakeRouter:
    """Sessions, turns and outbound numbers; they outlive its own stops."""

    def __init__(self, url: str, agents: Iterable[Agent], slots: int) -> None:
        self.faults = Faults()
        self.claims: list[ClaimRequest] = []
        self.renewals = 0
        self.told_begun: list[tuple[int, bool | None]] = []
        self.results: list[ResultMessage] = []
        self._url = url
        self._slots = slots
        self._agents = {agent.name: agent for agent in agents}
        self._sessions: dict[str, FakeSession] = {}
        self._turns: dict[UUID, FakeTurn] = {}
        self._seen: set[str] = set()
        self._handled = {"INBOUND": 0, "RESULTS": 0}
        self._outbox: deque[tuple[str, Envelope]] = deque()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Route until the end of the block."""
        async with open_connection(self._url, name="router") as client:
            for method, handle in self._methods():
                await client.subscribe(f"chat.v1.api.*.{method}", "routers", cb=handle)
            await client.flush()
            loops = [
                asyncio.create_task(self._read(client, "INBOUND", self._route)),
                asyncio.create_task(self._read(client, "RESULTS", self._settle)),
                asyncio.create_task(self._relay(client)),
                asyncio.create_task(self._watch_leases()),
            ]
            try:
                yield
            finally:
                await asyncio.gather(*map(end_task, loops))

    @property
    def has_open_turn(self) -> bool:
        """Whether workers were told of a turn that nobody has claimed."""
        return not self._outbox and any(turn.state == "ready" for turn in self._turns.values())

    def take_away_turns(self) -> None:
        """Let every running turn go to another attempt, as an operator might."""
        for turn in self._turns.values():
            if turn.state == "claimed":
                turn.token = ""
                turn.lease_until = monotonic()

    # The logs and the outbox.

    async def _read(
        self, client: Client, stream: str, handle: Callable[[str, bytes], None]
    ) -> None:
        """Handle a log in order; the position moves together with what was decided."""
        guard = CancellationGuard()
        while True:
            guard.check()
            await until_connected(client)
            try:
                raw = await client.jetstream().get_msg(stream, self._handled[stream] + 1)
            except nats.errors.Error:
                await asyncio.sleep(_POLL.total_seconds())
                continue
            handle(raw.subject or "", raw.data or b"")
            self._handled[stream] += 1

    async def _relay(self, client: Client) -> None:
        guard = CancellationGuard()
        while True:
            guard.check()
            if self._outbox:
                await publish_stored(client, *self._outbox[0])
                self._outbox.popleft()
            else:
                await asyncio.sleep(_POLL.total_seconds())

    # Decisions.

    def _route(self, _: str, body: bytes) -> None:
        event = decode(InboundEvent, body)
        if event.receipt is not None:
            return
        if event.id in self._seen:
            return
        self._seen.add(event.id)
        session = self._session(event)
        if session.agent.delivery == "stream":
            self._hand_over(session, event)
        else:
            session.waiting.append(event)
            self._open_turn(session)

    def _session(self, event: InboundEvent) -> FakeSession:
        chat = event.chat.id if event.chat else ""
        key = f"agent:{event.profile or 'main'}:{event.platform}:{event.account}:dm:{chat}"
        agent = self._agents[event.profile or "main"]
        return self._sessions.setdefault(key, FakeSession(key, agent, source_of(event)))

    def _hand_over(self, session: FakeSession, event: InboundEvent) -> None:
        row = TranscriptRow(role=Role.USER, content=event.text)
        routed = RoutedMessage(
            id=str(uuid4()),
            at=event.at,
            session_id=session.id,
            session_key=session.key,
            agent=session.agent.name,
            seq=session.add_row(row),
            source=source_of(event),
            text=event.text,
            stored_at=event.at,
        )
        session.asked[routed.id] = routed.source
        slot = subjects.slot_of(session.id, self._slots)
        self._outbox.append((subjects.routed(session.agent.name, slot, session.id), routed))

    def _open_turn(self, session: FakeSession) -> None:
        if session.turn is None and session.waiting:
            turn = session.turn = FakeTurn(session, [])
            self._turns[turn.id] = turn
            self._notify(turn)

    def _notify(self, turn: FakeTurn) -> None:
        turn.state = "ready"
        turn.dispatch += 1
        notice = TurnNotice(
            id=f"turn:{turn.id}:{turn.dispatch}",
            at=datetime.now(UTC),
            turn_id=turn.id,
            session_id=turn.session.id,
            agent=turn.session.agent.name,
            dispatch=turn.dispatch,
        )
        self._outbox.append((subjects.turn(notice.agent), notice))

    def _settle(self, _: str, body: bytes) -> None:
        result = decode(ResultMessage, body)
        self.results.append(result)
        if result.turn_id is None:
            self._answer_stream(result)
            return
        turn = self._turns[result.turn_id]
        if turn.state == "done" or (result.attempt, result.token) != (turn.attempt, turn.token):
            return
        if result.outcome is Outcome.FAILED and result.retry and turn.attempt < 3:
            turn.token = ""
            turn.lease_until = monotonic() + _RETRY_PAUSE.total_seconds()
        else:
            self._finish(turn, result)

    def _finish(self, turn: FakeTurn, result: ResultMessage) -> None:
        session = turn.session
        turn.state = "done"
        spoken = [TranscriptRow(role=Role.ASSISTANT, content=part.text) for part in result.parts]
        for row in result.transcript or spoken:
            session.add_row(row, turn.id)
        parts = result.parts
        if result.outcome is Outcome.FAILED:
            parts = (Part(text="Sorry, I could not answer this."),)
        for number, part in enumerate(parts):
            self._say(session, turn.messages[-1].source, number, part)
        session.turn = None
        self._open_turn(session)

    def _answer_stream(self, result: ResultMessage) -> None:
        session = next(it for it in self._sessions.values() if it.id == result.session_id)
        question = (result.reply_to or "", result.part)
        if question in session.answered:
            return
        session.answered.add(question)
        session.add_row(TranscriptRow(role=Role.ASSISTANT, content=result.text))
        self._say(session, session.asked[question[0]], result.part, Part(text=result.text))

    def _say(self, session: FakeSession, target: Source, number: int, part: Part) -> None:
        session.out_seq += 1
        message = OutboundMessage(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=session.id,
            out_seq=session.out_seq,
            agent=session.agent.name,
            target=target,
            reply_to=target.message_id,
            part=number,
            text=part.text,
            attachments=part.attachments,
        )
        chat = subjects.chat_token(target.chat.id if target.chat else None)
        self._outbox.append((subjects.outbound(target.platform, target.account, chat), message))

    async def _watch_leases(self) -> None:
        while True:
            await asyncio.sleep(_POLL.total_seconds())
            for turn in self._turns.values():
                if turn.state == "claimed" and turn.lease_until <= monotonic():
                    self._notify(turn)

    # Requests.

    def _methods(self) -> list[tuple[str, Callable[[Msg], Awaitable[None]]]]:
        def request_handler(
            model: type[RequestT], answer: Callable[[RequestT], Envelope | None]
        ) -> Callable[[Msg], Awaitable[None]]:
            async def handle(request: Msg) -> None:
                reply = self._fault() or answer(decode(model, request.data))
                if reply is not None:
                    with contextlib.suppress(nats.errors.Error):
                        await request.respond(encode(reply))

            return handle

        return [
            ("turn.claim.*", request_handler(ClaimRequest, self._claim)),
            ("turn.renew.*", request_handler(RenewRequest, self._renew)),
            ("session.get", request_handler(SessionGet, self._get)),
            ("session.peek", request_handler(SessionPeek, self._peek)),
            ("session.list", request_handler(SessionList, self._list)),
            ("transcript.load", request_handler(TranscriptLoad, self._load)),
            ("transcript.load.*", request_handler(TranscriptLoad, self._load)),
        ]

    def _fault(self) -> ApiReply | None:
        if not self.faults.unavailable_answers:
            return None
        self.faults.unavailable_answers -= 1
        return _refusal(ApiErrorCode.UNAVAILABLE)

    def _claim(self, request: ClaimRequest) -> ClaimReply | None:
        self.claims.append(request)
        reply = self._decide_claim(request)
        if self.faults.lost_claim_replies:
            self.faults.lost_claim_replies -= 1
            return None
        if self.faults.incomplete_claim_replies:
            self.faults.incomplete_claim_replies -= 1
            return reply.model_copy(update={"token": None})
        return reply

    def _decide_claim(self, request: ClaimRequest) -> ClaimReply:
        turn = self._turns.get(request.turn_id)
        if turn is None:
            return _no_claim(request, ClaimStatus.UNKNOWN)
        if turn.state == "done":
            return _no_claim(request, ClaimStatus.FINISHED)
        if turn.state == "claimed" and turn.claim_id != request.id:
            return _no_claim(request, ClaimStatus.TAKEN)
        if turn.claim_id != request.id:
            self._grant(turn, request)
        return self._granted(turn)

    def _grant(self, turn: FakeTurn, request: ClaimRequest) -> None:
        turn.messages = turn.messages or turn.session.take_waiting()
        turn.state = "claimed"
        turn.attempt += 1
        turn.token = secrets.token_urlsafe(24)
        turn.claim_id = request.id
        turn.lease_until = monotonic() + turn.session.agent.lease.total_seconds()

    def _granted(self, turn: FakeTurn) -> ClaimReply:
        session = turn.session
        envelope_id, at = _new_fields()
        return ClaimReply(
            id=envelope_id,
            at=at,
            status=ClaimStatus.CLAIMED,
            turn_id=turn.id,
            session_id=session.id,
            session_key=session.key,
            attempt=turn.attempt,
            token=turn.token,
            lease_ms=round(session.agent.lease.total_seconds() * 1000),
            source=turn.messages[-1].source,
            messages=tuple(turn.messages),
            history=HistoryPointer(session_id=session.id, before_seq=turn.first_seq),
            session_is_new=turn.first_seq == 1,
        )

    def _renew(self, request: RenewRequest) -> RenewReply | None:
        self.renewals += 1
        self.told_begun.append((request.attempt, request.begun))
        turn = self._turns.get(request.turn_id)
        status = RenewStatus.UNKNOWN
        if turn is not None and turn.state == "done":
            status = RenewStatus.FINISHED
        elif turn is not None:
            is_current = (turn.attempt, turn.token) == (request.attempt, request.token)
            status = RenewStatus.RENEWED if is_current else RenewStatus.STALE
        lease = timedelta()
        if turn is not None and status is RenewStatus.RENEWED:
            lease = turn.session.agent.lease
            turn.state = "claimed"
            turn.lease_until = monotonic() + lease.total_seconds()
        if self.faults.lost_renew_replies:
            self.faults.lost_renew_replies -= 1
            return None
        envelope_id, at = _new_fields()
        lease_ms = round(lease.total_seconds() * 1000)
        return RenewReply(id=envelope_id, at=at, status=status, lease_ms=lease_ms)

    def _get(self, request: SessionGet) -> Envelope:
        reply = self._shown(lambda it: it.id == request.session_id)
        return reply if reply.session else _refusal(ApiErrorCode.NOT_FOUND)

    def _peek(self, request: SessionPeek) -> Envelope:
        return self._shown(lambda it: it.key == request.session_key)

    def _shown(self, is_it: Callable[[FakeSession], bool]) -> SessionReply:
        session = next((it for it in self._sessions.values() if is_it(it)), None)
        envelope_id, at = _new_fields()
        return SessionReply(id=envelope_id, at=at, session=session.view() if session else None)

    def _list(self, request: SessionList) -> SessionListReply:
        sessions = list(self._sessions.values())
        start = int(request.cursor or "0")
        end = start + request.limit
        envelope_id, at = _new_fields()
        return SessionListReply(
            id=envelope_id,
            at=at,
            sessions=tuple(session.view() for session in sessions[start:end]),
            next_cursor=str(end) if end < len(sessions) else None,
        )

    def _load(self, request: TranscriptLoad) -> Envelope:
        session = next((it for it in self._sessions.values() if it.id == request.session_id), None)
        if session is None:
            return _refusal(ApiErrorCode.NOT_FOUND)
        before = request.before_seq or len(session.rows) + 1
        older = session.rows[: before - 1]
        rows = older[-request.limit :]
        envelope_id, at = _new_fields()
        return TranscriptReply(
            id=envelope_id,
            at=at,
            session_id=session.id,
            rows=tuple(rows),
            next_before_seq=rows[0].seq if len(rows) < len(older) else None,
        )


def _no_claim(request: ClaimRequest, status: ClaimStatus) -> ClaimReply:
    envelope_id, at = _new_fields()
    return ClaimReply(id=envelope_id, at=at, status=status, turn_id=request.turn_id)


def _refusal(code: ApiErrorCode) -> ApiReply:
    envelope_id, at = _new_fields()
    return ApiReply(id=envelope_id, at=at, error=ApiError(code=code, message=str(code)))
