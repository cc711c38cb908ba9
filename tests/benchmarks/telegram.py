"""Measures the adapter of Telegram against the emulated Bot API, without a router.

    python -m tests.benchmarks.telegram

People write to the bot in 10,000 chats; the adapter stores their messages in the log. Then messages
for these chats, or for some of them, wait in OUTBOUND, and the adapter sends them. Both are done twice, so that the
memory of the adapter with known chats is seen. The processor time of the adapter gives the messages
a second of one core; it does not depend on what else the machine does.
"""

import asyncio
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Final
from uuid import UUID, uuid4

import psutil
from nats.aio.client import Client

from chatlane.nats.jetstream import JetStream
from chatlane.nats.topology import apply
from chatlane_client import open_connection
from chatlane_client.transport.wire import publish_stored
from chatlane_devkit.platforms.telegram import Chat, TelegramServer, open_telegram_server
from chatlane_schemas import Chat as ChatOfEvent
from chatlane_schemas import OutboundMessage, Source, new_envelope_id
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import declared_durables, declared_streams
from chatlane_servers.binaries import server_directory
from chatlane_servers.conditions import until
from chatlane_servers.embedded import open_nats
from chatlane_servers.programs import Program
from tests.integration.client.routing import no_deliveries

PLATFORM: Final = "telegram"
ACCOUNT: Final = "bot"
CHATS: Final = 10_000
PATIENCE: Final = timedelta(minutes=10)
_STREAM_BYTES: Final = 256 * 1024 * 1024
_AT_ONCE: Final = 64
_FAST: Final = "100000"


async def apply_topology(client: Client) -> None:
    """Create the streams and the durable of the account."""
    sizes = dict.fromkeys((spec.name for spec in declared_streams()), _STREAM_BYTES)
    durables = declared_durables((), [(PLATFORM, ACCOUNT)], 4)
    await apply(JetStream(client), declared_streams(4, max_bytes=sizes), durables)


@asynccontextmanager
async def measured(name: str, count: int, process: psutil.Process) -> AsyncIterator[None]:
    """Print what the adapter needed for so many messages in the block."""
    begin, before = monotonic(), sum(process.cpu_times()[:2])
    yield
    processor, seconds = sum(process.cpu_times()[:2]) - before, monotonic() - begin
    memory = process.memory_full_info().uss / 2**20
    print(
        f"{name:20} {count} messages, {count / processor:5.0f} a second of processor time, "
        f"{count / seconds:5.0f} a second of {seconds:.0f} s, {memory:4.0f} MiB"
    )


async def receive(telegram: TelegramServer, chats: list[Chat]) -> None:
    """Let each person write, and wait until the adapter has stored all of it."""
    updates = telegram.world.updates
    for chat in chats:
        telegram.people.write(chat.id, "a message as people write them")
    await until(_holds(lambda: updates.confirmed >= updates.newest), PATIENCE)


async def send(client: Client, chats: list[Chat], sessions: list[UUID], number: int) -> None:
    """Publish a message for each chat, and wait until the emulator shows all of them."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def publish(chat: Chat, session: UUID) -> None:
        message = OutboundMessage(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=session,
            out_seq=number,
            agent="main",
            target=Source(
                platform=PLATFORM, account=ACCOUNT, chat=ChatOfEvent(id=str(chat.id), kind="dm")
            ),
            text="an answer with **some** Markdown, as agents write them",
        )
        subject = subjects.outbound(PLATFORM, ACCOUNT, subjects.chat_token(str(chat.id)))
        async with room:
            await publish_stored(client, subject, message)

    await asyncio.gather(*map(publish, chats, sessions))
    await until(_holds(lambda: all(len(chat.texts) >= number for chat in chats)), PATIENCE)


def _holds(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return condition()

    return holds


async def measure(count: int, sent: int) -> None:
    """Run the adapter and print what it needed.

    Args:
        count: How many chats write.
        sent: To how many of them the bot writes.
    """
    with server_directory() as directory:
        async with (
            open_nats(directory / "nats") as nats,
            open_telegram_server() as telegram,
            open_connection(nats.url, name="benchmark") as client,
            no_deliveries(nats.url),
        ):
            await apply_topology(client)
            its = {
                "NATS_URL": nats.url,
                "ACCOUNT": ACCOUNT,
                "API_URL": telegram.url,
                "TOKEN": telegram.token,
                "PER_SECOND": _FAST,
                "PER_CHAT_PER_SECOND": _FAST,
            }
            variables = {f"CHATLANE_ADAPTER_{name}": value for name, value in its.items()}
            arguments = ["-m", "chatlane", "adapter", "telegram"]
            adapter = Program("adapter", arguments, directory, variables)
            adapter.start()
            try:
                await until(_holds(lambda: telegram.world.updates.polls > 0), PATIENCE)
                process = psutil.Process(adapter.pid)
                chats = [telegram.people.private_chat(f"Person {at}") for at in range(count)]
                sessions = [uuid4() for _ in chats]
                for number in (1, 2):
                    async with measured(f"received, round {number}", count, process):
                        await receive(telegram, chats)
                    async with measured(f"sent, round {number}", sent, process):
                        await send(client, chats[:sent], sessions, number)
            finally:
                await adapter.stop()


def main() -> None:
    """Read the arguments and measure."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=CHATS)
    parser.add_argument("--sent", type=int, default=CHATS)
    options = parser.parse_args()
    asyncio.run(measure(options.chats, min(options.chats, options.sent)))


if __name__ == "__main__":
    main()
