"""What chatlane is compared with: a worker written the obvious way, one message at a time.

Usage: `python naive_worker.py NATS_URL DSN FIRST_SEQUENCE MESSAGES`. A FastStream subscriber reads
the inbound log; each message is one upsert of its session and one publication, and then it is
acknowledged. It prints one line of JSON about how fast.
"""

import asyncio
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter
from typing import Final, LiteralString, NamedTuple

import asyncpg
import nats
from faststream.nats import JStream, NatsBroker, NatsMessage
from nats.js.api import ConsumerConfig, DeliverPolicy
from pydantic import BaseModel

_LOG: Final = "chat.v1.log.>"
_STREAM: Final = "NAIVE"
_SUBJECT: Final = "naive.routed"
_QUEUE: Final = "naive"
_LOG_STREAM: Final = JStream("INBOUND", declare=False)

TABLE_SQL: Final[LiteralString] = """
-- bench: the table of the naive worker
CREATE TABLE IF NOT EXISTS naive_sessions (
    session_key text PRIMARY KEY,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    messages bigint NOT NULL DEFAULT 1,
    last_activity_at timestamptz NOT NULL
)
"""
UPSERT_SQL: Final[LiteralString] = """
-- bench: the session of a message
INSERT INTO naive_sessions (session_key, last_activity_at) VALUES ($1, $2)
ON CONFLICT (session_key) DO UPDATE
SET messages = naive_sessions.messages + 1, last_activity_at = excluded.last_activity_at
RETURNING id, messages
"""
COUNT_SQL: Final[LiteralString] = """
-- bench: what the naive worker has written
SELECT count(*), sum(messages)::bigint FROM naive_sessions
"""
DROP_SQL: Final[LiteralString] = """
-- bench: nothing of the naive worker stays
DROP TABLE IF EXISTS naive_sessions
"""


@dataclass(slots=True)
class Pace:
    """Counts messages and knows when to begin measuring and when to stop.

    Attributes:
        total: It is over after so many.
        done: How many there were.
    """

    total: int
    done: int = 0
    _begin: float = 0.0
    _begin_done: int = 0
    _end: float = 0.0

    def tick(self) -> None:
        """Count one; the clock starts with the first tenth."""
        self.done += 1
        if not self._begin_done and self.done * 10 >= self.total:
            self._begin, self._begin_done = perf_counter(), self.done
        if self.done == self.total:
            self._end = perf_counter()

    @property
    def per_second(self) -> float:
        """Return the pace from the first tenth to the last one."""
        return (self.total - self._begin_done) / (self._end - self._begin)


class ChatOf(BaseModel):
    """Where something was said."""

    id: str


class Message(BaseModel):
    """What the worker wants to know of a message."""

    at: datetime
    platform: str
    account: str
    profile: str
    chat: ChatOf
    text: str

    @property
    def session_key(self) -> str:
        """The conversation of a direct message."""
        return f"{self.platform}:{self.account}:{self.profile}:{self.chat.id}"


class Work(NamedTuple):
    """What was done: how fast, into how many sessions, and how many messages these have."""

    per_second: float
    sessions: int
    messages: int


async def work(url: str, dsn: str, first_sequence: int, messages: int) -> Work:
    """Handle so many messages of the log from a sequence on; nothing of it stays."""
    pool = await asyncpg.create_pool(dsn, min_size=1, max_size=4)
    await pool.execute(TABLE_SQL)
    client = await nats.connect(url)
    jetstream = client.jetstream()
    await jetstream.add_stream(name=_STREAM, subjects=[_SUBJECT])
    broker = NatsBroker(url, logger=None)
    pace, over = Pace(messages), asyncio.Event()
    start = ConsumerConfig(
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=first_sequence
    )

    @broker.subscriber(_LOG, stream=_LOG_STREAM, queue=_QUEUE, config=start)
    async def handle(said: Message, message: NatsMessage) -> None:
        if pace.done == pace.total:
            return
        session = await pool.fetchrow(UPSERT_SQL, said.session_key, said.at)
        assert session is not None
        routed = {"session_id": str(session["id"]), "seq": session["messages"], "text": said.text}
        headers = {"Nats-Msg-Id": message.headers["Nats-Msg-Id"]}
        await broker.publish(routed, _SUBJECT, headers, stream=_STREAM)
        pace.tick()
        if pace.done == pace.total:
            over.set()

    try:
        async with broker:
            await broker.start()
            await over.wait()
        sessions, counted = await pool.fetchrow(COUNT_SQL)  # type: ignore[misc]
    finally:
        await jetstream.delete_stream(_STREAM)
        await jetstream.delete_consumer("INBOUND", _QUEUE)
        await client.close()
        await pool.execute(DROP_SQL)
        await pool.close()
    return Work(pace.per_second, sessions, counted)


async def main(url: str, dsn: str, first_sequence: str, messages: str) -> None:
    """Work, and print how fast it went."""
    done = await work(url, dsn, int(first_sequence), int(messages))
    sys.stdout.write(f"{json.dumps(done._asdict())}\n")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
