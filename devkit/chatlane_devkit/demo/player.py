"""Play the feed as adapters do: publish it in order per chat and receive the answers."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from time import monotonic
from typing import Final

import nats.errors
from nats.aio.client import Client

from chatlane.nats.tasks import end_task
from chatlane_client.adapter import AdapterClient
from chatlane_client.transport.connection import until_connected
from chatlane_devkit.demo.answer_gaps import AnswerGaps
from chatlane_devkit.demo.observer import Observer, chat_of
from chatlane_devkit.judge.history import Received
from chatlane_devkit.scenario.feed import Address, Cue, Pause, Publication, Settle, Step
from chatlane_schemas import InboundEvent, OutboundMessage, Source, decode
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.topology.subjects import inbound_for, partition_of
from chatlane_servers.conditions import until

_IN_FLIGHT: Final = 200
# Seconds.
_CATCH_UP: Final = 0.1
_ANSWER_WITHIN: Final = timedelta(seconds=2)
_TRY_AGAIN: Final = timedelta(milliseconds=100)


@dataclass(slots=True)
class Score:
    """The progress of a run.

    Attributes:
        published: Lines of the feed that the log confirmed.
        due: Published messages that must be accepted.
        answered: Messages that agents reported.
        commanded: Ids of published commands.
        told: Ids of messages that a notice replied to.
        refused_copies: Envelopes that NATS itself recognised as copies.
        answers: All received answers, in the order of arrival.
        last_answer_at: Monotonic time of the newest answer.
        silence: The gaps in which users waited.
    """

    published: int = 0
    due: int = 0
    answered: int = 0
    commanded: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    refused_copies: int = 0
    answers: list[Received] = field(default_factory=list)
    last_answer_at: float = 0.0
    silence: AnswerGaps = field(default_factory=AnswerGaps)


class Player:
    """Publishes the lines of the feed and records the progress.

    Attributes:
        score: Progress of the run.
    """

    def __init__(
        self,
        clients: Mapping[tuple[str, str], Client],
        observer: Observer,
        score: Score,
        *,
        partitions: int,
        pace: Callable[[], float],
        on_cue: Callable[[str], Awaitable[None]],
        patience: timedelta,
        deliver: Callable[[Received], list[Received]] = lambda answer: [answer],
        also: Callable[[Publication], None] = lambda _: None,
    ) -> None:
        """Create a player.

        Args:
            clients: By platform and account, the open connection of its adapter.
            observer: Returns the read position of the log.
            score: Updated during the run.
            partitions: Number of partitions of the log.
            pace: Returns the lines of the feed per second; called before each line.
            on_cue: Triggers a fault; the run continues meanwhile.
            patience: Longest wait for the answers to published messages.
            deliver: Returns what a chat receives in place of an answer.
            also: Called with each publication when its turn comes.
        """
        self.score = score
        self._clients = clients
        self._observer = observer
        self._partitions = partitions
        self._pace = pace
        self._on_cue = on_cue
        self._patience = patience
        self._deliver = deliver
        self._also = also
        self._adapters: dict[tuple[str, str], AdapterClient] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._slots = asyncio.Semaphore(_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stored: dict[int, int] = {}
        self._next_at = 0.0

    @asynccontextmanager
    async def receiving(self) -> AsyncIterator[None]:
        """Receive the answers to all accounts during the block."""
        for (platform, account), client in self._clients.items():
            adapter = AdapterClient(client, platform=platform, account=account)
            self._adapters[platform, account] = adapter
        deliveries = [
            asyncio.create_task(adapter.deliver(self._receive))
            for adapter in self._adapters.values()
        ]
        try:
            yield
        finally:
            for adapter in self._adapters.values():
                adapter.stop()
            await asyncio.gather(*deliveries)

    async def play(self, steps: Iterable[Step]) -> None:
        """Play the feed to its end, answers included.

        Raises:
            TimeoutError: A published message was not answered in time.
        """
        try:
            for step in steps:
                match step:
                    case Publication():
                        await self._keep_pace()
                        await self._begin(step)
                    case Cue(name):
                        _ = self._spawn(self._on_cue(name))
                    case Settle():
                        await self.settle()
                    case Pause(length):
                        await asyncio.sleep(length.total_seconds())
            await self.settle()
        finally:
            await self._cancel()

    async def settle(self) -> None:
        """Wait until all published messages are decided and answered, and all faults are over.

        Raises:
            TimeoutError: This did not happen in time.
        """
        async with asyncio.timeout(self._patience.total_seconds()):
            await self._finish()
        await until(self._is_settled, self._patience)

    async def _finish(self) -> None:
        """Wait for the running publishes and cues; raise their errors."""
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def _is_settled(self) -> bool:
        if self.score.answered < self.score.due or not self.score.commanded <= self.score.told:
            return False
        cursors = await self._observer.cursors()
        return all(cursors.get(number, 0) >= last for number, last in self._stored.items())

    async def _keep_pace(self) -> None:
        """Wait until the next line is due; a delay is only partly made up for."""
        now = monotonic()
        self._next_at = max(self._next_at + 1 / self._pace(), now - _CATCH_UP)
        await asyncio.sleep(self._next_at - now)

    async def _begin(self, publication: Publication) -> None:
        await self._slots.acquire()
        self._also(publication)
        if publication.expect == "accepted":
            self.score.silence.begin()
        # Tasks start in the order of their creation, so they request each chat's lock in order.
        task = self._spawn(self._publish(publication))
        task.add_done_callback(lambda _: self._slots.release())

    def _spawn(self, work: Awaitable[None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        # A failed task stays in the set, so that the next settle raises its error.
        if task.cancelled() or task.exception() is None:
            self._tasks.discard(task)

    async def _cancel(self) -> None:
        await asyncio.gather(*map(end_task, self._tasks))

    async def _publish(self, publication: Publication) -> None:
        if publication.body is None:
            event = decode(InboundEvent, json.dumps(publication.event).encode())
            subject = inbound_for(event)
            stored = await self._adapters[event.platform, event.account].publish(event)
            sequence, is_repeat = stored.sequence, stored.is_repeat
        else:
            subject = publication.subject or ""
            sequence = await self._publish_raw(subject, publication.body, publication.nats_id)
            is_repeat = False
        self._note(publication, subject, sequence, is_repeat=is_repeat)

    async def _publish_raw(self, subject: str, body: bytes, nats_id: str) -> int:
        """Publish a raw body, which no adapter would send, until it is confirmed.

        It uses the connection of the account in its subject, or any connection if there is no such
        account.
        """
        platform, account = subject.split(".")[-3:-1]
        anybody = next(iter(self._clients.values()))
        client = self._clients.get((platform, account), anybody)
        async with self._locks.setdefault(subject, asyncio.Lock()):
            for _ in itertools.count():
                await until_connected(client)
                try:
                    confirmation = await client.jetstream().publish(
                        subject,
                        body,
                        timeout=_ANSWER_WITHIN.total_seconds(),
                        headers={"Nats-Msg-Id": nats_id},
                    )
                except (nats.errors.Error, TimeoutError):
                    await asyncio.sleep(_TRY_AGAIN.total_seconds())
                else:
                    return confirmation.seq
        raise AssertionError("tries never end")

    def _note(
        self, publication: Publication, subject: str, sequence: int, *, is_repeat: bool
    ) -> None:
        number = partition_of(self._partitions, *chat_of(subject).split("."))
        self._stored[number] = max(self._stored.get(number, 0), sequence)
        self.score.published += 1
        self.score.due += publication.expect == "accepted"
        if publication.expect == "obeyed":
            self.score.commanded.add(publication.message_id)
        self.score.refused_copies += is_repeat and publication.expect == "duplicate"

    async def _receive(self, message: OutboundMessage) -> None:
        answer = answer_of(message)
        self.score.answers.extend(self._deliver(answer))
        heard_count = sum(1 for _ in answer.heard_messages())
        self.score.answered += heard_count
        self.score.silence.end(heard_count)
        if message.kind is OutboundKind.NOTICE and message.reply_to is not None:
            self.score.told.add(message.reply_to)
        self.score.last_answer_at = monotonic()


def answer_of(message: OutboundMessage) -> Received:
    """Return an outbound message as the verdict judges it."""
    cause = f"turn {message.turn_id}" if message.turn_id else f"message {message.reply_to}"
    return Received(
        key="",
        id=message.id,
        reply_to=message.reply_to or "",
        session_id=str(message.session_id),
        out_seq=message.out_seq,
        agent=message.agent,
        address=_address(message.target),
        kind=str(message.kind),
        cause=cause,
        part=message.part,
        text=message.text or "",
    )


def _address(source: Source) -> Address:
    return Address(
        source.platform,
        source.account,
        source.scope or "",
        (source.chat.id if source.chat else None) or "",
        source.thread_id or "",
        (source.sender.id if source.sender else None) or "",
    )
