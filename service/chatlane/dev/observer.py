"""Looks at a running stack from outside: its tables and what its streams keep.

With queries of its own, not those of the store, because it is a witness.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, timedelta
from hashlib import sha256
from typing import Any, Final, LiteralString

import asyncpg
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from chatlane.dev.history import DeadLetter, Leftovers, LogEntry, Row, Session

_PATIENCE: Final = timedelta(seconds=30)
_LOOK_AGAIN: Final = timedelta(milliseconds=50)
_PAGE: Final = 500
_AWAY: Final = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)
_FETCH_TIMEOUT: Final = timedelta(seconds=5)

OWNERS_SQL: Final[LiteralString] = """
-- demo: how many partitions of the log each router owns
SELECT owner::text, count(*) FROM partitions
WHERE log = 'inbound' AND owner IS NOT NULL AND lease_until > clock_timestamp()
GROUP BY owner
"""

CURSORS_SQL: Final[LiteralString] = """
-- demo: how far the inbound log is decided
SELECT id, cursor FROM partitions WHERE log = 'inbound'
"""

CLAIMED_SQL: Final[LiteralString] = """
-- demo: turns that a worker holds
SELECT id::text FROM turns WHERE state = 'claimed' AND worker = $1
"""

LIVE_TURNS_SQL: Final[LiteralString] = """
-- demo: which of these turns have no answer yet
SELECT id::text FROM turns WHERE state IN ('ready', 'claimed') AND id = ANY($1::uuid[])
"""

SESSIONS_SQL: Final[LiteralString] = """
-- demo: all sessions
SELECT id::text, session_key, agent, started_at, end_reason FROM sessions ORDER BY started_at, id
"""

ROWS_SQL: Final[LiteralString] = """
-- demo: all transcripts as they were heard, before anybody edited or deleted what was said
SELECT row.session_id::text, row.seq, row.role,
       coalesce(CASE WHEN row.state IS NULL THEN row.content ELSE first.content END, '') AS content,
       coalesce(row.platform_message_id, '') AS message_id
FROM messages AS row
LEFT JOIN LATERAL (
    SELECT content FROM message_revisions WHERE message_id = row.id ORDER BY id LIMIT 1
) AS first ON row.state IS NOT NULL
ORDER BY row.session_id, row.seq
"""

DEAD_LETTERS_SQL: Final[LiteralString] = """
-- demo: all dead letters
SELECT encode(digest, 'hex') AS digest, reason, size_bytes, coalesce(detail, '') AS detail
FROM dead_letters ORDER BY at, id
"""

LEFTOVERS_SQL: Final[LiteralString] = """
-- demo: what is still to do
SELECT (SELECT count(*) FROM outbox) AS outbox,
       (SELECT count(*) FROM waiting) AS waiting,
       (SELECT count(*) FROM turns WHERE state IN ('ready', 'claimed')) AS live_turns
"""


class Observer:
    """A connection to the database that outlives restarts of the server."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: asyncpg.Connection | None = None
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection:
            self._connection.terminate()

    async def owners(self) -> Counter[str]:
        """Return how many partitions of the log each router owns by a valid lease."""
        return Counter(dict(await self._fetch(OWNERS_SQL)))

    async def cursors(self) -> dict[int, int]:
        """Return by partition up to where the inbound log is decided."""
        return dict(await self._fetch(CURSORS_SQL))

    async def claimed_by(self, worker: str) -> list[str]:
        """Return the turns that a worker holds."""
        return [record["id"] for record in await self._fetch(CLAIMED_SQL, worker)]

    async def live_among(self, turns: Sequence[str]) -> list[str]:
        """Return those of `turns` that have no answer yet."""
        return [record["id"] for record in await self._fetch(LIVE_TURNS_SQL, turns)]

    async def sessions(self) -> list[Session]:
        """Return all sessions, oldest first."""
        return [
            Session(
                its["id"], its["session_key"], its["agent"], its["started_at"], its["end_reason"]
            )
            for its in await self._fetch(SESSIONS_SQL)
        ]

    async def rows(self) -> list[Row]:
        """Return all transcripts, each in its order."""
        return [
            Row(its["session_id"], its["seq"], its["role"], its["content"], its["message_id"])
            for its in await self._fetch(ROWS_SQL)
        ]

    async def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters, oldest first."""
        return [
            DeadLetter(its["digest"], its["reason"], its["size_bytes"], its["detail"])
            for its in await self._fetch(DEAD_LETTERS_SQL)
        ]

    async def leftovers(self) -> Leftovers:
        """Return what is still to do."""
        [counts] = await self._fetch(LEFTOVERS_SQL)
        return Leftovers(counts["outbox"], counts["waiting"], counts["live_turns"])

    async def _fetch(self, query: LiteralString, *arguments: object) -> list[Any]:
        """Run a query; while the server is away, wait for it.

        Raises:
            TimeoutError: It stays away.
        """
        async with self._lock, asyncio.timeout(_PATIENCE.total_seconds()):
            while True:
                try:
                    connection = self._connection or await self._connect()
                    return list(await connection.fetch(query, *arguments))
                except _AWAY:
                    self._connection = None
                await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    async def _connect(self) -> asyncpg.Connection:
        self._connection = await asyncpg.connect(self._dsn, timeout=_PATIENCE.total_seconds())
        return self._connection


async def read_log(client: Client) -> list[LogEntry]:
    """Return everything that INBOUND keeps."""
    return [_log_entry(message) for message in await _read_stream(client, "INBOUND")]


async def read_dead_notices(client: Client) -> list[DeadLetter]:
    """Return everything that DEAD keeps."""
    notices = (json.loads(message.data) for message in await _read_stream(client, "DEAD"))
    return [
        DeadLetter(its["digest"], its["reason"], its["size_bytes"], its.get("detail", ""))
        for its in notices
    ]


def _log_entry(message: Msg) -> LogEntry:
    metadata = message.metadata
    return LogEntry(
        sequence=metadata.sequence.stream,
        stored_at=metadata.timestamp.astimezone(UTC),
        chat=chat_of(message.subject),
        nats_id=(message.headers or {}).get("Nats-Msg-Id", ""),
        digest=sha256(message.data).hexdigest(),
    )


def chat_of(subject: str) -> str:
    """Return platform, account and chat token of an inbound subject, published or stored."""
    return ".".join(subject.split(".")[-3:])


async def _read_stream(client: Client, stream: str) -> list[Msg]:
    """Return all messages of a stream that nobody writes to any more."""
    config = ConsumerConfig(
        deliver_policy=DeliverPolicy.ALL,
        ack_policy=AckPolicy.NONE,
        inactive_threshold=_PATIENCE.total_seconds(),
        mem_storage=True,
    )
    subscription = await client.jetstream().pull_subscribe("", stream=stream, config=config)
    try:
        pending = (await subscription.consumer_info()).num_pending or 0
        messages: list[Msg] = []
        while len(messages) < pending:
            messages += await subscription.fetch(_PAGE, timeout=_FETCH_TIMEOUT.total_seconds())
        return messages
    finally:
        await subscription.unsubscribe()
