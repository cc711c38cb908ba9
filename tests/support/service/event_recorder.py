"""Looks at the database and the streams from outside, with queries of its own."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, Final, LiteralString

import asyncpg
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from chatlane_devkit.demo.observer import nats_id_in, receipt_in
from chatlane_devkit.dialogue.record import Records, published
from chatlane_devkit.dialogue.stream_reader import stored
from chatlane_devkit.judge.history import (
    DeadLetter,
    History,
    LogEntry,
    ReceiptEntry,
    Row,
    Session,
)
from chatlane_schemas.topology import subjects
from tests.support.eventually import eventually
from tests.support.service.load_users import LoadUsers
from tests.support.service.processes import STREAM_AGENT

_PATIENCE: Final = timedelta(seconds=30)
_LOOK_AGAIN: Final = timedelta(milliseconds=50)
# Stream and beginning of the subjects of each log.
_LOGS: Final[Mapping[str, tuple[str, str]]] = {
    "inbound": ("INBOUND", "chat.v1.log"),
    "results": ("RESULTS", "chat.v1.rlog"),
}
_AWAY: Final = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)

_OWNERS: Final[LiteralString] = """
SELECT owner::text, count(*) FROM partitions
WHERE owner IS NOT NULL AND lease_until > clock_timestamp() GROUP BY owner
"""
_SESSIONS: Final[LiteralString] = """
SELECT id::text, session_key, agent, coalesce(end_reason, ''), next_seq, next_out_seq FROM sessions
"""
_ROWS: Final[LiteralString] = """
SELECT session_id::text, seq, CASE WHEN details ? 'observed' THEN 'context' ELSE role END,
    coalesce(content, ''), coalesce(platform_message_id, ''),
    coalesce(id::text, ''), coalesce(turn_id::text, ''), coalesce(reply_to::text, ''),
    coalesce(part, 0), coalesce(state, '')
FROM messages ORDER BY session_id, seq
"""
# Where each partition stands.
_CURSORS: Final[LiteralString] = "SELECT log, id, cursor FROM partitions"
_DEADLOCKS: Final[LiteralString] = """
SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()
"""
_DEAD: Final[LiteralString] = "SELECT reason FROM dead_letters ORDER BY at"
_LEFT_OVER: Final[LiteralString] = """
SELECT (SELECT count(*) FROM outbox) AS "outbox rows",
    (SELECT count(*) FROM waiting) AS "waiting messages",
    (SELECT count(*) FROM turns WHERE state IN ('ready', 'claimed')) AS "live turns",
    (SELECT count(*) FROM deliveries WHERE state <> 'delivered' AND message_id <> ALL($1::uuid[]))
        AS "messages without a receipt"
"""
# Which rows of the outbox nobody publishes, without what they say.
_UNPUBLISHED: Final[LiteralString] = """
SELECT stream, array_to_string((string_to_array(subject, '.'))[:5], '.') AS subject,
    outbox.router::text, version, seen_until >= clock_timestamp() AS is_live,
    count(*), min(outbox.id) AS first, min(created_at)::text AS since
FROM outbox LEFT JOIN routers ON routers.id = outbox.router
GROUP BY 1, 2, 3, 4, 5 ORDER BY first
"""


class EventRecorder:
    """A connection to each server that outlives their restarts.

    Attributes:
        unreported: Ids of messages that adapters without receipts delivered.
        is_explained: Returns whether faults explain that a stream stored an id a second time; it
            gets the times of the first copy and of the later one, which is then left out.
    """

    def __init__(self, dsn: str, client: Client) -> None:
        self.client = client
        self.unreported: Collection[str] = ()
        self.is_explained: Callable[[datetime, datetime], bool] | None = None
        self._dsn = dsn
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Run a query; while the server is away, wait for it."""
        async with self._lock, asyncio.timeout(_PATIENCE.total_seconds()):
            while True:
                try:
                    connection = await self._connected()
                    return list(await connection.fetch(query, *arguments))
                except _AWAY:
                    self._connection = None
                await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    async def value(self, query: str, *arguments: object) -> Any:  # noqa: ANN401 # any column
        """Return the only value of the first row."""
        return (await self.fetch(query, *arguments))[0][0]

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._dsn, timeout=5)
        return self._connection

    def close(self) -> None:
        """Drop the connection to the database; the next question opens another one."""
        if self._connection:
            self._connection.terminate()
        self._connection = None

    async def owners(self) -> dict[str, int]:
        """Return how many partitions, of both logs, each router holds by a valid lease."""
        return dict(await self.fetch(_OWNERS))

    async def until_owned(
        self,
        *counts: int,
        besides: Collection[str] = (),
        timeout: timedelta = _PATIENCE,  # noqa: ASYNC109 # a deadline per call
    ) -> None:
        """Wait until routers hold these numbers of partitions.

        Args:
            counts: How many each holds.
            besides: Owners that do not count, such as dead ones whose leases go on.
            timeout: When to give up.
        """

        async def are_owned() -> bool:
            owners = await self.owners()
            held = sorted(count for owner, count in owners.items() if owner not in besides)
            assert held == sorted(counts), owners
            return True

        await eventually(are_owned, timeout)

    async def left_over(self) -> dict[str, int]:
        """Return what is still to do."""
        return dict((await self.fetch(_LEFT_OVER, list(self.unreported)))[0])

    async def until_settled(self, users: LoadUsers, timeout: timedelta = _PATIENCE) -> None:  # noqa: ASYNC109
        """Wait until everything that was sent is answered and nothing is left to do."""

        async def is_settled() -> bool:
            left, dead = await self.left_over(), await self.dead()
            assert not users.unheard, f"unheard: {sorted(users.unheard)[:5]}; {left}; {dead}"
            assert not any(left.values()), f"{left}; {dead}; {await self.unpublished()}"
            return True

        await eventually(is_settled, timeout)

    async def unpublished(self) -> list[dict[str, object]]:
        """Return the rows of the outbox, counted by stream, beginning of the subject and router."""
        return [dict(row) for row in await self.fetch(_UNPUBLISHED)]

    async def until_taken(self, count: int) -> None:
        """Wait until so many messages have their place in a transcript."""

        async def are_taken() -> bool:
            taken = await self.value("SELECT count(*) FROM messages WHERE role = 'user'")
            assert taken >= count, taken
            return True

        await eventually(are_taken, _PATIENCE)

    async def dead(self) -> Counter[str]:
        """Return how many dead letters there are, by reason."""
        return Counter(row[0] for row in await self.fetch(_DEAD))

    async def history(self, users: LoadUsers) -> History:
        """Return everything there is to judge."""
        log: list[LogEntry] = []
        receipts: list[ReceiptEntry] = []
        async for raw in self.stored("INBOUND"):
            nats_id = nats_id_in(raw.headers)
            if receipt := receipt_in(raw.data, nats_id):
                receipts.append(receipt)
            elif nats_id:
                log.append(LogEntry(nats_id))
        return History(
            sent=users.sent,
            log=log,
            receipts=receipts,
            sessions=[Session(*row) for row in await self.fetch(_SESSIONS)],
            rows=[Row(*row) for row in await self.fetch(_ROWS)],
            turns=await self.records.turns(),
            routed=[published(raw, "seq") async for raw in self.stored("ROUTED")],
            outbound=await self.records.outbound(),
            results=await self.records.results(),
            started=[
                json.loads(raw.data)["session_id"]
                async for raw in self.stored("EVENTS")
                if raw.subject == subjects.event("session", "started")
            ],
            received=users.received,
            stream_agents=frozenset({STREAM_AGENT}),
            dead_letters=[DeadLetter("", row[0]) for row in await self.fetch(_DEAD)],
            deadlocks=await self.value(_DEADLOCKS),
            left_over=await self.left_over(),
        )

    @property
    def records(self) -> Records:
        """The database and the streams, to read dialogues from."""
        return Records(self.fetch, self.stored)

    async def until_read(self) -> int:
        """Wait until the last message of each partition is read; return how many are not."""

        async def are_read() -> bool:
            unread = await self.unread()
            assert not unread, unread
            return True

        with suppress(AssertionError):
            await eventually(are_read)
            return 0
        return await self.unread()

    async def unread(self, ends: Mapping[tuple[str, int], int] | None = None) -> int:
        """Return how many partitions have a message behind their cursor.

        Args:
            ends: What counts as the end of each; by default what is the end now.
        """
        cursors = await self.fetch(_CURSORS)
        ends = ends or await self.ends()
        return sum(ends[log, partition] > cursor for log, partition, cursor in cursors)

    async def ends(self) -> dict[tuple[str, int], int]:
        """Return the sequence of the last message of each partition, by log and number."""
        cursors = await self.fetch(_CURSORS)
        return {(log, number): await self._last(log, number) for log, number, _ in cursors}

    async def _last(self, log: str, partition: int) -> int:
        stream, subject = _LOGS[log]
        with suppress(NotFoundError):
            found = await self.client.jetstream().get_last_msg(stream, f"{subject}.{partition}.>")
            return found.seq or 0
        return 0

    async def stream(self, name: str) -> list[Msg]:
        """Return all that a stream keeps, oldest first."""
        return [raw async for raw in self.stored(name)]

    def stored(self, name: str) -> AsyncIterator[Msg]:
        """Yield all that a stream keeps, oldest first, a page in memory at a time."""
        found = stored(self.client, name)
        return found if self.is_explained is None else _unexplained(found, self.is_explained)


async def _unexplained(
    found: AsyncIterator[Msg], is_explained: Callable[[datetime, datetime], bool]
) -> AsyncIterator[Msg]:
    first_at: dict[str, datetime] = {}
    async for raw in found:
        if message_id := (raw.headers or {}).get("Nats-Msg-Id"):
            at = raw.metadata.timestamp
            if message_id in first_at and is_explained(first_at[message_id], at):
                continue
            first_at.setdefault(message_id, at)
        yield raw


@asynccontextmanager
async def open_event_recorder(dsn: str, client: Client) -> AsyncIterator[EventRecorder]:
    """Open a recorder."""
    recorder = EventRecorder(dsn, client)
    try:
        yield recorder
    finally:
        recorder.close()
