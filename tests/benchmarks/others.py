"""What chatlane is compared with besides the bare loop: a naive worker, and its predecessor."""

import asyncio
from typing import Final

from tests.benchmarks import cases
from tests.benchmarks.cases import BUSY, OPENING, Case
from tests.benchmarks.report.figures import Naive, Reference, Spread
from tests.benchmarks.rig import Rig
from tests.support.old_gateway.environment import run_old_gateway

NAIVE_CASES: Final = (OPENING, BUSY)
# One process beside one, and two as demo and compose run them.
NAIVE_ROUTERS: Final = (1, 2)
REFERENCE_SESSIONS: Final = (10, 100, 1000, 5000)
_NAIVE_MESSAGES: Final = 3000
_REFERENCE_SECONDS: Final = 4.0


async def measure_naive(rig: Rig, case: Case, count: int, rounds: int, portion: float) -> Naive:
    """Let the naive worker and so many routers take the same messages in turn."""
    naive, router = [], []
    for _ in range(rounds):
        await rig.reset()
        log = await cases.write_log(rig, case, case.messages_for(count, portion))
        naive.append(await _naive_rate(rig, log, portion))
        async with rig.routers(count) as routers:
            run = await cases.throughput(rig, case, log, routers)
        router.append(run.per_second)
    return Naive(
        case=case.name,
        routers=count,
        naive_per_second=Spread.of(naive),
        router_per_second=Spread.of(router),
        times=Spread.of(ours / its for ours, its in zip(router, naive, strict=True)),
    )


async def _naive_rate(rig: Rig, log: cases.Log, portion: float) -> float:
    messages = min(log.messages, max(int(_NAIVE_MESSAGES * portion), 200))
    report = await rig.run("naive_worker", rig.nats.url, rig.postgres.url, log.first, messages)
    return float(report["per_second"])


async def measure_reference(rig: Rig, sessions: int, portion: float) -> Reference:
    """Measure the session store of the reference; its files go with the rig."""
    home = rig.directory / f"reference-{sessions}"
    home.mkdir()
    asked = {"sessions": sessions, "seconds": max(_REFERENCE_SECONDS * portion, 0.5)}
    report = await asyncio.to_thread(run_old_gateway, "measure_store.py", home, asked)
    return Reference(sessions=sessions, per_second=report["per_second"])
