"""The relay on a real database, with a publisher whose server may fail as servers do."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg
import pytest
from nats.js import JetStreamContext

from chatlane.domain.effects import Publication
from chatlane.errors import StoreUnavailableError
from chatlane.nats.connection import BusOptions, open_bus
from chatlane.nats.tasks import end_task
from chatlane.observability.metrics import Metrics
from chatlane.outbox.publisher import open_publisher
from chatlane.outbox.relay import OutboxWriter, Relay
from chatlane.postgres.pool import Store
from chatlane.store import outbox
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningServer
from tests.support.worlds.fake_streams import FakePublisher, FakeStream, Fate

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

pytestmark = pytest.mark.integration

SESSION = uuid4()
LIVE = timedelta(minutes=5)


class World:
    """A database, a stream, and routers that come and go."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.stream = FakeStream()

    @asynccontextmanager
    async def router(
        self,
        publisher: FakePublisher | None = None,
        *,
        duplicate_window: timedelta = timedelta(minutes=10),
        stream_bytes: int = 2**20,
        is_running: bool = True,
    ) -> AsyncIterator[Relay]:
        """Let a router live; its relay stops at the end of the block, as if it was killed."""
        router_id = uuid4()
        await self.see(router_id, LIVE)
        relay = Relay(
            publisher or FakePublisher(self.stream),
            self.store.transaction,
            router_id,
            metrics=Metrics(),
            jitter=Random(0),  # noqa: S311
            duplicate_window=duplicate_window,
            stream_bytes=stream_bytes,
        )
        task = asyncio.create_task(relay.run()) if is_running else None
        try:
            yield relay
        finally:
            if task:
                await end_task(task)
            await self.see(router_id, timedelta(seconds=-1))

    async def see(self, router_id: UUID, until: timedelta) -> None:
        async with self.store.transaction() as connection:
            await connection.execute(
                "INSERT INTO routers (id, version, seen_until) VALUES ($1, 'test', now() + $2)"
                " ON CONFLICT (id) DO UPDATE SET seen_until = excluded.seen_until",
                router_id,
                until,
            )

    async def rows(self) -> list[str]:
        async with self.store.transaction() as connection:
            found = await connection.fetch("SELECT message_id FROM outbox ORDER BY id")
        return [row[0] for row in found]

    @property
    def published(self) -> list[str]:
        return list(self.stream.ids)

    async def are_published(self, *texts: str) -> None:
        await eventually(lambda: self.published == list(texts))


@pytest.fixture
def world(store: Store) -> World:
    return World(store)


def said(text: str, session_id: UUID | None = SESSION, stream: str = "OUTBOUND") -> Publication:
    return Publication(session_id, stream, "chat.v1.outbound.x.y.none", text, text.encode())


async def write(relay: Relay, store: Store, *publications: Publication) -> None:
    async with relay.ordered() as writer, store.transaction() as connection:
        await writer.insert(connection, publications)


async def test_committed_rows_are_published_and_then_deleted(world: World) -> None:
    async with world.router() as relay:
        await write(relay, world.store, said("one"), said("two"))
        await world.are_published("one", "two")
        await eventually(lambda: is_empty(world))
        assert relay.backlog == 0


async def is_empty(world: World) -> bool:
    return await world.rows() == []


async def test_the_next_batch_deletes_what_was_published(world: World) -> None:
    async with world.router() as relay:
        await write(relay, world.store, said("one"))
        await world.are_published("one")
        async with relay.ordered() as writer, world.store.transaction() as connection:
            await writer.insert(connection, [said("two")])
            rows = await connection.fetch("SELECT message_id FROM outbox")
            assert [row[0] for row in rows] == ["two"]


async def test_nothing_is_published_that_was_not_committed(world: World) -> None:
    async with world.router() as relay:
        with contextlib.suppress(ZeroDivisionError):
            async with relay.ordered() as writer, world.store.transaction() as connection:
                await writer.insert(connection, [said("never")])
                raise ZeroDivisionError
        await write(relay, world.store, said("one"))
        await world.are_published("one")


async def test_ids_are_deleted_later_when_their_transaction_fails(world: World) -> None:
    async with world.router() as relay:
        await write(relay, world.store, said("one"))
        await world.are_published("one")
        with contextlib.suppress(ZeroDivisionError):
            async with relay.ordered() as writer, world.store.transaction() as connection:
                await writer.insert(connection, [said("never")])
                raise ZeroDivisionError
        assert await world.rows() == ["one"]
        await eventually(lambda: is_empty(world))


async def test_rows_of_a_dead_router_are_published_by_another_in_order(world: World) -> None:
    unreachable = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(unreachable) as relay:
        await write(relay, world.store, *(said(str(n)) for n in range(20)))
    async with world.router() as other:
        assert await other.adopt_orphans() == 20
        await world.are_published(*(str(n) for n in range(20)))


@pytest.mark.parametrize("is_late", [False, True])
async def test_only_a_take_over_after_the_duplicate_window_repeats_a_message(
    world: World, *, is_late: bool
) -> None:
    unheard = FakePublisher(world.stream, fate=lambda _: Fate.ACK_LOST)
    async with world.router(unheard) as dead:
        await write(dead, world.store, said("event", stream="EVENTS"))
        await world.are_published("event")
    if is_late:
        world.stream.forget_ids()
    async with world.router() as living:
        assert await living.adopt_orphans() == 1
        await eventually(lambda: is_empty(world))
    assert world.published == ["event"], "the copy has the same id"
    bodies = [body for _, body in world.stream.messages]
    assert bodies == [b"event"] * (2 if is_late else 1)


async def test_new_rows_wait_for_the_older_ones_of_another_router(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(held) as first, world.router() as second:
        await write(first, world.store, said("one"))
        await write(second, world.store, said("two"), said("elsewhere", uuid4()))
        await world.are_published("elsewhere")
        assert await second.adopt_orphans() == 0
        held.fate = lambda _: Fate.STORED
        await world.are_published("elsewhere", "one")
        await eventually(second.adopt_orphans)
        await world.are_published("elsewhere", "one", "two")


class CommitLostError(StoreUnavailableError):
    """The server committed; nobody here heard of it."""


async def test_a_commit_of_unknown_outcome_loses_no_row_and_no_order(world: World) -> None:
    @asynccontextmanager
    async def losing_the_commit() -> AsyncIterator["PoolConnectionProxy"]:
        async with world.store.transaction() as connection:
            yield connection
        raise CommitLostError

    async with world.router() as relay:
        with contextlib.suppress(CommitLostError):
            async with relay.ordered() as writer, losing_the_commit() as connection:
                await writer.insert(connection, [said("one")])
        await write(relay, world.store, said("two"), said("elsewhere", uuid4()))
        await world.are_published("elsewhere")
        assert await relay.adopt_orphans() == 2
        await world.are_published("elsewhere", "one", "two")
        await eventually(lambda: is_empty(world))
        await write(relay, world.store, said("three"))
        await world.are_published("elsewhere", "one", "two", "three")


async def test_a_frozen_relay_drops_what_another_has_taken_over(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(held, duplicate_window=timedelta(milliseconds=40)) as relay:
        await write(relay, world.store, said("one"), said("two"))
        await eventually(lambda: held.attempts)
        async with world.store.transaction() as connection:
            await connection.execute("DELETE FROM outbox WHERE message_id = 'one'")
        world.stream.forget_ids()
        held.fate = lambda _: Fate.STORED
        await world.are_published("two")
        await eventually(lambda: relay.backlog == 0)


async def test_a_relay_that_was_away_publishes_what_is_still_its_own(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    texts = [str(n) for n in range(30)]
    async with world.router(held, duplicate_window=timedelta(milliseconds=400)) as relay:
        await write(relay, world.store, *(said(text) for text in texts))
        # By then the rows were held for longer than they may be without a look at the table.
        await eventually(lambda: len(held.attempts) >= 5)
        held.fate = lambda _: Fate.STORED
        await world.are_published(*texts)
        assert relay.backlog == 0


async def test_an_oversized_row_becomes_a_dead_letter_and_its_session_goes_on(
    world: World,
) -> None:
    small = FakePublisher(world.stream, max_payload=2000)
    async with world.router(small) as relay:
        large = said("large")._replace(payload=b"x" * 3000)
        await write(relay, world.store, said("one"), large, said("two"))
        await eventually(lambda: {"one", "two"} < set(world.published))
        await eventually(lambda: is_empty(world))
        async with world.store.transaction() as connection:
            (letter,) = await connection.fetch("SELECT * FROM dead_letters")
        assert (letter["stage"], letter["reason"]) == ("outbox", "oversized_outbound")
        assert (letter["session_id"], letter["body"]) == (SESSION, b"x" * 3000)
        assert str(letter["id"]) in world.published, "operators are told"
        assert len(world.published) == 3


async def test_what_does_not_fit_in_memory_waits_in_the_table(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(held, stream_bytes=5000) as relay:
        await write(relay, world.store, *(said(str(n)) for n in range(10)))
        assert relay.crowded_streams == {"OUTBOUND"}
        await write(relay, world.store, *(said(str(n)) for n in range(10, 15)))
        assert relay.backlog == 10
        assert await relay.adopt_orphans() == 0, "there is no room"
        held.fate = lambda _: Fate.STORED
        await eventually(lambda: relay.backlog == 0)
        await eventually(relay.adopt_orphans)
        await world.are_published(*(str(n) for n in range(15)))


@pytest.mark.parametrize("gone", ["EVENTS", "DEAD", "TURNS", "OUTBOUND", "ROUTED"])
async def test_rows_of_a_stream_that_is_gone_cost_no_other_and_go_out_when_it_is_back(
    world: World, gone: str
) -> None:
    others = sorted({"EVENTS", "DEAD", "TURNS", "OUTBOUND", "ROUTED"} - {gone})
    held = FakePublisher(
        world.stream, fate=lambda text: Fate.LOST if text.startswith(gone) else Fate.STORED
    )
    async with world.router(held, stream_bytes=5000) as relay:
        lost = [said(f"{gone} {n}", stream=gone) for n in range(1500)]
        for begin in range(0, 1500, 300):
            await write(relay, world.store, *lost[begin : begin + 300])
        # What another router left behind waits behind more rows than one sweep takes.
        async with world.store.transaction() as connection:
            await outbox.insert(
                connection, None, [said(f"left {its}", uuid4(), its) for its in others]
            )
        await write(relay, world.store, *(said(f"new {its}", uuid4(), its) for its in others))
        await world.are_published(*(f"new {its}" for its in others))
        assert await relay.adopt_orphans() == len(others)
        await world.are_published(
            *(f"new {its}" for its in others), *(f"left {its}" for its in others)
        )
        assert relay.backlog <= 300

        held.fate = lambda _: Fate.STORED

        async def are_gone() -> bool:
            await relay.adopt_orphans()
            return await is_empty(world)

        await eventually(are_gone, timedelta(seconds=30))
    found = [text for text in world.published if text.startswith(gone)]
    assert sorted(found) == sorted(row.message_id for row in lost)
    if gone in outbox.ORDERED_STREAMS:
        assert found == [row.message_id for row in lost]


async def test_no_room_for_words_about_dead_letters_keeps_nothing_else(world: World) -> None:
    def fate(text: str) -> Fate:
        return Fate.REFUSED if text.startswith("word") else Fate.STORED

    async with world.router(FakePublisher(world.stream, fate=fate), stream_bytes=5000) as relay:
        words = (said(f"word {n}", None, "DEAD") for n in range(20))
        await write(relay, world.store, *words)
        await write(relay, world.store, said("one"))

        async def are_gone() -> bool:
            await relay.adopt_orphans()
            return await is_empty(world)

        await eventually(are_gone)
        assert world.published == ["one"]
        assert await relay.drain(timedelta(seconds=10))


async def test_a_graceful_stop_publishes_and_deletes_everything(world: World) -> None:
    async with world.router() as relay:
        await write(relay, world.store, *(said(str(n)) for n in range(50)))
        assert await relay.drain(timedelta(seconds=10))
        assert await world.rows() == []
    assert len(world.published) == 50


async def test_a_stop_without_a_server_leaves_the_rows_to_others(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(held) as relay:
        await write(relay, world.store, said("one"))
        assert not await relay.drain(timedelta(milliseconds=50))
    assert await world.rows() == ["one"]


async def test_an_outage_of_the_database_delays_deletion_only(world: World) -> None:
    is_down = False

    @asynccontextmanager
    async def unreliable() -> AsyncIterator["PoolConnectionProxy"]:
        if is_down:
            raise StoreUnavailableError
        async with world.store.transaction() as connection:
            yield connection

    async with world.router() as relay:
        relay._transaction = unreliable
        await write(relay, world.store, said("one"))
        is_down = True
        await world.are_published("one")
        with pytest.raises(StoreUnavailableError):
            await relay.adopt_orphans()
        is_down = False
        await eventually(lambda: is_empty(world))


class Commotion:
    """Routers that write to the same sessions, fail, freeze, die and come back.

    What they committed is kept in a table of its own, in the order of the session locks.
    """

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = Random(seed)  # noqa: S311
        self.sessions = sorted(uuid4() for _ in range(4))

    async def prepare(self) -> None:
        async with self.world.store.transaction() as connection:
            await connection.execute(
                "DROP TABLE IF EXISTS said;"
                " CREATE TABLE said (id bigint GENERATED ALWAYS AS IDENTITY, session uuid, text text)"
            )

    def fate(self, _: str) -> Fate:
        return Fate.STORED if self.chance.random() < 0.7 else self.chance.choice(list(Fate))

    async def live(self) -> None:
        """Be one router after the other, each killed without warning."""
        for _ in range(4):
            publisher = FakePublisher(
                self.world.stream, ack_timeout=timedelta(milliseconds=5), fate=self.fate
            )
            async with self.world.router(publisher) as relay:
                for _ in range(self.chance.randrange(5, 20)):
                    await self.act(relay)

    async def act(self, relay: Relay) -> None:
        # A deadlock rolls back: the second session is locked after rows of the first were deleted.
        with contextlib.suppress(ZeroDivisionError, CommitLostError, StoreUnavailableError):
            await self.speak(relay)
        if self.chance.random() < 0.3:
            await relay.adopt_orphans()
        if self.chance.random() < 0.1:
            # Frozen for others, who take over its rows, and awake itself.
            for until in (timedelta(seconds=-1), LIVE):
                await self.world.see(relay._router_id, until)
                await asyncio.sleep(0.002)

    async def speak(self, relay: Relay) -> None:
        async with relay.ordered() as writer:
            async with self.world.store.transaction() as connection:
                for session in sorted(self.chance.sample(self.sessions, 2)):
                    await self.write(connection, writer, session)
                if self.chance.random() < 0.1:
                    raise ZeroDivisionError
            if self.chance.random() < 0.1:
                raise CommitLostError

    async def write(
        self, connection: "PoolConnectionProxy", writer: OutboxWriter, session: UUID
    ) -> None:
        text = str(uuid4())
        # Everybody writes to few sessions here; on a busy machine the usual second is short.
        await connection.execute("SET LOCAL lock_timeout = '20s'")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", session.int % 2**31)
        await connection.execute("INSERT INTO said (session, text) VALUES ($1, $2)", session, text)
        await writer.insert(connection, [said(text, session)])

    async def settle(self) -> None:
        """Let one healthy router publish what is left."""
        async with self.world.router() as relay:

            async def is_settled() -> bool:
                await relay.adopt_orphans()
                return await self.world.rows() == []

            await eventually(is_settled, timedelta(seconds=20))

    async def said_in(self, session: UUID) -> list[str]:
        async with self.world.store.transaction() as connection:
            rows = await connection.fetch(
                "SELECT text FROM said WHERE session = $1 ORDER BY id", session
            )
        return [row[0] for row in rows]


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 5))]
)
async def test_many_routers_and_faults_keep_the_order_of_every_session(
    world: World, seed: int
) -> None:
    commotion = Commotion(world, seed)
    await commotion.prepare()
    await asyncio.gather(*(commotion.live() for _ in range(3)))
    await commotion.settle()
    for session in commotion.sessions:
        wanted = await commotion.said_in(session)
        assert [text for text in world.published if text in set(wanted)] == wanted
        assert len(wanted) > 20


async def test_the_backlog_of_all_routers_is_visible(world: World) -> None:
    held = FakePublisher(world.stream, fate=lambda _: Fate.LOST)
    async with world.router(held) as relay:
        await write(relay, world.store, said("one"))
        async with world.store.transaction() as connection:
            assert (await outbox.backlog(connection)).rows == 1


async def test_a_killed_server_costs_no_row_and_no_order(
    store: Store, nats_server: RunningServer
) -> None:
    sessions = [uuid4() for _ in range(20)]
    rows = [said(f"{n:04}", sessions[n % 20]) for n in range(2000)]
    async with open_bus(BusOptions(url=nats_server.url)) as bus:
        jetstream = bus.client.jetstream()
        await jetstream.add_stream(name="OUTBOUND", subjects=["chat.v1.outbound.>"])
        async with open_publisher(bus, timedelta(milliseconds=500)) as publisher:
            relay = Relay(
                publisher,
                store.transaction,
                uuid4(),
                metrics=Metrics(),
                jitter=Random(0),  # noqa: S311
            )
            bus.listen(reconnected=relay.retry_now)
            task = asyncio.create_task(relay.run())
            for start in range(0, 2000, 200):
                await write(relay, store, *rows[start : start + 200])
                if start == 600:
                    await nats_server.kill()
            await nats_server.start()
            assert await relay.drain(timedelta(seconds=20))
            await end_task(task)
        stored = await bodies(jetstream, 2000)
    wanted = sorted(row.payload.decode() for row in rows)
    assert sorted(stored) == wanted
    for session in range(20):
        assert [text for text in stored if int(text) % 20 == session] == wanted[session::20]
    async with store.transaction() as connection:
        assert (await outbox.backlog(connection)).rows == 0


async def bodies(jetstream: JetStreamContext, count: int) -> list[str]:
    """Return what a stream holds, in order."""
    assert (await jetstream.stream_info("OUTBOUND")).state.messages == count
    reader = await jetstream.pull_subscribe("chat.v1.outbound.>", stream="OUTBOUND")
    found: list[str] = []
    while len(found) < count:
        for message in await reader.fetch(500, timeout=5):
            found.append(message.data.decode())
            await message.ack()
    return found


async def test_what_no_stream_stores_gets_no_row_and_is_told_after_the_commit(
    world: World,
) -> None:
    told: list[str] = []

    async def tell(_subject: str, _payload: bytes, message_id: str) -> None:
        told.append(message_id)

    relay = Relay(
        FakePublisher(world.stream),
        world.store.transaction,
        uuid4(),
        metrics=Metrics(),
        jitter=Random(0),  # noqa: S311
        is_unstored=lambda subject: subject.endswith(".ended"),
        tell=tell,
    )
    ended = said("ended", stream="EVENTS")._replace(subject="chat.v1.event.turn.ended")
    with pytest.raises(asyncpg.CharacterNotInRepertoireError):
        await write(relay, world.store, ended, said("\0"))
    assert told == []
    await write(relay, world.store, said("one"), ended, said("two"))
    assert await world.rows() == ["one", "two"]
    assert told == ["ended"]
