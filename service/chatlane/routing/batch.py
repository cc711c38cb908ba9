"""Commits batches of the two logs: one transaction each, retried until it is over.

A batch that fails is retried in place, so the order of its partitions cannot change. What fails
for good is found by splitting: first by partition, so that the others go on, then in halves down
to the one message, which becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from chatlane.errors import SupersededError, TransientError
from chatlane.logs import get_logger
from chatlane.routing.deciding import Deciding, Decoded, decoded
from chatlane.routing.refused import Refused
from chatlane.store import partitions
from chatlane.store.partitions import Advance
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.log import PartitionId
    from chatlane.metrics import Metrics
    from chatlane.routing.intake import Batch, Intake
    from chatlane.routing.writing import Writer

_log = get_logger("batch")

_FIRST_DELAY: Final = 0.02
_MAX_DELAY: Final = 1.0
# A message that fails as often as this alone in its transaction is set aside.
_MAX_TRIES_ALONE: Final = 3


class LostPartitionsError(TransientError):
    """The compare-and-set did not move these partitions: somebody else owns them now."""

    def __init__(self, lost: frozenset[PartitionId]) -> None:
        self.lost = lost
        super().__init__(f"{len(lost)} partitions lost")


@dataclass(slots=True)
class _Position:
    """What the next compare-and-set on a partition expects."""

    epoch: int
    cursor: int


class Batches:
    """Takes batches from the intake and commits them, one after the other.

    Args:
        lease: What each committed batch renews its partitions to.
        slots: How many slots a `stream` agent's messages are spread over.
    """

    def __init__(
        self,
        intake: Intake,
        writer: Writer,
        catalog: Catalog,
        metrics: Metrics,
        *,
        router_id: UUID,
        lease: timedelta,
        slots: int,
        max_messages: int,
        linger: timedelta,
    ) -> None:
        self._intake = intake
        self._writer = writer
        self._catalog = catalog
        self._metrics = metrics
        self._router_id = router_id
        self._lease = lease
        self._slots = slots
        self._max_messages = max_messages
        self._linger = linger

    async def run(self) -> None:
        """Commit batches until cancelled; a batch that has begun is finished first."""
        while True:
            batch = await self._intake.next_batch(self._max_messages, self._linger)
            await self._commit(batch)

    async def _commit(self, batch: Batch) -> None:
        began = monotonic()
        work = _Work(self, batch)
        await work.run()
        self._metrics.batch_committed(len(batch.messages), timedelta(seconds=monotonic() - began))

    async def attempt(
        self, messages: Sequence[Decoded], positions: Mapping[PartitionId, _Position]
    ) -> None:
        """Commit these messages and the cursors after them, or nothing.

        Raises:
            LostPartitionsError: Some of the partitions are not ours at these positions.
            TransientError: Trying again may help; whether it was committed may be unknown,
                and then the positions decide at the next attempt.
        """
        advances = [_advance(partition, positions, messages) for partition in _touched(messages)]
        async with self._writer.writing() as writing:
            advanced = await partitions.advance(
                writing.connection, self._router_id, advances, self._lease
            )
            lost = frozenset(one.partition for one in advances) - advanced
            if lost:
                raise LostPartitionsError(lost)
            await Deciding(self._catalog, self._slots).run(writing, messages)
        for one in advances:
            positions[one.partition].cursor = one.cursor_to

    def note_lost(self, lost: frozenset[PartitionId]) -> None:
        """Forget partitions that another router reads now."""
        self._intake.lost(lost)
        self._metrics.batch_repeated("superseded")


class _Work:
    """One batch on its way: what is left of it, and how it is retried."""

    def __init__(self, batches: Batches, batch: Batch) -> None:
        self._batches = batches
        self._catalog = batches._catalog  # noqa: SLF001 - one class in two halves
        self._intake = batches._intake  # noqa: SLF001
        self._metrics = batches._metrics  # noqa: SLF001
        self._batch = batch
        self._lost: set[PartitionId] = set()
        self._positions = {
            partition: _Position(position.epoch, position.cursor)
            for partition, position in batch.positions.items()
        }

    async def run(self) -> None:
        messages = [
            decoded(message, self._catalog, is_killer=self._batch.is_process_killer(message))
            for message in self._batch.messages
        ]
        # A moved chat changes the addresses of what follows it, so it commits alone.
        for segment in _segments(messages):
            await self._settle(segment)
        self._intake.committed(self._batch, except_for=frozenset(self._lost))

    async def _settle(self, messages: Sequence[Decoded]) -> None:
        """Retry until committed; split when an error is not one that waiting cures."""
        try:
            await self._persist(messages)
        except Exception:
            # Outside the error tree: a bug, or data that no transaction takes.
            _log.exception("batch_failed", messages=len(messages))
            self._metrics.batch_repeated("failed")
            await self._isolate(messages)

    async def _persist(self, messages: Sequence[Decoded]) -> None:
        delay = _FIRST_DELAY
        while remaining := [one for one in messages if one.partition not in self._lost]:
            try:
                await self._batches.attempt(remaining, self._positions)
            except LostPartitionsError as error:
                self._lost |= error.lost
                self._batches.note_lost(error.lost)
            except SupersededError:
                self._metrics.batch_repeated("superseded")
                await asyncio.sleep(random.uniform(0, _FIRST_DELAY))  # noqa: S311 - jitter
            except TransientError as error:
                self._metrics.batch_repeated("failed")
                _log.warning("batch_waits", error=str(error), messages=len(remaining))
                await asyncio.sleep(delay * random.uniform(0.5, 1))  # noqa: S311 - jitter
                delay = min(2 * delay, _MAX_DELAY)
            else:
                return

    async def _isolate(self, messages: Sequence[Decoded]) -> None:
        parts = _split(messages)
        if len(parts) > 1:
            for part in parts:
                await self._settle(part)
            return
        await self._settle_alone(messages[0])

    async def _settle_alone(self, message: Decoded) -> None:
        for _ in range(1, _MAX_TRIES_ALONE):
            try:
                await self._persist([message])
            except Exception as error:  # noqa: BLE001 - counted, then set aside with its name
                reason = type(error).__name__
            else:
                return
        refused = Refused(message.message, DeadReason.INTERNAL_ERROR, reason)
        await self._persist([Decoded(message.message, refused)])


def _segments(messages: Sequence[Decoded]) -> Iterable[Sequence[Decoded]]:
    start = 0
    for index, one in enumerate(messages):
        if one.is_move:
            if start < index:
                yield messages[start:index]
            yield messages[index : index + 1]
            start = index + 1
    if start < len(messages):
        yield messages[start:]


def _split(messages: Sequence[Decoded]) -> list[Sequence[Decoded]]:
    """Return smaller batches that keep the order within each partition."""
    touched = _touched(messages)
    if len(touched) > 1:
        return [[one for one in messages if one.partition == each] for each in touched]
    middle = len(messages) // 2
    return [part for part in (messages[:middle], messages[middle:]) if part]


def _touched(messages: Iterable[Decoded]) -> list[PartitionId]:
    return sorted({one.partition for one in messages})


def _advance(
    partition: PartitionId, positions: Mapping[PartitionId, _Position], messages: Sequence[Decoded]
) -> Advance:
    position = positions[partition]
    last = next(one.message for one in reversed(messages) if one.partition == partition)
    return Advance(
        partition=partition,
        epoch=position.epoch,
        cursor_from=position.cursor,
        cursor_to=last.sequence,
        stored_at=last.stored_at,
    )
