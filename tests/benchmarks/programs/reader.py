"""Lists conversations and searches in them, as a process of its own, at a steady pace.

Usage: `python reader.py NATS_URL PER_SECOND SECONDS`. Every other request is a search, every other
one a page of the list; half of each for a person, half for an operator. It asks at the intended
times, however long the answers take, and prints one line of JSON about the time to an answer.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Final

import nats
from nats.aio.client import Client

from chatlane_client import SessionApi, TranscriptApi
from chatlane_schemas.session_api.people import Person
from tests.benchmarks.programs.library import PEOPLE, Language
from tests.benchmarks.report.figures import percentiles

_PAGE: Final = 20


class Reader:
    """Asks for a page of hits or of sessions, and keeps how long each answer took."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queries = Language().queries()
        self.took_ms: dict[str, list[float]] = {"search": [], "list": []}

    async def search(self, number: int) -> None:
        """Ask for the first page of hits."""
        api = TranscriptApi(self._client, principal="reader", acting_for=_person(number))
        hits = api.search(next(self._queries), page_size=_PAGE)
        await self._measure("search", partial(anext, hits, None))

    async def list(self, number: int) -> None:
        """Ask for the first page of sessions."""
        api = SessionApi(self._client, principal="reader", acting_for=_person(number))
        sessions = api.list_all(page_size=_PAGE)
        await self._measure("list", partial(anext, sessions, None))

    async def _measure(self, what: str, ask: Callable[[], Awaitable[object]]) -> None:
        began = perf_counter()
        await ask()
        self.took_ms[what].append((perf_counter() - began) * 1000)


def _person(number: int) -> Person | None:
    if number % 4 < 2:
        return None
    return Person(platform="telegram", account="bot", id=f"reader-{number % PEOPLE}")


async def read(url: str, per_second: float, seconds: float) -> None:
    """Ask at a steady pace and print how long the answers took."""
    client = await nats.connect(url)
    reader = Reader(client)
    begin = perf_counter()
    asks = cycle((reader.search, reader.list))
    async with asyncio.TaskGroup() as tasks:
        for number in range(int(per_second * seconds)):
            if (pause := begin + number / per_second - perf_counter()) > 0:
                await asyncio.sleep(pause)
            tasks.create_task(next(asks)(number))
    await client.close()
    report = {name: percentiles(took) for name, took in reader.took_ms.items()}
    sys.stdout.write(f"{json.dumps(report)}\n")


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))
