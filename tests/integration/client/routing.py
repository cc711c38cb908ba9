"""What the tests of the client need to be there: a topology and a router on a NATS server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane.domain.catalog import Agent
from chatlane.nats.jetstream import JetStream
from chatlane.nats.tasks import end_task
from chatlane.nats.topology import apply
from chatlane_client import AdapterClient, Deliver, Handler, TurnWorker, open_connection
from chatlane_client.api.titles import TitleMaker
from chatlane_client.control import WIND_DOWN
from chatlane_client.delivery.outbound_reader import GAP_PATIENCE
from chatlane_client.transport.wire import publish_stored
from chatlane_client.worker import HAND_BACK_AFTER
from chatlane_schemas import (
    Chat,
    InboundEvent,
    OutboundMessage,
    Sender,
    Source,
    encode,
    new_envelope_id,
)
from chatlane_schemas.session_api.deliveries import DeliveryReply
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName, declared_durables, declared_streams
from tests.support.eventually import eventually

PLATFORM: Final = "test"
ACCOUNT: Final = "bot"
PRINCIPAL: Final = "tests"
SLOTS: Final = 4
PARTITIONS: Final = 4
MAIN: Final = Agent("main", lease=timedelta(seconds=1.5))
DESK: Final = Agent("desk", delivery="stream", ack_wait=timedelta(seconds=3))
AGENTS: Final = (MAIN, DESK)
OUTBOUND_ACK_WAIT: Final = timedelta(seconds=2)


async def apply_topology(url: str) -> None:
    """Create the streams and durables that the tests use, of a test's size."""
    async with open_connection(url, name="admin") as client:
        sizes = dict.fromkeys((spec.name for spec in declared_streams()), 32 * 1024 * 1024)
        streams = declared_streams(PARTITIONS, max_bytes=sizes)
        durables = [
            replace(spec, ack_wait=OUTBOUND_ACK_WAIT)
            if spec.stream is StreamName.OUTBOUND
            else spec
            for spec in declared_durables(AGENTS, [(PLATFORM, ACCOUNT)], SLOTS)
        ]
        await apply(JetStream(client), streams, durables)


@contextlib.asynccontextmanager
async def no_deliveries(url: str) -> AsyncIterator[None]:
    """Answer as a service that has no receipts, for tests of adapters without a router."""

    async def answer(message: Msg) -> None:
        reply = DeliveryReply(id=new_envelope_id(), at=datetime.now(UTC), is_settled=True)
        await message.respond(encode(reply))

    async with open_connection(url, name="no deliveries") as client:
        await client.subscribe("chat.v1.api.*.delivery.find.*.*", queue="routers", cb=answer)
        await client.flush()
        yield


def said(text: str, *, chat: str = "1", agent: str = "main") -> InboundEvent:
    """Return a direct message to an agent."""
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        message_id=str(uuid4()),
        platform=PLATFORM,
        account=ACCOUNT,
        profile=None if agent == "main" else agent,
        chat=Chat(id=chat, kind="dm"),
        sender=Sender(id=f"person-{chat}"),
        text=text,
    )


@contextlib.asynccontextmanager
async def running(work: Coroutine[None, None, None]) -> AsyncIterator[asyncio.Task[None]]:
    """Run something until the end of the block and cut it off there, as a crash would."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        await end_task(task)


@contextlib.asynccontextmanager
async def delivering(
    client: Client, handler: Deliver, *, gap_patience: timedelta = GAP_PATIENCE
) -> AsyncIterator[AdapterClient]:
    """Run an adapter until the end of the block."""
    adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT, gap_patience=gap_patience)
    async with running(adapter.deliver(handler)):
        yield adapter


@contextlib.asynccontextmanager
async def working(
    client: Client,
    handler: Handler,
    *,
    slots: int = 2,
    wind_down: timedelta = WIND_DOWN,
    hand_back_after: timedelta | None = HAND_BACK_AFTER,
    titles: TitleMaker | None = None,
) -> AsyncIterator[TurnWorker]:
    """Run a worker of the agent `main` until the end of the block."""
    worker = TurnWorker(
        client,
        MAIN.name,
        handler,
        slots=slots,
        principal=PRINCIPAL,
        wind_down=wind_down,
        hand_back_after=hand_back_after,
        titles=titles,
    )
    async with running(worker.run()):
        yield worker


class Chats:
    """A platform that remembers what it was given."""

    def __init__(self) -> None:
        self.messages: list[OutboundMessage] = []

    async def deliver(self, message: OutboundMessage) -> None:
        self.messages.append(message)

    def texts(self, chat: str = "1") -> list[str | None]:
        """Return what was said in a chat, in order."""
        return [it.text for it in self.messages if it.target.chat and it.target.chat.id == chat]

    async def until_said(self, text: str, chat: str = "1") -> None:
        await eventually(lambda: text in self.texts(chat))


class Speaker:
    """Says things to chats, as a router would."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._sessions: dict[str, UUID] = {}

    async def say(
        self, out_seq: int, *, chat: str = "1", text: str | None = None
    ) -> OutboundMessage:
        """Put a message of the chat's session into the stream; its text is else its number."""
        message = OutboundMessage(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=self._sessions.setdefault(chat, uuid4()),
            out_seq=out_seq,
            agent="main",
            target=Source(platform=PLATFORM, account=ACCOUNT, chat=Chat(id=chat)),
            text=text or str(out_seq),
        )
        await self.say_again(message)
        return message

    async def say_again(self, message: OutboundMessage, *, name: str | None = None) -> None:
        """Store a message, as another one for the stream when it gets another name."""
        chat = subjects.chat_token(message.target.chat.id if message.target.chat else None)
        subject = subjects.outbound(PLATFORM, ACCOUNT, chat)
        if name is None:
            await publish_stored(self._client, subject, message)
        else:
            headers = {"Nats-Msg-Id": name}
            await self._client.jetstream().publish(subject, encode(message), headers=headers)
