"""Puts each message into a queue of DBOS; its id is the id of the workflow that answers it."""

import asyncio
from os import environ

from dbos import DBOSClient, EnqueueOptions

from tests.benchmarks.comparison.programs.chat_api import Update, connect, poll


async def main() -> None:
    """Enqueue until killed."""
    client = DBOSClient(system_database_url=environ["DATABASE_URL"])

    async def take(update: Update) -> None:
        options: EnqueueOptions = {
            "queue_name": "chats",
            "workflow_name": "answer",
            "workflow_id": f"{update['chat']}/{update['message_id']}",
            "queue_partition_key": update["chat"],
        }
        await client.enqueue_async(options, update)

    async with connect() as http:
        await poll(http, take)


if __name__ == "__main__":
    asyncio.run(main())
