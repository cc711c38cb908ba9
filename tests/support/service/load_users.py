"""People who write to a bot through its adapter, steadily, and remember what they are told."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from time import monotonic
from typing import Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane.nats.tasks import end_task
from chatlane_client import AdapterClient, RetryLaterError, UnconfirmedPublishError
from chatlane_devkit.judge.event_log import EventLog
from chatlane_devkit.judge.history import Received, Sent
from chatlane_schemas import Chat, InboundEvent, OutboundMessage, Sender, decode, new_envelope_id
from tests.support.service.pace import paced
from tests.support.service.processes import ACCOUNT, PLATFORM, STREAM_AGENT, TURN_AGENT

_IN_FLIGHT: Final = 400
_LOOK_AGAIN: Final = timedelta(milliseconds=20)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody with a chat of their own with an agent."""

    name: str
    agent: str = TURN_AGENT

    @property
    def key(self) -> str:
        """The session key that this must lead to."""
        return f"agent:{self.agent}:{PLATFORM}:{ACCOUNT}:dm:{self.name}"

    def event(self, text: str, message_id: str) -> InboundEvent:
        """Return what the adapter publishes."""
        return InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            message_id=message_id,
            platform=PLATFORM,
            account=ACCOUNT,
            profile=None if self.agent == TURN_AGENT else self.agent,
            chat=Chat(id=self.name, kind="dm"),
            sender=Sender(id=self.name, name=self.name),
            text=text,
        )


def people(count: int, agents: Iterable[str] = (TURN_AGENT, STREAM_AGENT)) -> list[Person]:
    """Return people, their agents taking turns."""
    names = tuple(agents)
    return [Person(f"p{number:02}", names[number % len(names)]) for number in range(count)]


@dataclass(slots=True)
class LoadUsers:
    """People and what passed between them and the bot.

    Attributes:
        sent: What was acknowledged, in the order of the acknowledgements.
        received: What came back, in the order of arrival.
        unheard: Texts that no answer has mentioned yet, with the time they were written.
        forwarded: Ids of the messages that adapters in processes of their own delivered.
        seconds: How long each text waited for its answer, with the time it was written.
        put_off: How long adapters waited before they told a platform to come later.
        refused: How often the service said to come later, because it has no room.
        repeated: One message in so many is sent by the platform again, with another envelope;
            0 for none.
        most_unheard: So many messages may wait for an answer; then people write no more until
            fewer do, because a machine that is too slow for them would only pile them up.
        held_back: How long they wrote nothing for that reason.
    """

    client: Client
    members: list[Person]
    chance: Random = field(default_factory=lambda: Random(7))  # noqa: S311 # the same every time
    sent: list[Sent] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    forwarded: list[str] = field(default_factory=list)
    unheard: dict[str, float] = field(default_factory=dict)
    put_off: list[float] = field(default_factory=list)
    seconds: list[tuple[float, float]] = field(default_factory=list)
    numbers: Counter[str] = field(default_factory=Counter)
    event_log: EventLog | None = None
    refused: int = 0
    repeated: int = 20
    most_unheard: int = 2_000
    held_back: timedelta = timedelta(0)
    _adapter: AdapterClient = field(init=False)
    _keys: dict[tuple[str, str | None], str] = field(default_factory=dict)
    _last: dict[str, Sent] = field(default_factory=dict)
    _heard: Counter[str] = field(default_factory=Counter)
    _lines: dict[str, asyncio.Lock] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.restart_adapter()

    def restart_adapter(self) -> None:
        """Forget what an adapter remembers, as a new process of it would."""
        self._adapter = AdapterClient(self.client, platform=PLATFORM, account=ACCOUNT)

    def stop_adapter(self) -> None:
        """Let the adapter deliver nothing more."""
        self._adapter.stop()

    def forget(self, place: int) -> list[Sent]:
        """Let what was sent from a place on be lost, and nobody wait for it or send it again.

        Returns:
            The messages of which nothing else was sent: of others only a repeat is lost.
        """
        lost, self.sent[place:] = self.sent[place:], []
        known = {its.message_id for its in self.sent}
        gone = [its for its in lost if its.message_id not in known]
        for its in gone:
            self.unheard.pop(its.text, None)
        self._last = {name: its for name, its in self._last.items() if its.message_id in known}
        return gone

    def release(self, person: Person) -> None:
        """Let somebody write no more, and remember nothing of them."""
        self.members.remove(person)
        for sent in self.sent:
            if sent.key == person.key:
                self.unheard.pop(sent.text, None)
        self.sent = [its for its in self.sent if its.key != person.key]
        self.received = [its for its in self.received if its.key != person.key]
        self._last.pop(person.name, None)

    @asynccontextmanager
    async def listening(self, *, is_stopped: bool = False) -> AsyncIterator[None]:
        """Receive answers during the block.

        Args:
            is_stopped: The adapter is stopped at the end of the block, in place of killed: what it
                has received, it has acknowledged and reported.
        """
        adapter = self._adapter
        delivering = asyncio.create_task(adapter.deliver(self._receive))
        try:
            yield
            if is_stopped:
                adapter.stop()
                await delivering
        finally:
            await end_task(delivering)

    @asynccontextmanager
    async def listening_to(self, subject: str) -> AsyncIterator[None]:
        """Receive during the block what adapters in processes of their own forward."""

        async def take(raw: Msg) -> None:
            message = decode(OutboundMessage, raw.data)
            self.forwarded.append(message.id)
            await self._receive(message)
            await raw.respond(b"")

        subscription = await self.client.subscribe(subject, cb=take)
        try:
            yield
        finally:
            await subscription.unsubscribe()

    async def _receive(self, message: OutboundMessage) -> None:
        target = message.target
        name = target.chat.id if target.chat else ""
        received = Received(
            key=self._keys.get((name or "", target.profile), f"nobody: {name}"),
            session_id=str(message.session_id),
            out_seq=message.out_seq,
            id=message.id,
            reply_to=message.reply_to or "",
            text=message.text or "",
            kind=message.kind,
        )
        self.received.append(received)
        self._heard[received.key.split(":")[1]] += len(received.heard)
        self._note("received", received)
        for text in received.heard:
            if (written := self.unheard.pop(text, None)) is not None:
                self.seconds.append((written, monotonic() - written))

    async def say(
        self, person: Person, text: str = "", *, give_up_after: timedelta | None = None
    ) -> Sent:
        """Write one message; returns once it is stored.

        Messages of one person are stored in the order of the calls.

        Args:
            person: Who writes.
            text: What; by default their name and the number of the message.
            give_up_after: After so long the platform is told to come later. It does, with the
                same event, and that is noted in `put_off`.
        """
        self.numbers[person.name] += 1
        number = self.numbers[person.name]
        event = person.event(text or f"{person.name} {number}", f"{person.name}-{number}")
        self.unheard[event.text or ""] = monotonic()
        self._keys[person.name, event.profile] = person.key
        sent = Sent(
            person.key, number, event.message_id or "", event.id, event.text or "", person.agent
        )
        if self.event_log:
            self.event_log.note("saying", text=sent.text)
        try:
            await self._publish(person, event, give_up_after)
        except UnconfirmedPublishError:
            self.put_off.append(monotonic() - self.unheard[event.text or ""])
            await self._publish(person, event)
        self._was_sent(sent)
        self._last[person.name] = sent
        return sent

    async def _publish(
        self, person: Person, event: InboundEvent, give_up_after: timedelta | None = None
    ) -> None:
        """Publish, again when the service says to come later; the next of the chat stays behind."""
        async with self._lines.setdefault(person.name, asyncio.Lock()):
            while True:
                try:
                    await self._adapter.publish(event, give_up_after=give_up_after)
                except RetryLaterError as exc:
                    self.refused += 1
                    await asyncio.sleep(exc.after.total_seconds())
                else:
                    return

    async def repeat(self, person: Person, sent: Sent) -> None:
        """Let the platform send a message again."""
        event = person.event(sent.text, sent.message_id)
        await self._publish(person, event)
        self._was_sent(replace(sent, envelope_id=event.id))

    def _was_sent(self, sent: Sent) -> None:
        self.sent.append(sent)
        self._note("sent", sent)

    def _note(self, op: str, its: Sent | Received) -> None:
        if self.event_log:
            self.event_log.note(op, **asdict(its))

    @asynccontextmanager
    async def talking(self, per_second: float) -> AsyncIterator[None]:
        """Write steadily during the block; at its end everything written is stored."""
        stop = asyncio.Event()
        talking = asyncio.create_task(self._talk(per_second, stop))
        try:
            yield
        finally:
            stop.set()
            await talking
            await asyncio.gather(*self._tasks)

    async def _talk(self, per_second: float, stop: asyncio.Event) -> None:
        slots = asyncio.Semaphore(_IN_FLIGHT)
        async for _ in paced(per_second, stop):
            await slots.acquire()
            await self._until_few_are_unheard(stop)
            person = self.chance.choice(self.members)
            task = self._spawn(self._say_or_repeat(person))
            task.add_done_callback(lambda _: slots.release())

    @property
    def is_held_back(self) -> bool:
        """Whether so much is unanswered that people write no more."""
        return len(self.unheard) >= self.most_unheard

    @property
    def longest_wait(self) -> timedelta:
        """For how long what was written first has been without an answer."""
        first = next(iter(self.unheard.values()), monotonic())
        return timedelta(seconds=monotonic() - first)

    async def _until_few_are_unheard(self, stop: asyncio.Event) -> None:
        begin = monotonic()
        while self.is_held_back and not stop.is_set():  # noqa: ASYNC110 # many places end it
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
        self.held_back += timedelta(seconds=monotonic() - begin)

    async def _say_or_repeat(self, person: Person) -> None:
        last = self._last.get(person.name)
        if last and self.repeated and self.chance.randrange(self.repeated) == 0:
            await self.repeat(person, last)
        else:
            await self.say(person)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def told(self, person: Person) -> list[str]:
        """Return what somebody was told, in order."""
        return [it.text for it in self.received if it.key == person.key]

    def slowest_since(self, moment: float) -> timedelta:
        """Return the longest wait for an answer of what was written from a moment on."""
        waits = [seconds for written, seconds in self.seconds if written >= moment]
        return timedelta(seconds=max(waits, default=0.0))

    def heard_by_agent(self) -> dict[str, int]:
        """Return how many messages were answered, by agent."""
        # Counted as they come: who waits for answers asks a hundred times a second.
        return dict(self._heard)
