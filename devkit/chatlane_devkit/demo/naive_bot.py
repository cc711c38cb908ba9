"""A simple bot as many are written: one process that polls the platform and answers.

It keeps sessions in memory and confirms messages when it has fetched them. The demo kills it whenever
it kills a part of chatlane. Run as a program: `naive_bot.py PORT THINK_SECONDS`.
"""

import asyncio
import json
import sys
from collections import defaultdict
from typing import Any


class NaiveBot:
    """Polls for updates and answers each one in its chat, in order."""

    def __init__(self, port: int, think_seconds: float) -> None:
        self._port = port
        self._think_seconds = think_seconds
        self._sessions: dict[str, list[str]] = defaultdict(list)
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the platform closes the connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        poll = {"method": "get_updates"}
        while True:
            writer.write(json.dumps(poll).encode() + b"\n")
            line = await reader.readline()
            if not line:
                return
            for update in json.loads(line):
                task = asyncio.create_task(self._answer(update, writer))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                # The next poll confirms this update.
                poll = {"method": "get_updates", "after": update["id"]}

    async def _answer(self, update: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        chat = update["chat"]
        async with self._locks[chat]:
            await asyncio.sleep(self._think_seconds)
            self._sessions[chat].append(update["text"])
            answer = {
                "method": "send_message",
                "reply_to": update["id"],
                "known_messages": len(self._sessions[chat]),
            }
            writer.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    asyncio.run(NaiveBot(int(sys.argv[1]), float(sys.argv[2])).run())
