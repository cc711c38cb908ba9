"""The player and the observer against real servers, with a few lines in the place of a router."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import asyncpg
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from chatlane.nats import topology
from chatlane.nats.jetstream import JetStream
from chatlane.nats.tasks import end_task
from chatlane_client.transport.connection import open_connection
from chatlane_client.transport.wire import publish_stored
from chatlane_devkit.demo.observer import Observer, read_dead_notices, read_log
from chatlane_devkit.demo.player import Player, Score
from chatlane_devkit.scenario.feed import Cue, Pause, Publication, Settle, Step, parse_step
from chatlane_schemas import (
    DecodeError,
    InboundEvent,
    OutboundMessage,
    decode,
    new_envelope_id,
    source_of,
)
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres, RunningServer

pytestmark = pytest.mark.integration

PARTITIONS = 4
PATIENCE = timedelta(seconds=20)


def line(number: int, chat: str, text: str, **more: object) -> Publication:
    event: dict[str, Any] = {
        "v": 1,
        "id": f"e{number}",
        "at": "2026-03-12T12:00:00Z",
        "message_id": number,
        "platform": "telegram",
        "account": "assistant",
        "chat": {"id": chat},
        "sender": {"id": chat},
        "text": text,
    }
    step = parse_step(number, {"event": event, "expect": "accepted", "talk": chat} | more)
    assert isinstance(step, Publication)
    return step


def raw(number: int, body: str) -> Publication:
    subject = subjects.inbound("telegram", "assistant", "0123456789abcdef")
    step = parse_step(number, {"subject": subject, "body": body, "expect": "dead:not_json"})
    assert isinstance(step, Publication)
    return step


@dataclass
class Answerer:
    """Answers what reaches the log and moves the cursors; a router in all that the player sees."""

    client: Client
    database: asyncpg.Connection
    counts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    answered: set[str] = field(default_factory=set)
    is_deaf: bool = False

    @asynccontextmanager
    async def request_handler(self) -> AsyncIterator[None]:
        """Answer during the block; the consumer exists before anything can break."""
        config = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT, ack_wait=1)
        log = await self.client.jetstream().pull_subscribe(
            "", durable="answerer", stream="INBOUND", config=config
        )
        reading = asyncio.create_task(self._run(log))
        try:
            yield
        finally:
            if reading.done():
                # What ended it is why nobody was answered.
                reading.result()
            await end_task(reading)
            await log.unsubscribe()

    async def _run(self, log: JetStreamContext.PullSubscription) -> None:
        while True:
            with suppress(nats.errors.Error, TimeoutError):
                for message in await log.fetch(100, timeout=0.5):
                    await self._read(message)

    async def _read(self, message: Msg) -> None:
        with suppress(DecodeError):
            event = decode(InboundEvent, message.data)
            is_new = event.receipt is None and event.id not in self.answered
            if is_new and not self.is_deaf:
                self.answered.add(event.id)
                await self._answer(event)
        await message.ack()
        await self.database.execute(
            "UPDATE partitions SET cursor = $2 WHERE log = 'inbound' AND id = $1",
            int(message.subject.split(".")[3]),
            message.metadata.sequence.stream,
        )

    async def _answer(self, event: InboundEvent) -> None:
        source = source_of(event)
        chat = source.chat.id if source.chat and source.chat.id else ""
        self.counts[chat] += 1
        number = self.counts[chat]
        message = OutboundMessage(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=uuid5(UUID(int=0), chat),
            out_seq=number,
            agent="main",
            target=source,
            text=f"#{2 * number - 1} heard: {event.text}",
        )
        token = subjects.chat_token_of(event)
        subject = subjects.outbound("telegram", "assistant", token)
        await publish_stored(self.client, subject, message)


OnCue = Callable[[str], Awaitable[None]]


async def never(cue: str) -> None:
    raise AssertionError(cue)


@dataclass
class Stage:
    client: Client
    observer: Observer
    answerer: Answerer
    score: Score = field(default_factory=Score)

    async def play(
        self, *steps: Step, on_cue: OnCue = never, patience: timedelta = PATIENCE
    ) -> None:
        player = Player(
            {("telegram", "assistant"): self.client},
            self.observer,
            self.score,
            partitions=PARTITIONS,
            pace=lambda: 1000,
            on_cue=on_cue,
            patience=patience,
        )
        async with player.receiving():
            await player.play(steps)


@asynccontextmanager
async def open_stage(nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    async with open_connection(nats_url, name="test") as client:
        await topology.apply(
            JetStream(client),
            declared_streams(PARTITIONS),
            declared_durables([], [("telegram", "assistant")]),
        )
        database = await asyncpg.connect(database_url)
        await database.execute(
            "INSERT INTO partitions (log, id) SELECT 'inbound', generate_series(0, $1 - 1)",
            PARTITIONS,
        )
        observer, answerer = Observer(database_url), Answerer(client, database)
        try:
            async with answerer.request_handler():
                yield Stage(client, observer, answerer)
        finally:
            await observer.close()
            await database.close()


@pytest.fixture
async def stage(nats_url: str, database_url: str) -> AsyncIterator[Stage]:
    async with open_stage(nats_url, database_url) as stage:
        yield stage


async def test_every_chat_is_published_in_order_and_answered(stage: Stage) -> None:
    steps = [line(number, f"chat {number % 5}", f"text {number}") for number in range(1, 701)]
    await stage.play(*steps)
    assert (stage.score.published, stage.score.due, stage.score.answered) == (700, 700, 700)
    log, _ = await read_log(stage.client)
    # Receipts of the answers are between them.
    sequences = [entry.sequence for entry in log]
    assert (len(sequences), sequences) == (700, sorted(set(sequences)))
    numbers: dict[str, list[int]] = defaultdict(list)
    for entry in log:
        numbers[entry.chat].append(int(entry.nats_id[1:]))
    assert len(numbers) == 5
    assert all(its == sorted(its) for its in numbers.values())


async def test_what_no_adapter_would_publish_goes_out_as_it_is(stage: Stage) -> None:
    await stage.play(raw(1, "hello?"), raw(2, "still there?"))
    log, _ = await read_log(stage.client)
    assert [entry.nats_id for entry in log] == ["feed-1", "feed-2"]
    assert (stage.score.published, stage.score.due) == (2, 0)


async def test_an_envelope_that_comes_again_is_counted_as_refused(stage: Stage) -> None:
    again = line(1, "a", "hi", expect="duplicate")
    await stage.play(line(1, "a", "hi"), again)
    assert (stage.score.refused_copies, stage.score.answered) == (1, 1)


async def test_a_settle_waits_for_the_answers_and_a_cue_for_nothing(stage: Stage) -> None:
    heard_at: dict[str, int] = {}

    async def note(name: str) -> None:
        heard_at[name] = stage.score.answered

    steps = (line(1, "a", "one"), Settle(""), Pause(timedelta(0), ""), Cue("nats"))
    await stage.play(*steps, line(2, "a", "two"), on_cue=note)
    assert heard_at == {"nats": 1}
    assert [answer.text for answer in stage.score.answers] == ["#1 heard: one", "#3 heard: two"]


async def test_a_play_without_answers_has_an_end(stage: Stage) -> None:
    stage.answerer.is_deaf = True
    with pytest.raises(TimeoutError):
        await stage.play(line(1, "a", "one"), patience=timedelta(milliseconds=200))


async def test_a_cue_that_fails_ends_the_play(stage: Stage) -> None:
    async def fail(name: str) -> None:
        raise KeyError(name)

    with pytest.raises(KeyError, match="earthquake"):
        await stage.play(Cue("earthquake"), on_cue=fail)


async def test_publishing_outlives_a_killed_server(
    nats_server: RunningServer, database_url: str
) -> None:
    async with open_stage(nats_server.url, database_url) as stage:

        async def restart(_: str) -> None:
            await nats_server.kill()
            await nats_server.start()

        before = [line(number, "a", str(number)) for number in range(1, 50)]
        after = [line(number, "a", str(number)) for number in range(50, 100)]
        await stage.play(*before, Cue("nats"), *after, raw(100, "?"), on_cue=restart)
        log, _ = await read_log(stage.client)
        assert [entry.nats_id for entry in log if entry.nats_id != "feed-100"] == [
            f"e{number}" for number in range(1, 100)
        ]


async def test_an_empty_stack_has_nothing_to_show(stage: Stage) -> None:
    observer = stage.observer
    assert await observer.owners() == {}
    assert await observer.claimed_by("worker-1") == []
    assert await observer.live_among([str(UUID(int=1))]) == []
    assert not await observer.sessions()
    assert not await observer.rows()
    assert not await observer.dead_letters()
    assert not any((await observer.left_over()).values())
    assert await read_dead_notices(stage.client) == []


async def test_the_observer_waits_for_a_killed_database(own_postgres: RunningPostgres) -> None:
    observer = Observer(own_postgres.url)
    with pytest.raises(asyncpg.UndefinedTableError):
        await observer.owners()
    await own_postgres.kill()
    looking = asyncio.create_task(observer.owners())
    await eventually(lambda: observer._connection is None)
    await own_postgres.start()
    with pytest.raises(asyncpg.UndefinedTableError):
        await looking
    await observer.close()
