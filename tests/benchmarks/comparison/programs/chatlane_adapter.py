"""Publishes each message to chatlane, and sends what it answers."""

import asyncio
from datetime import UTC, datetime
from os import environ

from chatlane_client import AdapterClient, open_connection
from chatlane_schemas import Chat, InboundEvent, OutboundMessage, Sender, new_envelope_id
from tests.benchmarks.comparison.programs.chat_api import Update, connect, poll, send


async def main() -> None:
    """Publish and send until killed."""
    async with (
        connect() as http,
        open_connection(environ["NATS_URL"], name="adapter") as client,
        asyncio.TaskGroup() as tasks,
    ):
        adapter = AdapterClient(client, platform="telegram", account="assistant")

        async def take(update: Update) -> None:
            event = InboundEvent(
                id=new_envelope_id(),
                at=datetime.now(UTC),
                message_id=update["message_id"],
                platform="telegram",
                account="assistant",
                chat=Chat(id=update["chat"], kind="dm"),
                sender=Sender(id=update["chat"]),
                text=update["text"],
            )
            await adapter.publish(event)

        async def deliver(message: OutboundMessage) -> None:
            if message.target.chat and message.target.chat.id:
                await send(http, message.target.chat.id, message.text or "")

        tasks.create_task(adapter.deliver(deliver))
        await poll(http, take)


if __name__ == "__main__":
    asyncio.run(main())
