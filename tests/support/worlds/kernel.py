"""The router without its log: real decisions on a real database, at times the test chooses.

What a log reader would hand over is made here, so a test says when each message was stored and
reads back which session it went to. Publications are recorded instead of sent, and stay in the
outbox: a kernel that follows another one on the same database finds everything as it was left.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from typing_extensions import override

from chatlane.decisions.batch_decision import BatchDecision, decoded
from chatlane.decisions.inbound_decoder import ValidatedEvent
from chatlane.decisions.unit_of_work import UnitOfWorkFactory
from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.catalog import Account, Agent, Catalog, Limits, Platform
from chatlane.domain.commands.command_words import CommandRules
from chatlane.domain.ids import derived_id
from chatlane.domain.log import LogMessage
from chatlane.domain.notices import ENGLISH, Notices
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane.errors import TransientError
from chatlane.nats.tasks import end_task
from chatlane.observability.metrics import Metrics
from chatlane.outbox.relay import OutboxWriter
from chatlane.postgres.pool import Store, open_store
from chatlane.requests.change_service import ChangeService
from chatlane.store.addressing import dedupe_marks
from chatlane.turns.claims import ClaimService
from chatlane.turns.leases import Deadlines
from chatlane_schemas.codec import decode, encode
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.topology.subjects import chat_token_of, partition_of
from chatlane_schemas.turns import (
    ClaimReply,
    ClaimRequest,
    ClaimStatus,
    RenewReply,
    RenewRequest,
)
from tests.support.servers.databases import login_of

if TYPE_CHECKING:
    from chatlane.store.outbox import OutboxRow

# Fields of an event that several lines of a case share.
Fields = dict[str, Any]

PARTITIONS = 32
SLOTS = 32
DAY = datetime(2026, 5, 11, 9, tzinfo=UTC)
PLATFORMS = (
    "telegram",
    "discord",
    "slack",
    "whatsapp",
    "signal",
    "matrix",
    "custom",
    "webchat",
    "imessage",
)


def at(clock: str, day: str = "2026-05-11") -> datetime:
    """Return a time of the day all cases are on, in UTC: `09:00`, `09:00:05` or `09:00:00.25`."""
    return datetime.fromisoformat(f"{day}T{clock}").replace(tzinfo=UTC)


def catalog(
    *,
    reset: ResetPolicy | None = None,
    keys: KeyRules | None = None,
    agents: Iterable[Agent] = (),
    profiles: Mapping[str, str] | None = None,
    allowed: Iterable[str] | None = None,
    accounts: Iterable[str] = ("bot",),
    own_ids: frozenset[str] = frozenset(),
    bots_allowed: bool = False,
    bot_name: str | None = "our_bot",
    commands: CommandRules | None = None,
    limits: Limits | None = None,
    notices: Notices = ENGLISH,
) -> Catalog:
    """Return a catalog with the usual platforms, one account `bot` each, agent `main`.

    Args:
        allowed: Profiles that the accounts may address; None allows all that are declared.
    """
    declared = {"main": "main", **(profiles or {})}
    profiles_allowed = frozenset(declared if allowed is None else allowed)
    platforms = {
        name: Platform(
            name,
            keys or KeyRules(),
            accounts={one: Account(one, profiles_allowed, own_ids, bot_name) for one in accounts},
            person_aliases=name in {"whatsapp", "signal"},
            bots_allowed=bots_allowed,
            limits=limits,
            commands=commands or CommandRules(),
            notices=notices,
        )
        for name in PLATFORMS
    }
    known = {agent.name: agent for agent in (Agent("main"), *agents)}
    return Catalog(platforms, declared, known, reset or ResetPolicy())


def event(platform: str = "telegram", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    """Return an event; `chat`, `thr`, `user`, `mid`, `kind_of_chat` are short for its parts.

    What is None or not given is left out, as an adapter leaves out what it does not know. A message
    says something, unless a text or files are given.
    """
    if not {"kind", "text", "attachments"} & fields.keys():
        fields["text"] = "hi"
    body: dict[str, Any] = {
        "v": 1,
        "id": uuid4().hex,
        "at": DAY.isoformat(),
        "platform": platform,
        "account": "bot",
        "chat": {"kind": fields.pop("kind_of_chat", "dm")},
    }
    if (chat := fields.pop("chat", None)) is not None:
        body["chat"]["id"] = chat
    if (is_forum := fields.pop("is_forum", None)) is not None:
        body["chat"]["is_forum"] = is_forum
    sender = {
        name: value
        for name, value in {
            "id": fields.pop("user", None),
            "alt_id": fields.pop("alt_user", None),
            "is_bot": fields.pop("is_bot", None),
            "sender_chat_id": fields.pop("sender_chat", None),
            "aliases": fields.pop("aliases", None),
        }.items()
        if value is not None
    }
    if sender:
        body["sender"] = sender
    if (thread := fields.pop("thr", None)) is not None:
        body["thread_id"] = thread
    if (message_id := fields.pop("mid", None)) is not None:
        body["message_id"] = message_id
    return InboundEvent.model_validate_json(json.dumps(body | fields))


class RecordingRelay:
    """Keeps what was committed for publishing, in order; never deletes a row."""

    def __init__(self) -> None:
        self.rows: list[OutboxRow] = []
        self.router_id = uuid4()

    @asynccontextmanager
    async def ordered(self) -> AsyncIterator[OutboxWriter]:
        writer = OutboxWriter(self.router_id, (), (), lambda _: [])
        yield writer
        self.rows += writer.rows

    def bodies(self, stream: str, subject: str = "") -> list[dict[str, Any]]:
        """Return the bodies this kernel published on a stream, in order.

        Args:
            stream: Where they are stored.
            subject: Only those whose subject begins with this.
        """
        return [
            json.loads(row.payload)
            for row in self.rows
            if row.stream == stream and row.subject.startswith(subject)
        ]


SESSION_EVENTS: Final = "chat.v1.event.session."


class CountingMetrics(Metrics):
    """Keeps what was decided, to be read back."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, ...]] = Counter()

    @override
    def record_decisions(self, counts: Mapping[tuple[str, ...], int]) -> None:
        super().record_decisions(counts)
        self.counts.update(counts)


@dataclass(frozen=True)
class Placed:
    """Where a message went: its session, or None; and the reason when it was set aside."""

    session_id: UUID | None
    session_key: str | None
    dead: str | None
    message: LogMessage = field(repr=False, compare=False)

    @property
    def session(self) -> UUID:
        """The session of a message that was routed."""
        assert self.session_id is not None, self.dead or "not routed"
        return self.session_id

    @property
    def key(self) -> str:
        """The key of the session of a message that was routed."""
        assert self.session_key is not None, self.dead or "not routed"
        return self.session_key


class Kernel:
    """One router's decisions, without NATS.

    Args:
        owner: For tests to look and meddle; the router's own store where it may do everything.
    """

    def __init__(self, store: Store, declared: Catalog, owner: Store | None = None) -> None:
        self.store = store
        self.owner = owner or store
        self.catalog = declared
        self.relay = RecordingRelay()
        self.metrics = CountingMetrics()
        self.controls: list[tuple[str, dict[str, Any]]] = []
        self.writer = UnitOfWorkFactory(store, self.relay, self.metrics, self._tell)  # type: ignore[arg-type]
        self.desk = ClaimService(store, declared.agents)
        self.unread: Counter[str] = Counter()
        self.deadlines = Deadlines(store, self.writer, declared, self._unread)
        self._sequence = 0
        self._askers = 0
        self._desk_task: asyncio.Task[None]

    async def _tell(self, subject: str, payload: bytes) -> None:
        self.controls.append((subject, json.loads(payload)))

    async def _unread(self, agent: str) -> int:
        return self.unread[agent]

    def restarted(self, declared: Catalog | None = None) -> "Kernel":
        """Return a kernel that knows nothing but the database, as after a kill -9."""
        return Kernel(self.store, declared or self.catalog, self.owner)

    def logged(self, one: InboundEvent, stored_at: datetime) -> LogMessage:
        """Return the event as the log would hand it over."""
        token = chat_token_of(one)
        partition = partition_of(PARTITIONS, one.platform, one.account, token)
        subject = f"chat.v1.log.{partition}.{one.platform}.{one.account}.{token}"
        return self.raw("inbound", partition, subject, encode(one), stored_at)

    def raw(
        self, log: str, partition: int, subject: str, body: bytes, stored_at: datetime
    ) -> LogMessage:
        """Return any bytes as a message of a log."""
        self._sequence += 1
        return LogMessage(log, partition, self._sequence, stored_at, subject, None, body)  # type: ignore[arg-type]

    async def decide(self, messages: Sequence[LogMessage], *, is_old: bool = False) -> None:
        """Commit the messages in one transaction, as if stored before this router began or not."""
        async with self.writer.begin() as unit_of_work:
            contents = [decoded(message, self.catalog, is_old=is_old) for message in messages]
            await BatchDecision(self.catalog, SLOTS).run(unit_of_work, contents)

    async def decide_in_the_end(self, messages: Sequence[LogMessage]) -> None:
        """Commit the messages, repeated as a router repeats what another attempt may cure."""
        while True:
            try:
                await self.decide(messages)
            except TransientError:
                await asyncio.sleep(0)
            else:
                return

    async def say(self, one: InboundEvent, stored_at: datetime = DAY) -> Placed:
        """Let one event arrive, alone in its batch, and return where it went."""
        message = self.logged(one, stored_at)
        await self.decide([message])
        return await self.placed(message)

    async def say_together(
        self, events: Iterable[InboundEvent], stored_at: datetime = DAY
    ) -> list[Placed]:
        """Let events arrive in one batch, a millisecond apart; returns where they went."""
        messages = [
            self.logged(one, stored_at + timedelta(milliseconds=number))
            for number, one in enumerate(events)
        ]
        await self.decide(messages)
        return [await self.placed(message) for message in messages]

    async def placed(self, message: LogMessage) -> Placed:
        """Return where a message of the inbound log is now."""
        dead = await self.fetch(
            "SELECT reason FROM dead_letters"
            " WHERE log = $1 AND partition = $2 AND sequence = $3 AND stored_at = $4",
            *message[:4],
        )
        rows = await self.fetch(
            "SELECT s.id, s.session_key FROM sessions AS s JOIN ("
            " SELECT session_id FROM waiting WHERE message_id = ANY($1::uuid[])"
            " UNION ALL SELECT session_id FROM messages WHERE id = ANY($1::uuid[])"
            ") AS m ON m.session_id = s.id",
            await self._message_ids(message),
        )
        assert len(rows) <= 1, "one message in two places"
        session_id, session_key = rows[0] if rows else (None, None)
        return Placed(session_id, session_key, dead[0][0] if dead else None, message)

    async def _message_ids(self, message: LogMessage) -> list[UUID]:
        """Return the ids that an inbound message may have, whoever its DM is with."""
        content = decoded(message, self.catalog).content
        if not isinstance(content, ValidatedEvent):
            return []
        event, address = content.declared.event, content.declared.address
        names = await self.fetch(
            "SELECT canonical FROM aliases WHERE kind = 'person'"
            " UNION SELECT identity FROM former_ids"
        )
        addresses = [address, *(address._replace(chat_id=name) for (name,) in names)]
        return [
            derived_id(message.stored_at, digests(event, one)[0], "message") for one in addresses
        ]

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run any query; for what no other method shows."""
        async with self.owner.transaction() as connection:
            return list(await connection.fetch(query, *arguments))

    async def value(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 - whatever was asked for
        """Run any query that returns one value."""
        rows = await self.fetch(query, *arguments)
        return rows[0][0] if rows else None

    async def published(self, stream: str, subject: str = "%") -> list[dict[str, Any]]:
        """Return the bodies any kernel on this database published on a stream, in order.

        Args:
            stream: Where they are stored.
            subject: Only those with a subject that is LIKE this.
        """
        rows = await self.fetch(
            "SELECT payload FROM outbox WHERE stream = $1 AND subject LIKE $2 ORDER BY id",
            stream,
            subject,
        )
        return [json.loads(row[0]) for row in rows]

    async def told(self) -> list[str]:
        """Return what the service itself said to chats, in order: replies and notices."""
        said = await self.published("OUTBOUND")
        return [one["text"] for one in said if one["kind"] == "notice"]

    async def dead(self) -> list[tuple[str, str]]:
        """Return stage and reason of every dead letter, in order of time."""
        return [
            (row[0], row[1])
            for row in await self.fetch("SELECT stage, reason FROM dead_letters ORDER BY at")
        ]

    async def turns_of(self, session_id: UUID) -> int:
        """Return how many turns a session has had."""
        found: int = await self.value(
            "SELECT count(*) FROM turns WHERE session_id = $1", session_id
        )
        return found

    async def transcript(self, session_id: UUID) -> list[tuple[int, str, str | None]]:
        """Return (seq, role, content) of a session, in order."""
        rows = await self.fetch(
            "SELECT seq, role, content FROM messages WHERE session_id = $1 ORDER BY seq", session_id
        )
        return [tuple(row.values()) for row in rows]

    async def said(self, session_id: UUID) -> list[str | None]:
        """Return what was said in a session, by anyone, in order."""
        return [content for _, _, content in await self.transcript(session_id)]

    async def waiting(self, session_id: UUID) -> list[str | None]:
        """Return what waits for a turn of a session, in order."""
        rows = await self.fetch(
            "SELECT content FROM waiting WHERE session_id = $1 ORDER BY arrival", session_id
        )
        return [row[0] for row in rows]

    async def runs(self, placed: Placed) -> int:
        """Return in how many turns agents have seen a message, as far as they were claimed."""
        found: int = await self.value(
            "SELECT count(DISTINCT turn_id) FROM messages WHERE id = $1",
            message_id_of(placed.message, self.catalog),
        )
        return found

    async def claim(
        self,
        turn_id: UUID,
        agent: str = "main",
        claim_id: str = "",
        worker: str = "w1",
        *,
        tells_begin: bool = False,
    ) -> ClaimReply:
        """Claim a turn as a worker would."""
        request = ClaimRequest(
            id=claim_id or uuid4().hex,
            at=datetime.now(UTC),
            turn_id=turn_id,
            worker=worker,
            tells_begin=tells_begin,
        )
        async with self._serving():
            return await self.desk.claim(agent, request)

    async def renew(
        self, claimed: ClaimReply, agent: str = "main", *, begun: bool | None = None
    ) -> RenewReply:
        """Ask for more time on a claimed turn, as a worker would."""
        assert claimed.attempt is not None
        assert claimed.token is not None
        request = RenewRequest(
            id=uuid4().hex,
            at=datetime.now(UTC),
            turn_id=claimed.turn_id,
            attempt=claimed.attempt,
            token=claimed.token,
            begun=begun,
        )
        async with self._serving():
            return await self.desk.renew(agent, request)

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        """Let the desk serve while anybody waits for it."""
        if self._askers == 0:
            self._desk_task = asyncio.create_task(self.desk.run())
        self._askers += 1
        try:
            yield
        finally:
            self._askers -= 1
            if self._askers == 0:
                await end_task(self._desk_task)

    async def live_turn(self, session_id: UUID) -> UUID | None:
        """Return the turn that holds a session."""
        found: UUID | None = await self.value(
            "SELECT active_turn FROM sessions WHERE id = $1", session_id
        )
        return found

    async def claim_live(
        self, session_id: UUID, agent: str = "main", *, tells_begin: bool = False
    ) -> ClaimReply:
        """Claim the turn that holds a session."""
        turn_id = await self.live_turn(session_id)
        assert turn_id is not None, "the session is idle"
        return await self.claim(turn_id, agent, tells_begin=tells_begin)

    async def answer(
        self,
        claimed: ClaimReply,
        text: str = "ok",
        stored_at: datetime = DAY,
        agent: str = "main",
        **fields: object,
    ) -> None:
        """Let the result of a claimed turn arrive."""
        await self.decide([self.turn_result(claimed, text, stored_at, agent, **fields)])

    def turn_result(
        self,
        claimed: ClaimReply,
        text: str = "ok",
        stored_at: datetime = DAY,
        agent: str = "main",
        **fields: object,
    ) -> LogMessage:
        """Return the result of a claimed turn as the log would hand it over."""
        assert claimed.session_id is not None
        body = {
            "v": 1,
            "id": uuid4().hex,
            "at": stored_at.isoformat(),
            "session_id": str(claimed.session_id),
            "turn_id": str(claimed.turn_id),
            "attempt": claimed.attempt,
            "token": claimed.token,
            "outcome": "ok",
            "parts": [{"text": text}],
        }
        return self.result(claimed.session_id, body | fields, stored_at, agent)

    def stream_answer(
        self,
        routed: Mapping[str, Any],
        text: str = "ok",
        stored_at: datetime = DAY,
        agent: str = "",
        **fields: object,
    ) -> LogMessage:
        """Return the answer to a routed message as the log would hand it over."""
        body = {
            "v": 1,
            "id": uuid4().hex,
            "at": stored_at.isoformat(),
            "session_id": routed["session_id"],
            "reply_to": routed["id"],
            "text": text,
        } | fields
        session_id = UUID(str(body["session_id"]))
        return self.result(session_id, body, stored_at, agent or routed["agent"])

    def result(
        self,
        session_id: UUID,
        body: Mapping[str, Any],
        stored_at: datetime = DAY,
        agent: str = "main",
    ) -> LogMessage:
        """Return a result as the second log would hand it over."""
        written = json.dumps(body).encode()
        decode(ResultMessage, written)
        partition = partition_of(PARTITIONS, str(session_id))
        subject = f"chat.v1.rlog.{partition}.{agent}.{session_id}"
        return self.raw("results", partition, subject, written, stored_at)

    async def run_turn(
        self, session_id: UUID, text: str = "ok", stored_at: datetime = DAY
    ) -> ClaimReply:
        """Claim the session's turn and answer it; returns what the worker saw."""
        claimed = await self.claim_live(session_id)
        await self.answer(claimed, text, stored_at)
        return claimed

    async def run_all(self, stored_at: datetime = DAY) -> list[ClaimReply]:
        """Claim and answer turns until no session has one; returns what the workers saw."""
        seen: list[ClaimReply] = []
        while live := await self.fetch(
            "SELECT id, agent FROM turns WHERE state = 'ready' ORDER BY id"
        ):
            for turn_id, agent in live:
                claimed = await self.claim(turn_id, agent)
                if claimed.status is not ClaimStatus.VOID:
                    await self.answer(claimed, "ok", stored_at, agent)
                    seen.append(claimed)
        return seen

    async def expire(self, turn_id: UUID) -> None:
        """Let the time of a turn come, its lease or its next notification, and sweep."""
        await self.let_expire(turn_id)
        await self.deadlines.sweep()

    async def let_expire(self, turn_id: UUID) -> None:
        """Let the time of a turn come; nobody has noticed yet."""
        await self.fetch("UPDATE turns SET due_at = clock_timestamp() WHERE id = $1", turn_id)

    async def due_in(self, turn_id: UUID) -> timedelta:
        """Return when a turn's time comes: the end of its lease, or its next notification."""
        found: timedelta = await self.value(
            "SELECT due_at - clock_timestamp() FROM turns WHERE id = $1", turn_id
        )
        return found


def texts(claimed: ClaimReply) -> list[str | None]:
    """Return what an agent is told in a turn."""
    return [message.text for message in claimed.messages]


def message_id_of(message: LogMessage, declared: Catalog) -> UUID | None:
    """Return the id that an inbound message has in waiting and transcript, if it is readable."""
    content = decoded(message, declared).content
    if not isinstance(content, ValidatedEvent):
        return None
    first = digests(content.declared.event, content.declared.address)[0]
    return derived_id(message.stored_at, first, "message")


def change_service(
    store: Store,
    writer: UnitOfWorkFactory | None = None,
    written: Callable[[set[UUID]], None] | None = None,
) -> ChangeService:
    """Return the service of changes with the agents `main`, and `desk` of delivery `stream`."""
    declared = catalog(agents=[Agent("desk", delivery="stream")])
    recording = UnitOfWorkFactory(store, RecordingRelay(), Metrics(), written=written)  # type: ignore[arg-type]
    return ChangeService(store, writer or recording, declared, SLOTS)


# A test on a busy machine may leave a transaction idle for longer than a router does.
_STATEMENT_TIMEOUT: Final = timedelta(seconds=20)


@asynccontextmanager
async def open_kernel(dsn: str, declared: Catalog | None = None) -> AsyncIterator[Kernel]:
    """Open a kernel on a migrated database, with the rights of a router."""
    async with (
        open_store(dsn) as owner,
        open_store(await login_of(dsn), statement_timeout=_STATEMENT_TIMEOUT) as store,
    ):
        async with store.transaction() as connection:
            await dedupe_marks.create_partitions(connection, timedelta(days=3))
        yield Kernel(store, declared or catalog(), owner)
