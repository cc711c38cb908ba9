"""People who let an agent ask them, answer at length, send reminders and show buttons.

Everybody does one thing after another: each message has to be answered before the next one.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final
from uuid import UUID, uuid4

from nats.aio.client import Client

from chatlane.nats.tasks import end_task
from chatlane_client import (
    AdapterClient,
    OutboxApi,
    RetryLaterError,
    UnansweredRequestError,
    pressed,
    reacted,
)
from chatlane_devkit.dialogue.dialogue_config import ACCOUNT, AGENT, PLATFORM, WORKER_USER
from chatlane_devkit.judge.dialogue import Call
from chatlane_devkit.judge.event_log import EventLog
from chatlane_devkit.judge.history import Sent
from chatlane_schemas import Chat, InboundEvent, Sender, new_envelope_id
from chatlane_schemas.content.elements import Press
from chatlane_servers.conditions import until
from chatlane_servers.programs import LogTail

_LOOK_AGAIN: Final = timedelta(milliseconds=30)
_PATIENCE: Final = timedelta(seconds=90)
# A message that was delivered so long ago has its receipt in the log, where the adapter did not end.
_REPORTED_AFTER: Final = 5.0
_SEND_EVERY: Final = 0.3
# How likely it is that an earlier button is pressed again, and that a request is sent again.
_PRESS_AGAIN: Final = 0.4
_SEND_AGAIN: Final = 0.3
# What people write, and how often; all but the last are handled by the worker.
KINDS: Final[Mapping[str, int]] = {
    "choose": 6,
    "free": 3,
    "default": 2,
    "draft": 5,
    "long": 4,
    "slow": 1,
    "say": 2,
    "buttons": 3,
    "reply": 3,
    "react": 2,
}
# How a question is answered.
_WAYS: Final = {"press": 5, "twice": 2, "elsewhere": 2, "label": 2, "number": 1}
# So many earlier questions of a chat may be answered again.
_REMEMBERED: Final = 4


@dataclass(slots=True)
class _Chat:
    """A chat as its person sees it.

    Attributes:
        calls: What the platform took, drafts too.
        questions: Questions that were seen, the newest last.
        answered: Their names.
    """

    name: str
    calls: list[Call] = field(default_factory=list)
    questions: list[Call] = field(default_factory=list)
    answered: set[str] = field(default_factory=set)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> str:
        return f"agent:{AGENT}:{PLATFORM}:{ACCOUNT}:dm:{self.name}"

    @property
    def session_id(self) -> str | None:
        return next((call.session_id for call in self.calls if call.session_id), None)

    def has_heard(self, text: str) -> bool:
        """Return whether an answer that lists this message is complete."""
        ids = {call.message_id for call in self.calls if f"heard: {text}\n" in f"{call.text}\n"}
        return any(
            call.message_id in ids and call.piece == call.pieces - 1
            for call in self.calls
            if call.message_id
        )


class DialoguePeople:
    """People of one account, and a timer that sends to them.

    Args:
        adapter: A connection as the adapter's user.
        worker: A connection as the worker's user.
        platform_log: What the adapter process notes.
        log: Where everything that people do is noted.
        count: How many people there are.
        kinds: What they write, and how often.
    """

    def __init__(
        self,
        adapter: Client,
        worker: Client,
        *,
        platform_log: Path,
        log: EventLog,
        count: int,
        kinds: Mapping[str, int] = KINDS,
    ) -> None:
        self._kinds = kinds
        self._adapter = AdapterClient(adapter, platform=PLATFORM, account=ACCOUNT)
        self._outbox = OutboxApi(worker, principal=WORKER_USER, agent=AGENT)
        self._tail = LogTail(platform_log)
        self._log = log
        self._chats = {f"d{number:02}": _Chat(f"d{number:02}") for number in range(count)}
        self._numbers: Counter[str] = Counter()
        self.chance = Random(11)  # noqa: S311 - the same every time
        self.done: Counter[str] = Counter()
        self._stop = asyncio.Event()

    @property
    def chats(self) -> dict[str, str]:
        """Session keys by chat."""
        return {name: chat.key for name, chat in self._chats.items()}

    @asynccontextmanager
    async def talking(self) -> AsyncIterator[None]:
        """Let everybody talk during the block; at its end everything is answered.

        Raises:
            TimeoutError: A message was not answered in time.
        """
        following = asyncio.create_task(self._follow())
        working = [asyncio.create_task(self._talk(chat)) for chat in self._chats.values()]
        working.append(asyncio.create_task(self._send()))
        try:
            yield
            self._stop.set()
            await asyncio.gather(*working)
        finally:
            for task in [*working, following]:
                await end_task(task)

    async def _follow(self) -> None:
        while True:
            for line in self._tail.new_lines():
                noted = json.loads(line)
                if noted["op"] == "call":
                    call = call_of(noted)
                    if call.chat in self._chats:
                        self._chats[call.chat].calls.append(call)
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    async def _talk(self, chat: _Chat) -> None:
        chance = Random(f"{self.chance.random()} {chat.name}")  # noqa: S311 - the same every time
        while not self._stop.is_set():
            kind = chance.choices(list(self._kinds), list(self._kinds.values()))[0]
            await self._scene(chat, kind, chance)
            self.done[kind] += 1

    async def _scene(self, chat: _Chat, kind: str, chance: Random) -> None:
        name = uuid4().hex[:12]
        text = f"{kind} {name}"
        older = [
            call
            for call in chat.calls
            if call.message_id and call.at < monotonic() - _REPORTED_AFTER
        ]
        if kind == "react":
            if older:
                event = self._event(chat, message_id=chance.choice(older).platform_id)
                await self._publish(chat, reacted(event, text, event_id=name))
                self._log.note("reacted", text=text)
            return
        replied = chance.choice(older).platform_id if kind == "reply" and older else None
        await self._say(chat, text, reply_to=replied)
        await self._until_heard(chat, text, chance)
        if kind == "default":
            await self._press_again(chat, chance)
        if kind == "buttons":
            label = f"Take {name}"
            card = next(call for call in chat.calls if call.buttons and call.buttons[0][0] == label)
            await self._press(chat, card, 0, is_message=True)
            await self._until_heard(chat, label, chance)

    async def _until_heard(self, chat: _Chat, text: str, chance: Random) -> None:
        """Answer every question that comes, until an answer lists the message.

        Raises:
            TimeoutError: None did in time.
        """

        async def is_heard() -> bool:
            for call in chat.calls:
                if call.text.startswith("question ") and call.message_id:
                    await self._meet(chat, call, chance)
            return chat.has_heard(text)

        try:
            await until(is_heard, _PATIENCE)
        except TimeoutError as error:
            raise TimeoutError(f"{chat.name} got no answer to {text!r}") from error

    async def _meet(self, chat: _Chat, call: Call, chance: Random) -> None:
        """Answer a question once, in one of several ways."""
        _, name, kind = call.text.split()
        if name in chat.answered:
            return
        chat.answered.add(name)
        if chat.questions and chance.random() < _PRESS_AGAIN:
            await self._press_again(chat, chance)
        if call.buttons:
            chat.questions.append(call)
        if kind == "default":
            return
        if kind == "free":
            await self._reply(chat, name, f"{name}:free")
            return
        way = chance.choices(list(_WAYS), list(_WAYS.values()))[0]
        number = chance.randrange(len(call.buttons))
        if way == "elsewhere":
            other = self._chats[chance.choice([it for it in self._chats if it != chat.name])]
            await self._press(other, call, number, name=name)
        if way == "label":
            await self._reply(chat, name, call.buttons[number][0])
        elif way == "number":
            await self._reply(chat, name, str(number + 1))
        else:
            await self._press(chat, call, number, name=name)
            if way == "twice":
                await self._press(chat, call, 1 - number, name=name)

    async def _press_again(self, chat: _Chat, chance: Random) -> None:
        """Press a button of an earlier question, which must change nothing."""
        if chat.questions:
            call = chance.choice(chat.questions[-_REMEMBERED:])
            await self._press(chat, call, 0, name=call.text.split()[1])

    async def _reply(self, chat: _Chat, name: str, text: str) -> None:
        begun_at = monotonic()
        await self._say(chat, text)
        self._note_reply(chat, name, text, begun_at, is_press=False)

    async def _press(
        self, chat: _Chat, call: Call, number: int, *, name: str = "", is_message: bool = False
    ) -> None:
        label, value = call.buttons[number]
        event = self._event(chat, message_id=call.platform_id)
        event_id = uuid4().hex
        press = pressed(event, Press(value=value, label=label), event_id=event_id)
        begun_at = monotonic()
        try:
            await self._publish(chat, press)
        finally:
            if not is_message:
                # A press that was cut short by the end of the run may be stored.
                self._note_reply(chat, name, label, begun_at, is_press=True)
        if is_message:
            self._note_sent(chat, press, label, "")

    def _note_reply(
        self, chat: _Chat, name: str, text: str, begun_at: float, *, is_press: bool
    ) -> None:
        self._log.note(
            "replied", name=name, chat=chat.name, text=text, begun_at=begun_at, is_press=is_press
        )

    async def _say(self, chat: _Chat, text: str, *, reply_to: str | None = None) -> None:
        event = self._event(chat, message_id=uuid4().hex, text=text, reply_to=reply_to)
        await self._publish(chat, event)
        self._note_sent(chat, event, text, event.message_id or "")
        if reply_to is not None:
            self._log.note("quoting", platform_id=reply_to, text=text, envelope_id=event.id)

    def _note_sent(self, chat: _Chat, event: InboundEvent, text: str, message_id: str) -> None:
        self._numbers[chat.name] += 1
        sent = Sent(chat.key, self._numbers[chat.name], message_id, event.id, text, AGENT)
        self._log.note("wrote", **asdict(sent))

    def _event(
        self, chat: _Chat, *, message_id: str, text: str | None = None, reply_to: str | None = None
    ) -> InboundEvent:
        return InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            message_id=message_id,
            platform=PLATFORM,
            account=ACCOUNT,
            profile=AGENT,
            chat=Chat(id=chat.name, kind="dm"),
            sender=Sender(id=chat.name, name=chat.name),
            text=text,
            reply_to=reply_to,
        )

    async def _publish(self, chat: _Chat, event: InboundEvent) -> None:
        async with chat.lock:
            while True:
                try:
                    await self._adapter.publish(event)
                except RetryLaterError as error:
                    await asyncio.sleep(error.after.total_seconds())
                else:
                    return

    async def _send(self) -> None:
        """Send to one chat after another, some requests twice at once, some again later."""
        chance = Random(f"{self.chance.random()} timer")  # noqa: S311 - the same every time
        earlier: dict[str, list[str]] = defaultdict(list)
        while not self._stop.is_set():
            chat = self._chats[chance.choice(list(self._chats))]
            if chat.session_id is not None:
                request_id = uuid4().hex
                twice = 2 if chance.random() < _SEND_AGAIN else 1
                await asyncio.gather(*(self._send_once(chat, request_id) for _ in range(twice)))
                self.done["send"] += 1
                if earlier[chat.name] and chance.random() < _SEND_AGAIN:
                    await self._send_once(chat, chance.choice(earlier[chat.name]))
                earlier[chat.name].append(request_id)
            await asyncio.sleep(_SEND_EVERY)

    async def _send_once(self, chat: _Chat, request_id: str) -> None:
        text, session_id = f"reminder {request_id}", chat.session_id
        while True:
            try:
                sent = await self._outbox.send(UUID(session_id), text, request_id=request_id)
            except UnansweredRequestError:
                continue
            break
        self._log.note(
            "sent alone",
            request_id=request_id,
            chat=chat.name,
            text=text,
            session_id=str(sent.session_id),
            message_id=str(sent.message_id),
        )


def call_of(noted: dict[str, object]) -> Call:
    """Return the call that a line of the platform's log tells of."""
    return Call(**{name: value for name, value in noted.items() if name not in {"actor", "op"}})  # type: ignore[arg-type]
