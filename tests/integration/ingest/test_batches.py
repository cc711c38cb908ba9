"""Batches that cannot be committed as they are: what waits, what goes on, what is set aside."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from random import SystemRandom
from typing import TYPE_CHECKING, Any, cast

import asyncpg
import pytest
from structlog.testing import capture_logs

from chatlane.decisions import batch_decision, inbound_decoder
from chatlane.domain.log import LogMessage, PartitionId
from chatlane.ingest.batch_committer import Batches
from chatlane.ingest.intake import Intake
from chatlane.nats.log_inspection import LogIntact
from chatlane.nats.tasks import end_task
from chatlane.observability.logs import configure_logging
from chatlane.observability.metrics import BatchOutcome
from chatlane.postgres import blockers
from chatlane.postgres.blockers import Blocker
from chatlane.postgres.pool import Store, open_store
from chatlane.store.addressing import dedupe_marks
from chatlane.store.logs import partitions
from tests.support.eventually import eventually
from tests.support.logs import restored_logging
from tests.support.worlds.kernel import DAY, PARTITIONS, SLOTS, Kernel, catalog, event

if TYPE_CHECKING:
    from chatlane.nats.log_access import LogAccess

pytestmark = pytest.mark.integration

LEASE = timedelta(seconds=3)


class FakeReader:
    """Holds what a test puts in."""

    is_caught_up = False
    break_reason = ""

    def __init__(self, on_arrival: Callable[[], None]) -> None:
        self.messages: deque[LogMessage] = deque()
        self.broken = asyncio.Event()
        self.arrived = on_arrival

    def drop(self, count: int) -> None:
        for _ in range(count):
            self.messages.popleft()

    async def close(self) -> None:
        self.broken.set()


class FakeAccess:
    """Opens fake readers on logs that are always as they were."""

    is_reachable = True

    def __init__(self) -> None:
        self.readers: dict[PartitionId, FakeReader] = {}

    async def inspect(self, *_of: object) -> LogIntact:
        return LogIntact()

    async def open(self, partition: PartitionId, **how: Any) -> FakeReader:  # noqa: ANN401
        self.readers[partition] = reader = FakeReader(how["on_arrival"])
        return reader


class Router:
    """A router that reads what a test says is in the log."""

    def __init__(self, store: Store) -> None:
        self.kernel = Kernel(store, catalog())
        self.access = FakeAccess()
        self.intake = Intake(
            router=self.kernel.relay.router_id,
            lease=LEASE,
            access=cast("LogAccess", self.access),
            transaction=store.transaction,
            on_truncated=_never,
        )
        self.batches = Batches(
            self.intake,
            self.kernel.writer,
            self.kernel.catalog,
            self.kernel.metrics,
            router_id=self.kernel.relay.router_id,
            lease=LEASE,
            slots=SLOTS,
            max_messages=100,
            linger=timedelta(milliseconds=1),
            jitter=SystemRandom(),
            find_blocker=self._find_blocker,
        )

    async def _find_blocker(self, pid: int) -> Blocker | None:
        async with self.kernel.store.transaction() as connection:
            return await blockers.find(connection, pid)

    async def take_all(self) -> None:
        """Hold the whole inbound log."""
        async with self.kernel.store.transaction() as connection:
            await partitions.ensure(connection, "inbound", PARTITIONS)
            claims = await partitions.claim_free(
                connection,
                self.kernel.relay.router_id,
                "inbound",
                except_for=(),
                limit=PARTITIONS,
                lease=LEASE,
            )
        self.intake.hold(claims)
        await eventually(lambda: len(self.access.readers) == PARTITIONS)

    def hear(self, chat: str, text: str) -> None:
        """Let a message of a chat arrive in the log."""
        message = self.kernel.logged(event(chat=chat, user=chat, text=text, mid=text), DAY)
        reader = self.access.readers[PartitionId(message.log, message.partition)]
        reader.messages.append(message)
        reader.arrived()

    async def heard(self) -> set[str]:
        """Return what was routed."""
        return {row[0] for row in await self.kernel.fetch("SELECT content FROM waiting")}

    async def has_routed(self, *texts: str) -> None:
        """Wait until these messages are routed, and no others."""

        async def check() -> bool:
            assert await self.heard() == set(texts)
            return True

        await eventually(check)


async def _never(*_of: object) -> bool:
    raise AssertionError("nothing was lost")


@asynccontextmanager
async def running(store: Store) -> AsyncIterator[Router]:
    router = Router(store)
    await router.take_all()
    task = asyncio.create_task(router.batches.run())
    try:
        yield router
        assert not task.done(), task.exception()
    finally:
        await end_task(task)
        await router.intake.close()


@pytest.fixture
def database_url(own_database_url: str) -> str:
    """Give each test a database of its own, because some change tables."""
    return own_database_url


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with open_store(database_url) as opened:
        async with opened.transaction() as connection:
            await dedupe_marks.create_partitions(connection, timedelta(days=3))
        yield opened


@pytest.fixture(autouse=True)
def logs_as_in_production() -> Iterator[None]:
    """What structlog does by default with an exception takes seconds."""
    with restored_logging():
        configure_logging(json=True)
        yield


@pytest.fixture
async def router(store: Store) -> AsyncIterator[Router]:
    async with running(store) as opened:
        yield opened


async def test_a_message_that_no_transaction_takes_is_set_aside_alone(router: Router) -> None:
    await router.kernel.fetch("ALTER TABLE waiting ADD CHECK (content <> 'poison')")
    for text in ("a", "b", "poison", "c"):
        router.hear("1", text)
    router.hear("2", "d")
    await router.has_routed("a", "b", "c", "d")
    assert await router.kernel.dead() == [("inbound", "internal_error")]


async def test_a_bug_met_while_decoding_costs_one_message(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = inbound_decoder.prepare_inbound

    def prepare_or_fail(message: LogMessage, *rest: Any) -> Any:  # noqa: ANN401
        if b"poison" in message.body:
            raise RuntimeError
        return prepare(message, *rest)

    monkeypatch.setattr(batch_decision, "prepare_inbound", prepare_or_fail)
    for text in ("a", "poison", "b"):
        router.hear("1", text)
    await router.has_routed("a", "b")
    assert await router.kernel.dead() == [("inbound", "internal_error")]


async def test_a_conversation_that_somebody_has_locked_holds_up_no_other(router: Router) -> None:
    router.hear("1", "first")
    await router.has_routed("first")
    async with router.kernel.store.transaction() as connection:
        await connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        await connection.execute("SELECT FROM sessions FOR UPDATE")
        router.hear("1", "held up")
        router.hear("2", "not held up")
        await router.has_routed("first", "not held up")
        router.hear("1", "behind it")
        router.hear("2", "not held up either")
        await router.has_routed("first", "not held up", "not held up either")
    await router.has_routed("first", "held up", "behind it", "not held up", "not held up either")


async def test_a_day_without_a_table_for_its_marks_costs_no_message(router: Router) -> None:
    days = await router.kernel.fetch(
        "SELECT relid::text FROM pg_partition_tree('seen') WHERE isleaf"
    )
    for day in days:
        await router.kernel.fetch(f"DROP TABLE {day[0]}")
    failed = router.kernel.metrics.batches.labels(BatchOutcome.FAILED)
    router.hear("1", "a")
    await eventually(lambda: failed._value.get() > 5)
    async with router.kernel.store.transaction() as connection:
        await dedupe_marks.create_partitions(connection, timedelta(days=3))
    await router.has_routed("a")
    assert await router.kernel.dead() == []


async def test_a_flood_of_commands_is_committed_in_small_parts_and_in_order(
    router: Router, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(router.kernel.metrics.batch_messages, "observe", sizes.append)
    for number in range(40):
        router.hear("1", f"/new t{number}")
    router.hear("2", "plain")
    await router.has_routed("plain")
    await eventually(lambda: sum(sizes) == 41)
    assert max(sizes) <= 16
    titles = await router.kernel.fetch(
        "SELECT title FROM sessions WHERE title <> '' ORDER BY title"
    )
    assert sorted(row[0] for row in titles) == sorted(f"t{number}" for number in range(40))
    told = await router.kernel.told()
    assert [f"“t{number}”" in one for number, one in enumerate(told)] == [True] * 40


def chats_by_partition(router: Router) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for number in range(200):
        chat = f"chat {number}"
        message = router.kernel.logged(event(chat=chat, user=chat, text="x", mid="x"), DAY)
        found.setdefault(message.partition, []).append(chat)
    return found


@pytest.mark.parametrize("table", ["sessions", "lanes"])
async def test_f12_a_locked_row_delays_what_is_behind_it_and_nothing_else(
    router: Router, database_url: str, table: str
) -> None:
    (locked, before, behind, *_), (elsewhere, *_), *_ = chats_by_partition(router).values()
    router.hear(locked, "first")
    await router.has_routed("first")
    statement = {
        "sessions": "SELECT FROM sessions FOR UPDATE",
        # No batch locks this table by itself: what it waits for is another transaction's change.
        "lanes": "LOCK TABLE lanes IN EXCLUSIVE MODE",
    }[table]
    told = ["first"]
    hand = await asyncpg.connect(database_url, server_settings={"application_name": "by hand"})
    try:
        async with hand.transaction():
            await hand.execute(statement)
            with capture_logs() as logs:
                if table == "sessions":
                    router.hear(before, "before")
                    router.hear(locked, "second")
                    router.hear(behind, "behind")
                    told += ["before"]
                    await router.has_routed(*told)
                    for number in range(5):
                        router.hear(elsewhere, f"elsewhere {number}")
                        told += [f"elsewhere {number}"]
                        await router.has_routed(*told)
                else:
                    router.hear(locked, "second")
                    router.hear(elsewhere, "elsewhere")
                await eventually(lambda: [one for one in logs if one["event"] == "row_locked"])
            assert router.batches.has_held_up
            [entry] = [one for one in logs if one["event"] == "row_locked"]
            assert (entry["holder"], entry["pid"]) == ("by hand", hand.get_server_pid())
            if table == "sessions":
                [(session_id,)] = await router.kernel.fetch(
                    "SELECT session_id FROM waiting WHERE content = 'first'"
                )
                assert entry["session_id"] == session_id
    finally:
        await hand.close()
    told += ["second", "behind"] if table == "sessions" else ["second", "elsewhere"]
    await router.has_routed(*told)
    await eventually(lambda: not router.batches.has_held_up)
    assert await router.kernel.dead() == []
