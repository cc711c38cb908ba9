"""A running service with people whose every word is their own, and the commands about people."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import nats
from nats.aio.client import Client

from chatlane.config.settings import load_settings
from chatlane_schemas.codec import encode
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.topology.subjects import inbound_for
from tests.support.eventually import eventually
from tests.support.servers.databases import login_of, with_database
from tests.support.service.leftover_scan import dumped, hits, stored
from tests.support.service.pace import paced
from tests.support.service.processes import ACCOUNT, PLATFORM, Service

KEY: Final = "an erasure key of at least 32 bytes"
MORE: Final = f"""
[keys]
group_sessions_per_user = false

[erasure]
key = "{KEY}"
"""
ANN: Final = "annid70155"
BOB: Final = "bobid70255"
SETTLED_WITHIN: Final = timedelta(seconds=30)

# Who writes, and into which chat; None is theirs alone.
Place = tuple[str, str | None]


@dataclass
class World:
    """A running service, and people who write to it."""

    service: Service
    client: Client
    database: asyncpg.Connection
    written: list[str] = field(default_factory=list)
    authors: dict[str, str] = field(default_factory=dict)

    async def write(self, who: str, chat: str | None = None, **fields: Any) -> str:  # noqa: ANN401 - any field of an event
        """Let somebody write a word of their own into a chat; theirs alone by default."""
        word = f"canary{who[:3]}{len(self.written):05d}x"
        self.written.append(word)
        self.authors[word] = who
        event = InboundEvent.model_validate(
            {
                "v": 1,
                "id": uuid4().hex,
                "at": datetime.now(UTC),
                "platform": PLATFORM,
                "account": ACCOUNT,
                "message_id": fields.pop("message_id", uuid4().hex),
                "chat": {"id": chat or who, "kind": "group" if chat else "dm"},
                "sender": {"id": who, "name": f"canaryname{who}"},
                "text": f"I say {word}",
                **fields,
            },
            strict=False,
        )
        headers = {"Nats-Msg-Id": event.id}
        jetstream = self.client.jetstream(timeout=SETTLED_WITHIN.total_seconds())
        await jetstream.publish(inbound_for(event), encode(event), headers=headers)
        return word

    @asynccontextmanager
    async def begin(self, per_second: float, *places: Place) -> AsyncIterator[None]:
        """Write steadily during the block, in one place after the other; then all of it is stored."""
        stop = asyncio.Event()

        async def write_on() -> None:
            in_turn = cycle(places)
            async with asyncio.TaskGroup() as tasks:
                async for _ in paced(per_second, stop):
                    tasks.create_task(self.write(*next(in_turn)))

        unit_of_work = asyncio.create_task(write_on())
        try:
            yield
        finally:
            stop.set()
            await unit_of_work

    def words_of(self, who: str) -> list[str]:
        """Return every word that somebody wrote."""
        return [word for word, author in self.authors.items() if author == who]

    async def until_settled(self, within: timedelta = SETTLED_WITHIN) -> None:
        """Wait until everything that was said is answered."""

        async def is_settled() -> bool:
            row = await self.database.fetchrow(
                "SELECT (SELECT count(*) FROM outbox) AS outbox,"
                " (SELECT count(*) FROM waiting) AS waiting,"
                " (SELECT count(*) FROM turns WHERE state IN ('ready', 'claimed')) AS turns,"
                " (SELECT count(*) FROM messages AS said WHERE role = 'user' AND turn_id IS NULL"
                "  AND id IS NOT NULL AND source IS NOT NULL AND state IS DISTINCT FROM 'deleted'"
                "  AND NOT EXISTS (SELECT FROM messages WHERE reply_to = said.id)) AS asked,"
                " (SELECT count(*) FROM sessions LEFT JOIN search_progress ON session_id = id"
                "  WHERE next_seq - 1 > coalesce(seq, 0)) AS unsearchable,"
                " (SELECT max(cursor) FROM partitions WHERE log = 'inbound') AS cursor"
            )
            info = await self.client.jetstream().stream_info("INBOUND")
            assert row is not None
            assert dict(row) == {
                "outbox": 0,
                "waiting": 0,
                "turns": 0,
                "asked": 0,
                "unsearchable": 0,
                "cursor": info.state.last_seq,
            }
            return True

        await eventually(is_settled, within)

    async def start(
        self, *arguments: str, config: Path | None = None
    ) -> asyncio.subprocess.Process:
        """Start a command with the rights of what deletes on request."""
        settings = load_settings(config or self.service.config, {})
        dsn = settings.postgres.dsn.get_secret_value()
        name = urlsplit(dsn).path.removeprefix("/")
        login = await login_of(with_database(self.service.dsn, name), "chatlane_retention")
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "chatlane",
            *arguments,
            "--config",
            str(config or self.service.config),
            env={**os.environ, "CHATLANE_POSTGRES__DSN": login},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, config: Path | None = None) -> tuple[int, str, str]:
        """Run a command; returns its exit code and what it said."""
        process = await self.start(*arguments, config=config)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def erase(self, who: str, *options: str) -> dict[str, Any]:
        """Run the command, which has to say that nothing is left; returns the receipt."""
        code, out, err = await self.run(
            "people", "erase", f"{PLATFORM}/{ACCOUNT}/{who}", "--yes", "--json", *options
        )
        assert code == 0, (out, err)
        told: dict[str, Any] = json.loads(out)
        assert told["left"] == {}
        return told

    async def found(self, *words: str, dsn: str | None = None) -> dict[str, dict[str, int]]:
        """Return where words are found, and how often."""
        found = {"database": hits(await dumped(dsn or self.service.dsn), words)}
        async for kept in stored(self.service.nats_url):
            for word, count in hits(kept.data, words).items():
                its = found.setdefault(kept.stream, {})
                its[word] = its.get(word, 0) + count
        return {store: its for store, its in found.items() if its}


@asynccontextmanager
async def open_world(service: Service) -> AsyncIterator[World]:
    """Connect to the servers of a service for the length of the block."""
    async with AsyncExitStack() as stack:
        client = await nats.connect(service.nats_url)
        stack.push_async_callback(client.close)
        database = await asyncpg.connect(service.dsn)
        stack.push_async_callback(database.close)
        yield World(service, client, database)
