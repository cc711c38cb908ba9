"""Answers turns of chatlane."""

import asyncio
from os import environ

from chatlane_client import Turn, TurnWorker, open_connection
from chatlane_schemas import Role
from tests.benchmarks.comparison.programs.chat_api import THINK_SECONDS, answer_to


async def answer(turn: Turn) -> str:
    """Answer all messages of a turn; each begins with its id."""
    heard = [row for row in await turn.history(limit=100) if row.role is Role.USER]
    await asyncio.sleep(THINK_SECONDS)
    return answer_to(len(heard), *((it.text or "").split(" ")[0] for it in turn.messages))


async def main() -> None:
    """Answer until killed."""
    async with open_connection(environ["NATS_URL"], name="agent") as client:
        await TurnWorker(client, "main", answer, slots=64, principal="main").run()


if __name__ == "__main__":
    asyncio.run(main())
