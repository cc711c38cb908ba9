"""Read the tables and streams of a running stack.

It uses its own queries instead of those of the store, because it must be independent of the code
under test.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, timedelta
from hashlib import sha256
from typing import Any, Final, LiteralString

import asyncpg
from nats.aio.client import Client
from nats.js.api import RawStreamMsg
from nats.js.errors import NotFoundError

from chatlane_devkit.judge.history import DeadLetter, LogEntry, ReceiptEntry, Row, Session

_PATIENCE: Final = timedelta(seconds=30)
_LOOK_AGAIN: Final = timedelta(milliseconds=50)
_AT_ONCE: Final = 50
_HASH: Final = re.compile(":[0-9a-f]{16}$")
_AWAY: Final = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
)

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
-- demo: all transcripts as the agents read them, before edits and deletes; reactions are context
SELECT row.session_id::text, row.seq,
       CASE WHEN row.details ? 'observed' THEN 'context' ELSE row.role END AS role,
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
       (SELECT count(*) FROM turns WHERE state IN ('ready', 'claimed')) AS live_turns,
       (SELECT count(*) FROM deliveries WHERE state <> 'delivered') AS undelivered
"""


class Observer:
    """A connection to the database that survives restarts of the server and a change of primary."""

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
        return Counter(dict(await self.fetch(OWNERS_SQL)))

    async def cursors(self) -> dict[int, int]:
        """Return the read position of the inbound log, by partition."""
        return dict(await self.fetch(CURSORS_SQL))

    async def claimed_by(self, worker: str) -> list[str]:
        """Return the turns that a worker holds."""
        return [record["id"] for record in await self.fetch(CLAIMED_SQL, worker)]

    async def live_among(self, turns: Sequence[str]) -> list[str]:
        """Return those of `turns` that have no answer yet."""
        return [record["id"] for record in await self.fetch(LIVE_TURNS_SQL, turns)]

    async def sessions(self) -> list[Session]:
        """Return all sessions, oldest first."""
        return [
            Session(
                id=row["id"],
                key=row["session_key"],
                agent=row["agent"],
                end_reason=row["end_reason"] or "",
                started_at=row["started_at"],
            )
            for row in await self.fetch(SESSIONS_SQL)
        ]

    async def rows(self) -> list[Row]:
        """Return all transcripts, each in its order."""
        return [
            Row(row["session_id"], row["seq"], row["role"], row["content"], row["message_id"])
            for row in await self.fetch(ROWS_SQL)
        ]

    async def dead_letters(self) -> list[DeadLetter]:
        """Return all dead letters, oldest first."""
        return [
            DeadLetter(row["digest"], row["reason"], row["size_bytes"], row["detail"])
            for row in await self.fetch(DEAD_LETTERS_SQL)
        ]

    async def left_over(self) -> dict[str, int]:
        """Count the rows that must not exist when everything is answered."""
        [counts] = await self.fetch(LEFTOVERS_SQL)
        return {
            "outbox rows": counts["outbox"],
            "waiting messages": counts["waiting"],
            "live turns": counts["live_turns"],
            "messages without a receipt": counts["undelivered"],
        }

    async def fetch(self, query: LiteralString, *arguments: object) -> list[Any]:
        """Run a query; while the server is unavailable, wait for it.

        Raises:
            TimeoutError: It does not come back.
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
        self._connection = await asyncpg.connect(
            self._dsn,
            timeout=_PATIENCE.total_seconds(),
            # Only a primary: a standby lags behind, and a former primary may be out of date.
            target_session_attrs=asyncpg.connect_utils.SessionAttribute.read_write,
        )
        return self._connection


async def read_log(client: Client) -> tuple[list[LogEntry], list[ReceiptEntry]]:
    """Return all messages that INBOUND keeps: events of chats, and receipts of adapters."""
    entries: list[LogEntry] = []
    receipts: list[ReceiptEntry] = []
    for message in await _read_stream(client, "INBOUND"):
        receipt = receipt_in(message.data or b"", nats_id_in(message.headers))
        if receipt is None:
            entries.append(_log_entry(message))
        else:
            receipts.append(receipt)
    return entries, receipts


def receipt_in(body: bytes, nats_id: str) -> ReceiptEntry | None:
    """Return the receipt that a body of INBOUND holds; None if it is another event."""
    try:
        event = json.loads(body)
    except (ValueError, RecursionError):
        return None
    receipt = event.get("receipt") if isinstance(event, dict) else None
    if not isinstance(receipt, dict):
        return None
    return ReceiptEntry(nats_id, str(event.get("delivered")), str(receipt.get("state")))


async def read_dead_notices(client: Client) -> list[DeadLetter]:
    """Return all messages that DEAD keeps."""
    notices = [json.loads(message.data or b"") for message in await _read_stream(client, "DEAD")]
    return [
        DeadLetter(
            notice["digest"], notice["reason"], notice["size_bytes"], notice.get("detail", "")
        )
        for notice in notices
    ]


def _log_entry(message: RawStreamMsg) -> LogEntry:
    if message.seq is None or message.time is None or message.subject is None:
        raise ValueError("the server tells sequence, time and subject of every message")
    return LogEntry(
        sequence=message.seq,
        stored_at=message.time.astimezone(UTC),
        chat=chat_of(message.subject),
        nats_id=nats_id_in(message.headers),
        digest=sha256(message.data or b"").hexdigest(),
    )


def nats_id_in(headers: Mapping[str, str] | None) -> str:
    """Return the id by which the publisher of a message of the log knows it.

    `AdapterClient` adds a hash of the content to the envelope id.
    """
    return _HASH.sub("", (headers or {}).get("Nats-Msg-Id", ""))


def chat_of(subject: str) -> str:
    """Return platform, account and chat token of an inbound subject, published or stored."""
    return ".".join(subject.split(".")[-3:])


async def _read_stream(client: Client, stream: str) -> list[RawStreamMsg]:
    """Return all messages of a stream whose writers have finished.

    It reads message by message, because a consumer would need an extra permission.
    """
    jetstream = client.jetstream(timeout=_PATIENCE.total_seconds())
    state = (await jetstream.stream_info(stream)).state
    places = asyncio.Semaphore(_AT_ONCE)

    async def read(sequence: int) -> RawStreamMsg | None:
        async with places:
            with suppress(NotFoundError):
                return await jetstream.get_msg(stream, sequence)
            return None

    numbers = range(max(state.first_seq, 1), state.last_seq + 1)
    return [message for message in await asyncio.gather(*map(read, numbers)) if message is not None]
