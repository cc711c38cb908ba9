"""Trigger faults in a running stack and report how long each recovery took."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from time import monotonic
from typing import Final

from chatlane_devkit.demo.stack import Stack, Tell, worker_id
from chatlane_servers.conditions import until
from chatlane_servers.embedded import EmbeddedServer

_PATIENCE: Final = timedelta(seconds=40)
# How long a killed server stays away.
_AWAY: Final = timedelta(milliseconds=500)


class Faults:
    """All faults, each by its cue.

    Attributes:
        seconds: Duration of each recovery.
        spans: By cue, the monotonic times of its beginning and of its recovery.
    """

    def __init__(self, stack: Stack, tell: Tell, last_answer_at: Callable[[], float]) -> None:
        """Prepare the faults.

        Args:
            stack: The stack to disturb.
            tell: Prints a line.
            last_answer_at: Monotonic time of the newest answer to any chat.
        """
        self.seconds: dict[str, float] = {}
        self.spans: dict[str, tuple[float, float]] = {}
        self._stack = stack
        self._tell = tell
        self._last_answer_at = last_answer_at

    async def happen(self, cue: str) -> None:
        """Trigger the fault of a cue, wait for the recovery, and report it.

        Raises:
            TimeoutError: It did not recover.
            KeyError: The cue is not known.
        """
        acts: dict[str, Callable[[], Awaitable[None]]] = {
            "router": self._kill_router,
            "worker": self._kill_worker,
            "nats": lambda: self._kill_server(self._stack.nats),
            "postgres": lambda: self._kill_server(self._stack.postgres),
        }
        began_at = monotonic()
        await acts[cue]()
        self.spans[cue] = began_at, monotonic()

    async def _kill_router(self) -> None:
        killed, heir, count = "router 1", "router 2", self._stack.partitions
        await self._stack.programs[killed].kill()
        self._tell(f"killed {killed} with SIGKILL")
        seconds = await self._stack.until_owned({heir: count})
        self.seconds["router taken over"] = seconds
        self._tell(f"{heir} owns {count} of {count} partitions, {seconds:.1f} s after the kill")
        await self._stack.start_router(killed)
        await self._stack.until_owned({killed: count // 2, heir: count - count // 2})
        self._tell(f"{killed} is back and owns {count // 2} of {count} partitions")

    async def _kill_worker(self) -> None:
        name = "worker 1"

        async def has_turns() -> bool:
            return bool(await self._stack.observer.claimed_by(worker_id(name)))

        await until(has_turns, _PATIENCE)
        await self._stack.programs[name].kill()
        turns = await self._stack.observer.claimed_by(worker_id(name))
        self._tell(f"killed {name} with SIGKILL while it worked on {_count(turns, 'turn')}")
        self._stack.programs[name].start()
        self._tell(f"started {name} again")

        async def are_answered() -> bool:
            return not await self._stack.observer.live_among(turns)

        seconds = self.seconds["worker's turns answered"] = await until(are_answered, _PATIENCE)
        self._tell(f"its turns were answered after {seconds:.1f} s")

    async def _kill_server(self, server: EmbeddedServer) -> None:
        begin = monotonic()
        await server.kill()
        self._tell(f"killed {server.name} with SIGKILL")
        await asyncio.sleep(_AWAY.total_seconds())
        await server.start()
        back = monotonic()
        self._tell(f"started {server.name} again; it was away for {back - begin:.1f} s")

        async def is_answering() -> bool:
            return self._last_answer_at() > back

        await until(is_answering, _PATIENCE)
        self.seconds[f"first answer after {server.name}"] = self._last_answer_at() - begin
        self._tell(f"answers go on {self._last_answer_at() - begin:.1f} s after the kill")


def _count(items: list[str], noun: str) -> str:
    return f"{len(items)} {noun}" if len(items) == 1 else f"{len(items)} {noun}s"
