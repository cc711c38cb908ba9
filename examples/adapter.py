"""An adapter whose platform is this terminal: what you type is published, answers are printed.

An adapter for a real platform does the same three things: it turns what the platform sends into
an `InboundEvent`, publishes it, and brings every `OutboundMessage` to the platform.
"""

import asyncio
import sys
from contextlib import suppress
from datetime import UTC, datetime
from getpass import getuser
from os import environ

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import Chat, InboundEvent, OutboundMessage, Sender, new_envelope_id

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
PLATFORM = environ.get("PLATFORM", "terminal")
ACCOUNT = environ.get("ACCOUNT", "local")
PERSON = environ.get("PERSON") or getuser()


def event(text: str) -> InboundEvent:
    """Return the typed line as an event; a real platform has its own message ids."""
    return InboundEvent(
        id=new_envelope_id(),
        at=datetime.now(UTC),
        message_id=new_envelope_id(),
        platform=PLATFORM,
        account=ACCOUNT,
        chat=Chat(id=PERSON, kind="dm"),
        sender=Sender(id=PERSON, name=PERSON),
        text=text,
    )


async def show(message: OutboundMessage) -> None:
    """Print an answer; returning means it was delivered, raising asks for another try."""
    chat = message.target.chat.id if message.target.chat else None
    print(f"{message.agent} to {chat}: {message.text}", flush=True)


async def typed_lines() -> asyncio.StreamReader:
    """Return the standard input as a stream."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    return reader


async def main() -> None:
    """Publish lines and print answers until the end of the input."""
    # The task group ends the delivery before the connection closes.
    async with (
        open_connection(NATS_URL, name="example adapter") as client,
        asyncio.TaskGroup() as tasks,
    ):
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        tasks.create_task(adapter.deliver(show))
        async for line in await typed_lines():
            if text := line.decode().strip():
                await adapter.publish(event(text))
        adapter.stop()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
