"""A turn worker: it claims turns, keeps them while it works, and answers.

Everything that was written since the last answer is one turn. The answer may take as long as it
likes; a worker that dies loses its turn to another one.
"""

import asyncio
import signal
from contextlib import suppress
from os import environ

from chatlane_client import Turn, TurnWorker, open_connection

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
SLOTS = int(environ.get("SLOTS", "4"))


async def answer(turn: Turn) -> str:
    """Echo the message and say how many came before it."""
    history = await turn.history(limit=100)
    return f"You said: {turn.text} (after {len(history)} earlier messages)"


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with open_connection(NATS_URL, name="example worker") as client:
        worker = TurnWorker(client, AGENT, answer, slots=SLOTS, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
