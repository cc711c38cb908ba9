"""How batches follow each other: the next one is decoded while one is being committed."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import SystemRandom
from typing import TYPE_CHECKING, cast
from uuid import uuid4

import pytest
from typing_extensions import override

from chatlane.decisions.batch_decision import DecodedMessage
from chatlane.domain.log import LogMessage, PartitionId
from chatlane.domain.turns.turn_results import ArrivedResult
from chatlane.errors import ResultAheadError
from chatlane.ingest.batch_committer import Batches
from chatlane.ingest.intake import Batch, Intake, Slice
from chatlane.observability.metrics import Metrics
from tests.support.eventually import eventually
from tests.support.worlds.kernel import catalog

if TYPE_CHECKING:
    from chatlane.decisions.unit_of_work import UnitOfWorkFactory

NOON = datetime(2026, 5, 11, 12, tzinfo=UTC)
PARTITION = PartitionId("inbound", 0)


def batch_of(*sequences: int) -> Batch:
    messages = tuple(
        LogMessage(*PARTITION, sequence, NOON, "no.such.subject", None, b"")
        for sequence in sequences
    )
    return Batch((Slice(partition=PARTITION, epoch=1, cursor=sequences[0] - 1, messages=messages),))


class FakeIntake:
    """Hands out full batches as long as there are some, then small ones."""

    def __init__(self, full: list[Batch]) -> None:
        self.full = full
        self.small: asyncio.Queue[Batch] = asyncio.Queue()
        self.done: list[Batch] = []
        self.put_back: list[Batch] = []

    async def next_batch(self, *_limits: object) -> Batch:
        return self.full.pop(0) if self.full else await self.small.get()

    def full_batch(self, *_limits: object) -> Batch | None:
        return self.full.pop(0) if self.full else None

    def current(self, batch: Batch) -> Batch:
        return batch

    def committed(self, batch: Batch) -> None:
        self.done.append(batch)

    def failed(self, batch: Batch, _delay: timedelta) -> None:
        self.put_back.append(batch)


class GatedBatches(Batches):
    """Commits when the test says so."""

    def __init__(self, intake: FakeIntake) -> None:
        self.may_commit = asyncio.Semaphore(0)
        self.attempts: list[Batch] = []
        super().__init__(
            cast("Intake", intake),
            cast("UnitOfWorkFactory", None),
            catalog(),
            Metrics(),
            router_id=uuid4(),
            lease=timedelta(seconds=3),
            slots=1,
            max_messages=2,
            linger=timedelta(0),
            jitter=SystemRandom(),
        )

    @override
    async def _attempt(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        assert known.keys() == set(batch.messages)
        self.attempts.append(batch)
        await self.may_commit.acquire()


async def test_the_next_full_batch_is_taken_while_one_is_committed() -> None:
    first, second, third = batch_of(1, 2), batch_of(3, 4), batch_of(5, 6)
    intake = FakeIntake([first, second, third])
    batches = GatedBatches(intake)
    running = asyncio.create_task(batches.run())
    await eventually(lambda: batches.attempts == [first] and intake.full == [third])
    batches.may_commit.release()
    await eventually(lambda: batches.attempts == [first, second] and intake.full == [])
    assert intake.done == [first]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_small_batch_waits_for_the_one_before() -> None:
    """It grows meanwhile, and what comes late is not held up by an early start."""
    first, small = batch_of(1, 2), batch_of(3)
    intake = FakeIntake([first])
    intake.small.put_nowait(small)
    batches = GatedBatches(intake)
    running = asyncio.create_task(batches.run())
    await eventually(lambda: batches.attempts == [first])
    assert intake.small.qsize() == 1
    batches.may_commit.release()
    await eventually(lambda: batches.attempts == [first, small])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


RESULTS = PartitionId("results", 3)
RESULT = {
    "v": 1,
    "id": "r1",
    "at": "2026-05-11T12:00:00Z",
    "session_id": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a01",
    "reply_to": "0195e6a0-4c00-8000-9b5e-2f0c6f1d0a02",
    "text": "hello",
}


class WaitingBatches(GatedBatches):
    """Knows nothing of what the last of its results answers, as long as that may still come."""

    def __init__(self, intake: FakeIntake, *, is_read: bool) -> None:
        super().__init__(intake)
        self.committed: list[tuple[int, ...]] = []
        self.inbound_is_read = self._is_read
        self.is_read = is_read
        self.asked: list[datetime] = []

    async def _is_read(self, until: datetime) -> bool:
        self.asked.append(until)
        return self.is_read

    @override
    async def _attempt(self, batch: Batch, known: Mapping[LogMessage, DecodedMessage]) -> None:
        last = known[batch.messages[-1]].content
        assert isinstance(last, ArrivedResult)
        if batch.messages[-1].sequence == 4 and last.may_wait:
            raise ResultAheadError(last.result.id)
        self.committed.append(tuple(message.sequence for message in batch.messages))


def results(*sequences: int) -> Batch:
    subject = f"chat.v1.rlog.3.desk.{RESULT['session_id']}"
    messages = tuple(
        LogMessage(*RESULTS, sequence, NOON, subject, None, json.dumps(RESULT).encode())
        for sequence in sequences
    )
    return Batch((Slice(partition=RESULTS, epoch=1, cursor=sequences[0] - 1, messages=messages),))


@pytest.mark.parametrize("is_read", [True, False])
async def test_an_old_result_that_answers_nothing_known_waits_alone(is_read: bool) -> None:  # noqa: FBT001
    intake = FakeIntake([results(1, 2, 3, 4)])
    batches = WaitingBatches(intake, is_read=is_read)
    running = asyncio.create_task(batches.run())
    await eventually(lambda: len(intake.done) + len(intake.put_back) == 3)
    assert batches.asked == [NOON]
    assert batches.committed == [(1, 2), (3,), (4,)][: 2 + is_read]
    assert intake.put_back == ([] if is_read else [results(4)])
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_what_is_stored_while_a_router_runs_never_waits() -> None:
    (old,) = results(4).slices
    now = datetime.now(UTC) + timedelta(minutes=1)
    fresh = Batch((replace(old, messages=(old.messages[0]._replace(stored_at=now),)),))
    intake = FakeIntake([fresh])
    batches = WaitingBatches(intake, is_read=False)
    running = asyncio.create_task(batches.run())
    await eventually(lambda: intake.done == [fresh])
    assert batches.asked == []
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
