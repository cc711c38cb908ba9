"""The relay's pipeline without a database, on a publisher without a server."""

import asyncio
import contextlib
import time
from asyncio import Future
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from chatlane.domain.log import Trace
from chatlane.errors import MalformedMessageError
from chatlane.failpoints import RouterPoint
from chatlane.outbox import publish_window as pipeline_module
from chatlane.outbox.publish_window import Pipeline
from chatlane.outbox.publisher import Ack
from chatlane.store.outbox import OutboxRow
from chatlane_schemas.dead import DeadReason
from tests.support.eventually import eventually
from tests.support.worlds.fake_streams import FakePublisher, FakeStream, Fate

NOW = datetime(2025, 6, 1, tzinfo=UTC)
SESSION = uuid4()
_ids = count(1)


def row(
    text: str, session_id: UUID | None = SESSION, stream: str = "OUTBOUND", size: int = 1
) -> OutboxRow:
    return OutboxRow(next(_ids), session_id, stream, "subject.x", text, b"x" * size, NOW)


def pipeline_on(
    publisher: FakePublisher, *, window: int = 64, stale_after: timedelta = timedelta(minutes=1)
) -> Pipeline:
    return Pipeline(publisher, stale_after=stale_after, jitter=Random(1), window=window)  # noqa: S311


@asynccontextmanager
async def running(pipeline: Pipeline) -> AsyncIterator[Pipeline]:
    task = asyncio.create_task(pipeline.run())
    try:
        yield pipeline
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def publish_all(pipeline: Pipeline, rows: list[OutboxRow]) -> None:
    pipeline.enqueue(rows, time.monotonic())
    async with running(pipeline), asyncio.timeout(10):
        await pipeline.is_empty.wait()


async def test_rows_are_published_and_their_ids_handed_over_once() -> None:
    pipeline = pipeline_on(publisher := FakePublisher(FakeStream()))
    rows = [row("a"), row("b", uuid4()), row("c", None)]
    await publish_all(pipeline, rows)
    assert sorted(publisher.stream.ids) == ["a", "b", "c"]
    assert sorted(pipeline.take_acknowledged(10)) == [one.id for one in rows]
    assert pipeline.take_acknowledged(10) == []
    assert pipeline.row_count == 0
    assert pipeline.streams_holding(0) == frozenset()


async def test_restored_ids_are_handed_over_again() -> None:
    pipeline = pipeline_on(FakePublisher(FakeStream()))
    await publish_all(pipeline, [row(str(n), None) for n in range(5)])
    taken = pipeline.take_acknowledged(3)
    pipeline.restore_acknowledged(taken)
    assert pipeline.some_acknowledged.is_set()
    assert len(pipeline.take_acknowledged(10)) == 5
    assert not pipeline.some_acknowledged.is_set()


async def test_a_session_has_one_publish_in_flight() -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.LOST)
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a"), row("b"), row("c", stream="ROUTED")], time.monotonic())
        await eventually(lambda: len(publisher.attempts) >= 6)
    assert set(publisher.attempts) == {"a", "c"}, "b waits until a is known to be stored"


@pytest.mark.parametrize("stream", ["TURNS", "EVENTS", "DEAD"])
async def test_streams_without_order_wait_for_nothing(stream: str) -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.LOST)
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a", stream=stream), row("b", stream=stream)], time.monotonic())
        await eventually(lambda: {"a", "b"} <= set(publisher.attempts))


async def test_the_number_in_flight_is_bounded() -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.LOST)
    async with running(pipeline_on(publisher, window=8)) as pipeline:
        pipeline.enqueue([row(str(n), uuid4()) for n in range(100)], time.monotonic())
        await eventually(lambda: len(publisher.attempts) > 20)
    assert len(set(publisher.attempts)) == 8


async def test_a_stream_that_refuses_delays_no_other() -> None:
    publisher = FakePublisher(
        FakeStream(), fate=lambda text: Fate.REFUSED if text.startswith("full") else Fate.STORED
    )
    async with running(pipeline_on(publisher, window=4)) as pipeline:
        full = [row(f"full {n}", uuid4()) for n in range(20)]
        free = [row(f"free {n}", uuid4(), "ROUTED") for n in range(20)]
        pipeline.enqueue([*full, *free], time.monotonic())
        await eventually(lambda: len(publisher.stream.ids) == 20)
        assert all(text.startswith("free") for text in publisher.stream.ids)
        assert pipeline.full_streams == {"OUTBOUND"}
        publisher.fate = lambda _: Fate.STORED
        await eventually(lambda: pipeline.row_count == 0)
        assert pipeline.full_streams == frozenset()


async def test_a_word_about_a_dead_letter_waits_for_no_room() -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.REFUSED)
    pipeline = pipeline_on(publisher)
    words = [row(f"word {n}", None, "DEAD") for n in range(100)]
    await publish_all(pipeline, words)
    assert sorted(publisher.attempts) == sorted(one.message_id for one in words)
    assert pipeline.take_acknowledged(200) == [one.id for one in words], "they are to be deleted"
    assert pipeline.full_streams == frozenset()
    assert (pipeline.take_counts(), pipeline.take_dropped()) == ({}, {"DEAD": 100})
    assert pipeline.take_dropped() == {}


async def test_a_word_about_a_dead_letter_that_got_lost_is_repeated() -> None:
    publisher = FakePublisher(FakeStream())
    publisher.fate = lambda _: Fate.STORED if len(publisher.attempts) > 2 else Fate.LOST
    pipeline = pipeline_on(publisher)
    await publish_all(pipeline, [row("word", None, "DEAD")])
    assert list(publisher.stream.ids) == ["word"]


async def test_repeats_come_later_and_later() -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.REFUSED)
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a")], time.monotonic())
        started = time.monotonic()
        await eventually(lambda: len(publisher.attempts) == 4)
        assert time.monotonic() - started > (0.05 + 0.1 + 0.2) / 2


async def test_acknowledged_and_repeated_rows_are_counted_by_stream() -> None:
    publisher = FakePublisher(FakeStream())
    publisher.fate = lambda _: Fate.STORED if len(publisher.attempts) > 2 else Fate.REFUSED
    pipeline = pipeline_on(publisher)
    await publish_all(pipeline, [row("a")])
    await publish_all(pipeline, [row("b", stream="TURNS")])
    assert pipeline.take_counts() == {"OUTBOUND": (1, 2), "TURNS": (1, 0)}
    assert pipeline.take_counts() == {}


async def test_hurry_repeats_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for delay in ("_FIRST_DELAY_SECONDS", "_LONGEST_DELAY_SECONDS"):
        monkeypatch.setattr(pipeline_module, delay, 3600.0)
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.REFUSED)
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a")], time.monotonic())
        await eventually(lambda: pipeline._later)
        publisher.fate = lambda _: Fate.STORED
        pipeline.retry_now()
        async with asyncio.timeout(10):
            await pipeline.is_empty.wait()


async def test_rows_survive_a_lost_connection() -> None:
    publisher = FakePublisher(FakeStream())
    publisher.disconnect()
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a"), row("b")], time.monotonic())
        await eventually(lambda: pipeline.take_counts() != {})
        publisher.is_connected = True
        pipeline.retry_now()
        await eventually(lambda: list(publisher.stream.ids) == ["a", "b"])


async def test_an_oversized_row_is_put_aside_and_the_session_waits_for_that() -> None:
    publisher = FakePublisher(FakeStream(), max_payload=1000)
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("large", size=2000), row("b")], time.monotonic())
        await pipeline.some_refused.wait()
        item, reason = pipeline.refused.popleft()
        assert (item.row.message_id, reason) == ("large", DeadReason.OVERSIZED_OUTBOUND)
        assert publisher.attempts == []
        pipeline.release(item)
        await eventually(lambda: list(publisher.stream.ids) == ["b"])


async def test_a_row_no_server_takes_is_put_aside() -> None:
    publisher = FakePublisher(FakeStream())
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("")], time.monotonic())
        await pipeline.some_refused.wait()
        assert pipeline.refused[0][1] is DeadReason.INTERNAL_ERROR


async def test_an_unknown_error_is_tried_again_before_the_row_is_put_aside() -> None:
    attempts = 0

    class Broken(FakePublisher):
        @override
        async def publish(
            self, subject: str, payload: bytes, message_id: str, trace: Trace | None = None
        ) -> Future[Ack]:
            nonlocal attempts
            del subject, payload, message_id
            attempts += 1
            raise ZeroDivisionError

    async with running(pipeline_on(Broken(FakeStream()))) as pipeline:
        pipeline.enqueue([row("a")], time.monotonic())
        while not pipeline.refused:
            pipeline.retry_now()
            await asyncio.sleep(0)
    assert attempts == 5
    assert pipeline.refused[0][1] is DeadReason.INTERNAL_ERROR


async def test_a_row_held_for_long_is_not_published_before_somebody_looked() -> None:
    publisher = FakePublisher(FakeStream())
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a"), row("b")], time.monotonic() - 61)
        await pipeline.some_stale.wait()
        items = pipeline.take_stale(10)
        assert [item.row.message_id for item in items] == ["a"]
        assert [item.row.message_id for item in pipeline.behind(items[0], 10)] == ["b"]
        assert publisher.attempts == []
        pipeline.resume(items, time.monotonic())
        await eventually(lambda: list(publisher.stream.ids) == ["a"])
        await eventually(lambda: pipeline.stale != [])
        (behind,) = pipeline.take_stale(10)
        pipeline.release(behind)
        assert pipeline.row_count == 0
    assert list(publisher.stream.ids) == ["a"]


async def test_a_process_that_froze_before_a_publish_looks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frozen_for = 0.0

    def freeze(point: str) -> None:
        nonlocal frozen_for
        if point == RouterPoint.PUBLISHING:
            frozen_for = 3600.0

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + frozen_for)
    monkeypatch.setattr(pipeline_module, "hit", freeze)
    monkeypatch.setattr(pipeline_module, "time", clock)
    publisher = FakePublisher(FakeStream())
    async with running(pipeline_on(publisher)) as pipeline:
        pipeline.enqueue([row("a")], clock.monotonic())
        await eventually(lambda: pipeline.stale or publisher.attempts)
        assert publisher.attempts == []
        pipeline.resume(pipeline.take_stale(10), clock.monotonic())
        await eventually(lambda: list(publisher.stream.ids) == ["a"])


async def test_a_batch_is_timed_to_its_last_acknowledgement() -> None:
    pipeline = pipeline_on(FakePublisher(FakeStream()))
    await publish_all(pipeline, [row("a"), row("b")])
    await publish_all(pipeline, [row("c")])
    assert len(pipeline.take_times()) == 2
    assert pipeline.take_times() == []


async def test_malformed_rows_fail_through_the_future_as_well() -> None:
    class Late(FakePublisher):
        @override
        async def publish(
            self, subject: str, payload: bytes, message_id: str, trace: Trace | None = None
        ) -> Future[Ack]:
            future = await super().publish(subject, payload, message_id)
            future.cancel()
            failed: Future[Ack] = asyncio.get_running_loop().create_future()
            failed.set_exception(MalformedMessageError("late"))
            return failed

    async with running(pipeline_on(Late(FakeStream()))) as pipeline:
        pipeline.enqueue([row("a")], time.monotonic())
        await pipeline.some_refused.wait()


@given(
    plan=st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["ROUTED", "OUTBOUND", "TURNS"]))),
    seed=st.integers(0, 2**32),
    window=st.integers(1, 8),
)
def test_whatever_fails_every_session_keeps_its_order(
    plan: list[tuple[int, str]], seed: int, window: int
) -> None:
    sessions = [UUID(int=number) for number in range(4)]
    rows = [row(f"{n}", sessions[who], stream) for n, (who, stream) in enumerate(plan)]
    stream = FakeStream()
    asyncio.run(_publish_through_faults(stream, rows, Random(seed), window))  # noqa: S311
    stored = list(stream.ids)
    assert sorted(stored, key=int) == [one.message_id for one in rows]
    for session_id, name in {(one.session_id, one.stream) for one in rows} - {
        (session_id, "TURNS") for session_id in sessions
    }:
        wanted = [
            one.message_id for one in rows if (one.session_id, one.stream) == (session_id, name)
        ]
        assert [text for text in stored if text in wanted] == wanted


async def _publish_through_faults(
    stream: FakeStream, rows: list[OutboxRow], chance: Random, window: int
) -> None:
    attempts: Counter[str] = Counter()

    def fate(text: str) -> Fate:
        attempts[text] += 1
        return Fate.STORED if attempts[text] > 3 else chance.choice(list(Fate))

    publisher = FakePublisher(stream, ack_timeout=timedelta(0), fate=fate)
    async with running(pipeline_on(publisher, window=window)) as pipeline:
        for start in range(0, len(rows), 3):
            pipeline.enqueue(rows[start : start + 3], time.monotonic())
            await asyncio.sleep(0)
        while not pipeline.is_empty.is_set():
            pipeline.retry_now()
            await asyncio.sleep(0)


async def test_a_row_that_no_stream_stores_any_more_is_dropped() -> None:
    publisher = FakePublisher(FakeStream(), fate=lambda _: Fate.LOST)
    pipeline = Pipeline(
        publisher,
        stale_after=timedelta(minutes=1),
        jitter=Random(1),  # noqa: S311
        is_unstored=lambda subject: subject == "subject.x",
    )
    rows = [row("ended", None, "EVENTS") for _ in range(3)]
    await publish_all(pipeline, rows)
    assert pipeline.take_acknowledged(10) == [its.id for its in rows]
    assert publisher.attempts == ["ended"] * 3
