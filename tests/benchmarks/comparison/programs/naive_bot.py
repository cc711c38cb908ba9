"""A bot as many are written: one process, its memory in a dictionary."""

import asyncio
from collections import defaultdict

from tests.benchmarks.comparison.programs.chat_api import (
    THINK_SECONDS,
    Update,
    answer_to,
    connect,
    poll,
    send,
)


async def main() -> None:
    """Answer until killed."""
    memory: dict[str, list[str]] = defaultdict(list)
    locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
    tasks: set[asyncio.Task[None]] = set()
    async with connect() as http:

        async def answer(update: Update) -> None:
            async with locks[update["chat"]]:
                heard = memory[update["chat"]]
                await asyncio.sleep(THINK_SECONDS)
                await send(http, update["chat"], answer_to(len(heard), update["message_id"]))
                heard.append(update["text"])

        async def take(update: Update) -> None:
            task = asyncio.create_task(answer(update))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        await poll(http, take)


if __name__ == "__main__":
    asyncio.run(main())
