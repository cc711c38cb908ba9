"""A turn worker that does what `chatlane conform worker` writes; it shows each thing a worker can do.

A worker in another language is judged with the same words: docs/writing-a-worker.md lists them.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from os import environ

from chatlane_client import AgentUnavailableError, Ask, Turn, TurnWorker, open_connection
from chatlane_schemas import Role

NATS_URL = environ.get("NATS_URL", "nats://127.0.0.1:4222")
AGENT = environ.get("AGENT", "main")
SLOTS = int(environ.get("SLOTS", "4"))
TICK = 0.25

was_away: set[str] = set()


async def answer(turn: Turn) -> str | Ask:
    """Do what each message says, and answer with a line for each, or ask before."""
    lines = []
    for message in turn.messages:
        line = await act(turn, message.text or "")
        if isinstance(line, Ask):
            return line
        lines.append(line)
    return "\n".join(lines)


async def act(turn: Turn, text: str) -> str | Ask:
    """Do what a message says, and return its line of the answer."""
    name, *words = text.split()
    return await ACTS[name](turn, *words) if name in ACTS else f"heard {text}"


async def echo(_: Turn, word: str) -> str:
    """Answer at once."""
    return f"heard {word}"


async def recall(turn: Turn) -> str:
    """Repeat what people and the agent have said."""
    spoken = [row for row in await turn.history() if row.role in (Role.USER, Role.ASSISTANT)]
    return "recalls " + " | ".join(row.content or "" for row in spoken)


async def work(turn: Turn, seconds: str, word: str) -> str:
    """Take long, and show it; `/stop` and a lost lease cancel this function."""
    for _ in range(round(float(seconds) / TICK)):
        await turn.delta("tick ")
        await asyncio.sleep(TICK)
    return f"heard {word}"


async def step(turn: Turn, seconds: str, word: str) -> str:
    """Look something up once in all attempts, and take long after it."""

    async def look_up() -> str:
        return f"{word} {turn.attempt}"

    found = await turn.step(f"look up {word}", look_up)
    await work(turn, seconds, word)
    return f"kept {found}"


async def join(turn: Turn) -> str:
    """Wait for a message that arrives during the turn, and take it in."""
    message = await anext(turn.steered())
    return f"took {message.text}"


async def ask(turn: Turn, word: str) -> str:
    """Ask the person."""
    options, within = ["yes", "no"], timedelta(minutes=1)
    told = await turn.ask(f"Go on with {word}?", options, within=within)
    return f"told {told.value}"


async def park(turn: Turn, word: str) -> str | Ask:
    """Ask the person, and give the turn up until the answer."""

    async def look_up() -> str:
        return f"{word} {turn.attempt}"

    found = await turn.step(f"look up {word}", look_up)
    told = await turn.answer(word)
    if told is None:
        until = datetime.now(UTC) + timedelta(minutes=1)
        return Ask(f"Keep {word}?", ["yes", "no"], until=until, name=word)
    return f"kept {found}, told {told.value}"


async def be_away(_: Turn, seconds: str, word: str) -> str:
    """Say once that the agent cannot answer now."""
    if word not in was_away:
        was_away.add(word)
        raise AgentUnavailableError("away", again_in=timedelta(seconds=float(seconds)))
    return f"heard {word}"


async def fail(turn: Turn, word: str) -> str:
    """Fail at the first attempt."""
    if turn.attempt == 1:
        raise ValueError(word)
    return f"heard {word}"


ACTS: dict[str, Callable[..., Awaitable[str | Ask]]] = {
    "echo": echo,
    "recall": recall,
    "work": work,
    "step": step,
    "join": join,
    "ask": ask,
    "park": park,
    "away": be_away,
    "fail": fail,
}


async def main() -> None:
    """Serve turns until SIGTERM or Ctrl-C, then finish the running ones."""
    async with open_connection(NATS_URL, name="conform worker") as client:
        worker = TurnWorker(client, AGENT, answer, slots=SLOTS, principal=AGENT)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, worker.stop)
        await worker.run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main())
