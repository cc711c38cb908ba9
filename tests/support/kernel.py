"""The router without its log: real decisions on a real database, at times the test chooses.

What a log reader would hand over is made here, so a test says when each message was stored and
reads back which session it went to. Publications are recorded instead of sent.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from chatlane.domain.catalog import Account, Agent, Catalog, Platform
from chatlane.domain.log import LogMessage
from chatlane.domain.policy import KeyRules, ResetPolicy
from chatlane.metrics import Metrics
from chatlane.routing.claims import ClaimDesk
from chatlane.routing.deadlines import Deadlines
from chatlane.routing.deciding import Deciding, decoded
from chatlane.routing.relay import OutboxWriter
from chatlane.routing.writing import Writer
from chatlane.store import seen_days
from chatlane.store.pool import Store, open_store
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.subjects import chat_token_of, partition_of
from chatlane_schemas.turns import ClaimReply, ClaimRequest

if TYPE_CHECKING:
    from chatlane.store.outbox import OutboxRow

PARTITIONS = 32
SLOTS = 32
DAY = datetime(2026, 5, 11, 9, tzinfo=UTC)


def catalog(
    *,
    reset: ResetPolicy | None = None,
    keys: KeyRules | None = None,
    agents: Iterable[Agent] = (),
    profiles: Mapping[str, str] | None = None,
    own_ids: frozenset[str] = frozenset(),
) -> Catalog:
    """Return a catalog with the usual platforms, one account `bot` each, agent `main`."""
    declared = {"main": "main", **(profiles or {})}
    account = Account("bot", frozenset(declared), own_ids)
    names = ("telegram", "discord", "slack", "whatsapp", "signal", "matrix", "custom", "webchat")
    platforms = {
        name: Platform(
            name,
            keys or KeyRules(),
            accounts={"bot": account},
            person_aliases=name in {"whatsapp", "signal"},
        )
        for name in names
    }
    known = {agent.name: agent for agent in (Agent("main"), *agents)}
    return Catalog(platforms, declared, known, reset or ResetPolicy())


def event(platform: str = "telegram", **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
    """Return an event; `chat`, `thr`, `user`, `mid`, `kind_of_chat` are short for its parts.

    A chat or user of `-` or None is left out, as an adapter leaves out what it does not know.
    """
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
        self._router_id = uuid4()

    @asynccontextmanager
    async def ordered(self) -> AsyncIterator[OutboxWriter]:
        writer = OutboxWriter(self._router_id, (), lambda _: [])
        yield writer
        self.rows += writer.rows

    def bodies(self, stream: str) -> list[dict[str, Any]]:
        """Return the bodies published on a stream, in order."""
        return [json.loads(row.payload) for row in self.rows if row.stream == stream]


@dataclass(frozen=True)
class Placed:
    """Where a message went: its session, or None with the reason of a dead letter."""

    session_id: UUID | None
    session_key: str | None
    dead: str | None


class Kernel:
    """One router's decisions, without NATS."""

    def __init__(self, store: Store, declared: Catalog) -> None:
        self.store = store
        self.catalog = declared
        self.relay = RecordingRelay()
        self.writer = Writer(store, self.relay, Metrics())  # type: ignore[arg-type]
        self.desk = ClaimDesk(store, declared.agents)
        self.deadlines = Deadlines(store, self.writer, declared, self._nothing_unread)
        self._sequence = 0

    async def _nothing_unread(self, agent: str) -> int:
        del agent
        return 0

    def logged(self, one: InboundEvent, at: datetime) -> LogMessage:
        """Return the event as the log would hand it over."""
        token = chat_token_of(one)
        partition = partition_of(PARTITIONS, one.platform, one.account, token)
        subject = f"chat.v1.log.{partition}.{one.platform}.{one.account}.{token}"
        body = one.model_dump_json(exclude_none=True).encode()
        return self.raw("inbound", partition, subject, body, at)

    def raw(self, log: str, partition: int, subject: str, body: bytes, at: datetime) -> LogMessage:
        """Return any bytes as a message of a log."""
        self._sequence += 1
        return LogMessage(log, partition, self._sequence, at, subject, None, body)  # type: ignore[arg-type]

    async def decide(self, messages: Sequence[LogMessage]) -> None:
        """Commit the messages in one transaction."""
        async with self.writer.writing() as writing:
            contents = [decoded(message, self.catalog) for message in messages]
            await Deciding(self.catalog, SLOTS).run(writing, contents)

    async def say(self, one: InboundEvent, at: datetime = DAY) -> Placed:
        """Let one event arrive, alone in its batch, and return where it went."""
        message = self.logged(one, at)
        await self.decide([message])
        return await self.placed(message)

    async def placed(self, message: LogMessage) -> Placed:
        """Return where a message of the log went."""
        async with self.store.transaction() as connection:
            dead = await connection.fetchval(
                "SELECT reason FROM dead_letters WHERE sequence = $1", message.sequence
            )
            row = await connection.fetchrow(
                "SELECT s.id, s.session_key FROM sessions AS s JOIN ("
                " SELECT session_id FROM waiting WHERE source @> $1::jsonb AND stored_at = $2"
                " UNION ALL SELECT session_id FROM messages"
                " WHERE source @> $1::jsonb AND created_at = $2"
                ") AS m ON m.session_id = s.id LIMIT 1",
                _source_pattern(message.body),
                message.stored_at,
            )
        return Placed(row["id"] if row else None, row["session_key"] if row else None, dead)

    async def turns_of(self, session_id: UUID) -> int:
        """Return how many turns a session has had."""
        async with self.store.transaction() as connection:
            found: int = await connection.fetchval(
                "SELECT count(*) FROM turns WHERE session_id = $1", session_id
            )
        return found

    async def transcript(self, session_id: UUID) -> list[tuple[int, str, str | None]]:
        """Return (seq, role, content) of a session, in order."""
        async with self.store.transaction() as connection:
            rows = await connection.fetch(
                "SELECT seq, role, content FROM messages WHERE session_id = $1 ORDER BY seq",
                session_id,
            )
        return [tuple(row.values()) for row in rows]

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run any query; for what no other method shows."""
        async with self.store.transaction() as connection:
            return list(await connection.fetch(query, *arguments))

    async def claim(self, turn_id: UUID, agent: str = "main", claim_id: str = "") -> ClaimReply:
        """Claim a turn as a worker would."""
        request = ClaimRequest(
            id=claim_id or uuid4().hex, at=datetime.now(UTC), turn_id=turn_id, worker="w1"
        )
        serving = asyncio.ensure_future(self.desk.run())
        try:
            return await self.desk.claim(agent, request)
        finally:
            serving.cancel()

    async def live_turn(self, session_id: UUID) -> UUID | None:
        """Return the turn that holds a session."""
        rows = await self.fetch("SELECT active_turn FROM sessions WHERE id = $1", session_id)
        return rows[0][0] if rows else None

    async def answer(
        self, claimed: ClaimReply, text: str = "ok", at: datetime = DAY, **fields: object
    ) -> None:
        """Let the result of a claimed turn arrive."""
        assert claimed.session_id is not None
        body = {
            "v": 1,
            "id": fields.pop("id", uuid4().hex),
            "at": at.isoformat(),
            "session_id": str(claimed.session_id),
            "turn_id": str(claimed.turn_id),
            "attempt": claimed.attempt,
            "token": claimed.token,
            "outcome": "ok",
            "parts": [{"text": text}],
        }
        await self.decide([self.result(claimed.session_id, body | fields, at)])

    def result(
        self, session_id: UUID, body: Mapping[str, Any], at: datetime = DAY, agent: str = "main"
    ) -> LogMessage:
        """Return a result as the second log would hand it over."""
        ResultMessage.model_validate_json(json.dumps(body))
        partition = partition_of(PARTITIONS, str(session_id))
        subject = f"chat.v1.rlog.{partition}.{agent}.{session_id}"
        return self.raw("results", partition, subject, json.dumps(body).encode(), at)

    async def run_turn(self, session_id: UUID, text: str = "ok", at: datetime = DAY) -> ClaimReply:
        """Claim the session's turn and answer it; returns what the worker saw."""
        turn_id = await self.live_turn(session_id)
        assert turn_id is not None
        claimed = await self.claim(turn_id)
        await self.answer(claimed, text, at)
        return claimed


def _source_pattern(body: bytes) -> str:
    told = json.loads(body)
    kept = ("platform", "account", "scope", "profile", "thread_id", "sender", "message_id")
    pattern = {name: told[name] for name in kept if told.get(name) is not None}
    if (told.get("chat") or {}).get("id") is not None:
        pattern["chat"] = {"id": told["chat"]["id"]}
    return json.dumps(pattern)


@asynccontextmanager
async def open_kernel(dsn: str, declared: Catalog | None = None) -> AsyncIterator[Kernel]:
    """Open a kernel on a migrated database."""
    async with open_store(dsn) as store:
        async with store.transaction() as connection:
            await seen_days.create(connection, timedelta(days=3))
        yield Kernel(store, declared or catalog())
