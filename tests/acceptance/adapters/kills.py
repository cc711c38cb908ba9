"""What is killed while 50 chats of a platform talk, and which messages their answers repeat."""

import re
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Final

from tests.support.servers.backends import RunningServer
from tests.support.service.processes import Process

CHATS: Final = 50
ROUNDS: Final = 10
PATIENCE: Final = timedelta(seconds=120)
_NUMBER: Final = re.compile(r"message-(\d+)")


def kills_by_round(
    adapter: Process, router: Process, nats: RunningServer, postgres: RunningServer
) -> dict[int, Callable[[], Awaitable[None]]]:
    """Return what kills and restarts something, by the number of the round that it ends."""
    return {
        1: lambda: _kill_process(adapter),
        3: lambda: _kill_process(router),
        5: lambda: _kill_server(nats),
        6: lambda: _kill_process(adapter),
        7: lambda: _kill_server(postgres),
        8: lambda: _kill_process(adapter),
    }


async def _kill_process(process: Process) -> None:
    await process.kill()
    process.start()


async def _kill_server(server: RunningServer) -> None:
    await server.kill()
    await server.start()


def numbers_in(texts: Iterable[str | None]) -> list[int]:
    """Return the numbers of the messages that these texts repeat, in order."""
    return [int(number) for number in _NUMBER.findall("\n".join(map(str, texts)))]
