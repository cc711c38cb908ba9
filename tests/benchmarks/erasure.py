"""Measures an erasure beside traffic: `make erasure`.

One person writes 10,000 messages, to turn agents and stream agents, alone and in rooms with others, and
all are answered. Then, while 300 others write one message a second each, `chatlane people erase` runs.
Told is how long that took and what is found of the person afterwards, byte by byte, in a dump of
the database, in every message of every stream, and in the files of the streams. In these it may
stay until the server rewrites them, unless it is told to `--overwrite`.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

from chatlane_servers.binaries import server_directory
from chatlane_servers.embedded import open_nats, open_postgres
from tests.support.servers.databases import migrated, open_database
from tests.support.service.leftover_scan import on_disk
from tests.support.service.person_world import (
    ANN,
    BOB,
    MORE,
    SETTLED_WITHIN,
    World,
    open_world,
)
from tests.support.service.processes import STREAM_AGENT, open_service

RESULT: Final = Path("var/erasure.json")
MESSAGES: Final = 10_000
PER_SECOND: Final = 300
WITHIN: Final = timedelta(seconds=60)
_ROOMS: Final = 20
_AT_ONCE: Final = 100
_OTHERS: Final = 300


async def fill(world: World, messages: int) -> None:
    """Let the person write that much, and somebody else into the same rooms."""
    for begin in range(0, messages, _AT_ONCE):
        async with asyncio.TaskGroup() as tasks:
            for number in range(begin, min(begin + _AT_ONCE, messages)):
                pair, is_alone = divmod(number, 2)
                chat = None if is_alone else f"room{pair % _ROOMS}"
                tasks.create_task(world.write(ANN, chat, profile=_profile(pair)))
        room = begin // _AT_ONCE % _ROOMS
        await world.write(BOB, f"room{room}", profile=_profile(room))
    await world.until_settled(10 * SETTLED_WITHIN)


def _profile(number: int) -> str | None:
    """Return whom to speak to: one agent and the other in turn."""
    return None if number % 2 else STREAM_AGENT


async def measure(
    world: World, nats_directory: Path, messages: int, rate: int, *options: str
) -> dict[str, Any]:
    """Return what the command took and what is left."""
    await fill(world, messages)
    before = len(world.written)
    async with world.begin(rate, *((f"other{number}", None) for number in range(_OTHERS))):
        began = monotonic()
        told = await world.erase(ANN, "--patience", "2m", *options)
        took = monotonic() - began
        said = len(world.written) - before
    await world.until_settled(10 * SETTLED_WITHIN)
    # Each word of theirs begins so.
    words = [ANN, f"canaryname{ANN}", f"canary{ANN[:3]}"]
    found = await world.found(*words)
    files = on_disk(nats_directory, words)
    return {
        "messages": messages,
        "seconds": round(took, 1),
        "others_per_second": round(said / took),
        "found": {str(store): sum(its.values()) for store, its in found.items()},
        "files": sum(map(len, files.values())),
        "deleted": {store: its["deleted"] for store, its in told["receipt"].items()},
    }


async def run(messages: int, rate: int, *options: str) -> dict[str, Any]:
    """Start everything, measure, and end everything."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(server_directory())
        server = await stack.enter_async_context(open_nats(directory / "nats"))
        postgres = await stack.enter_async_context(open_postgres(directory / "postgres"))
        name = await stack.enter_async_context(open_database(postgres.url))
        dsn = postgres.dsn(name)
        await migrated(dsn)
        (directory / "service").mkdir()
        service = await stack.enter_async_context(
            open_service(
                directory / "service", server.url, dsn, turn_lease=timedelta(seconds=30), more=MORE
            )
        )
        router = service.router("router-1")
        service.worker("worker-1", think=timedelta(0), slots=64)
        service.subscriber("subscriber-1")
        await service.until_started(router)
        world = await stack.enter_async_context(open_world(service))
        return await measure(world, directory / "nats", messages, rate, *options)


def main() -> int:
    """Measure, write the figures, and fail where they are not what is promised."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rate", type=int, default=PER_SECOND)
    parser.add_argument("--overwrite", action="store_true", help="in the files of the streams, too")
    arguments = parser.parse_args()
    options = ["--overwrite"] if arguments.overwrite else []
    figures = asyncio.run(run(arguments.messages, arguments.rate, *options))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    is_kept = figures["seconds"] < WITHIN.total_seconds() and not figures["found"]
    return 0 if is_kept and not (arguments.overwrite and figures["files"]) else 1


if __name__ == "__main__":
    sys.exit(main())
