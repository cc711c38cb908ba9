"""What is measured: ways in which messages arrive, the time to a turn, and turns that go round."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any, Final, LiteralString

from tests.benchmarks import library
from tests.benchmarks.rig import Rig, Throughput

_CHATS: Final = 2000
_FLOW_PER_SECOND: Final = 300
_FLOW_SECONDS: Final = 20
_FLOW_WARM_UP_SECONDS: Final = 3
_READS_PER_SECOND: Final = 20
_TURNS: Final = 4000
_WORKER_SLOTS: Final = 64
# Enough for a bare run; it is made twice for each of the router's.
_BARE_MESSAGES: Final = 10_000

ARRIVED_SQL: Final[LiteralString] = """
-- bench: how many messages have their place in a session
SELECT coalesce(sum(next_arrival - 1), 0)::bigint FROM sessions
"""


async def _arrived(rig: Rig) -> int:
    return int(await rig.database.fetchval(ARRIVED_SQL))


async def _stored(stream: str, rig: Rig) -> int:
    return await rig.stored(stream)


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which messages arrive.

    Attributes:
        chats: The messages go to so many chats in turn; 0 is a new chat for each.
        target: The least ratio that is accepted; None where none was promised.
        count: Tells how many messages are done.
        routers: So many share the work.
    """

    name: str
    meaning: str
    profile: str
    messages: int
    chats: int
    target: float | None
    count: Callable[[Rig], Awaitable[int]]
    routers: int = 1


CASES: Final = (
    Case(
        "opening",
        "every message opens a session and a turn",
        "default",
        20_000,
        0,
        0.30,
        partial(_stored, "TURNS"),
    ),
    Case(
        "busy",
        f"into {_CHATS:,} sessions with a live turn",
        "default",
        40_000,
        _CHATS,
        0.75,
        _arrived,
    ),
    Case(
        "busy-2",
        f"into {_CHATS:,} sessions with a live turn, two routers",
        "default",
        80_000,
        _CHATS,
        0.75,
        _arrived,
        routers=2,
    ),
    Case(
        "stream",
        f"stream delivery to {_CHATS:,} sessions",
        "notes",
        20_000,
        _CHATS,
        None,
        partial(_stored, "ROUTED"),
    ),
)


@dataclass(slots=True)
class Measured:
    """All runs of a case, and of the bare loop right before and right after each."""

    runs: list[Throughput] = field(default_factory=list)
    bare: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Return each run as a part of what the bare loop did around it."""
        return [
            run.per_second / mean(around) for run, around in zip(self.runs, self.bare, strict=True)
        ]


async def measure_case(rig: Rig, case: Case, messages: int, into: Measured) -> None:
    """Fill the log and read it with the bare loop, with a router, and with the bare loop again."""
    await rig.reset()
    first = await rig.last_sequence("INBOUND") + 1
    chats = case.chats or messages
    await rig.run("generator", "fill", rig.nats.url, case.profile, messages, chats)
    bare = partial(_bare, rig, first, min(messages, _BARE_MESSAGES))
    before = await bare()
    async with rig.routers(case.routers) as routers:
        into.runs.append(await rig.throughput(routers, partial(case.count, rig), messages))
    into.bare.append((before, await bare()))


async def _bare(rig: Rig, first_sequence: int, messages: int) -> float:
    report = await rig.run("bare_loop", rig.nats.url, first_sequence, messages)
    return float(report["per_second"])


async def measure_latency(rig: Rig) -> dict[str, Any]:
    """Return percentiles of the time to the notification of a turn at a steady rate."""
    await rig.reset()
    async with rig.chatlane("router") as router:
        await rig.until_owned(router)
        return await rig.run(
            "generator",
            "flow",
            rig.nats.url,
            _FLOW_PER_SECOND,
            _FLOW_SECONDS,
            _FLOW_WARM_UP_SECONDS,
        )


async def measure_reading(rig: Rig) -> dict[str, Any]:
    """Return how long pages and searches take while messages are routed, and what these lose.

    Messages come at a steady rate twice, to conversations besides those that are read: while
    nobody reads, and while somebody does.
    """
    await rig.reset()
    await library.fill(rig.database)
    flow = ("generator", "flow", rig.nats.url, _FLOW_PER_SECOND, _FLOW_SECONDS)
    async with rig.chatlane("router") as router:
        await rig.until_owned(router)
        alone = await rig.run(*flow, _FLOW_WARM_UP_SECONDS)
        reads, beside = await asyncio.gather(
            rig.run("reader", rig.nats.url, _READS_PER_SECOND, _FLOW_SECONDS),
            rig.run(*flow, _FLOW_WARM_UP_SECONDS),
        )
    return {"reads_ms": reads, "flow_alone": alone, "flow_beside_reads": beside}


async def measure_turns(rig: Rig) -> Throughput:
    """Return how many turns go round: claim, result, transcript, answer to the chat."""
    await rig.reset()
    await rig.run("generator", "fill", rig.nats.url, "default", _TURNS, _TURNS)
    async with rig.chatlane("router") as router:
        await rig.until(router, partial(rig.stored, "TURNS"), _TURNS)
        slots = ("--slots", str(_WORKER_SLOTS))
        async with rig.chatlane("echo-worker", *slots):
            return await rig.throughput([router], partial(rig.stored, "OUTBOUND"), _TURNS)
