"""Measures routers with different numbers of partitions: `make partition-counts`."""

import asyncio
import json
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final, LiteralString

import psutil
from rich.console import Console

from chatlane_schemas.topology import subjects
from chatlane_servers.binaries import server_directory
from tests.benchmarks import cases
from tests.benchmarks.cases import BUSY, Measured
from tests.benchmarks.rig import Rig, cpu_seconds, open_rig

RESULT: Final = Path("var/partition-counts.json")
COUNTS: Final = (32, 64, 128)
ROUTERS: Final = (1, 2, 3)
IDLE_SECONDS: Final = 15.0
# Chats are hashed, so some partitions get none.
_MESSAGES_PER_PARTITION: Final = 2

OWNED_SQL: Final[LiteralString] = """
-- bench: how many partitions of both logs the largest owner has
SELECT coalesce(max(owned), 0) FROM (
    SELECT count(*) AS owned FROM partitions
    WHERE lease_until > clock_timestamp() GROUP BY owner
) AS owners
"""
DECIDED_SQL: Final[LiteralString] = """
-- bench: how many messages were set aside
SELECT count(*) FROM dead_letters
"""


async def measure_idle(rig: Rig, seconds: float) -> dict[str, float]:
    """Return the processor time in a second, and the memory, of one router without messages."""
    async with rig.routers(1) as routers:
        await rig.until_owned(routers[0].program)
        pids = {
            "router": routers[0].program.pid,
            "nats": rig.nats.pid,
            "postgres": rig.postgres.pid,
        }
        before = {name: cpu_seconds(pid) for name, pid in pids.items() if pid}
        begin = perf_counter()
        await asyncio.sleep(seconds)
        passed = perf_counter() - begin
        figures = {
            f"{name}_cpu_ms": (cpu_seconds(pid) - before[name]) / passed * 1000
            for name, pid in pids.items()
            if pid
        }
        memory = psutil.Process(routers[0].program.pid).memory_info().rss
        return {**figures, "router_mib": memory / 2**20}


async def measure_take_over(rig: Rig) -> dict[str, float]:
    """Return the seconds from the kill of one of two routers until the other has replaced it."""
    async with rig.routers(2) as routers:
        await rig.until_shared(routers)
        heir = routers[1].program
        decided_before = await rig.value(DECIDED_SQL)
        killed = psutil.Process(routers[0].program.pid)
        os.kill(killed.pid, signal.SIGKILL)
        begin = perf_counter()
        messages = _MESSAGES_PER_PARTITION * rig.partitions
        for number in range(messages):
            chat = subjects.chat_token(f"take-over-{number}")
            # Set aside by the first router that reads it, so no worker is needed.
            await rig.client.jetstream().publish(subjects.inbound("telegram", "bot", chat), b"{")
        await rig.until(heir, partial(rig.value, OWNED_SQL), 2 * rig.partitions)
        owned = perf_counter() - begin
        await rig.until(heir, partial(rig.value, DECIDED_SQL), decided_before + messages)
        decided = perf_counter() - begin
        # `routers` requires at its end that all of them run.
        routers[0].program.start()
        return {"owned_s": owned, "decided_s": decided}


async def measure_throughput(
    rig: Rig, routers: Sequence[int], rounds: int, portion: float
) -> dict[str, Any]:
    """Return the ratio to the bare loop, by the number of routers."""
    ratios: dict[str, Any] = {}
    for count in routers:
        into = Measured()
        for _ in range(rounds):
            log = await cases.write_log(rig, BUSY, BUSY.messages_for(count, portion))
            await cases.measure(rig, BUSY, log, count, into)
            await rig.reset()
        flow = into.as_flow(BUSY, "default", count)
        ratios[str(count)] = {
            "ratio": flow.ratio.model_dump(),
            "per_second": flow.per_second.median,
        }
    return ratios


async def measure(
    directory: Path, partitions: int, rounds: int, portion: float, idle_seconds: float
) -> dict[str, Any]:
    """Return all figures of one number of partitions."""
    settings = f"\n[router]\npartitions = {partitions}\n"
    async with open_rig(directory, settings=settings) as rig:
        idle = await measure_idle(rig, idle_seconds)
        take_overs = [await measure_take_over(rig) for _ in range(rounds)]
        await rig.reset()
        return {
            "idle": idle,
            "take_over": {name: median(one[name] for one in take_overs) for name in take_overs[0]},
            "busy": await measure_throughput(rig, ROUTERS, rounds, portion),
        }


async def main(arguments: list[str]) -> int:
    """Measure, print and write."""
    parser = ArgumentParser(prog="make partition-counts", description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--portion", type=float, default=1.0)
    parser.add_argument("--idle-seconds", type=float, default=IDLE_SECONDS)
    asked = parser.parse_args(arguments)
    console = Console()
    figures: dict[str, Any] = {}
    with server_directory("partition-counts-") as directory:
        for partitions in asked.partitions:
            figures[str(partitions)] = found = await measure(
                directory / str(partitions),
                partitions,
                asked.rounds,
                asked.portion,
                asked.idle_seconds,
            )
            console.print(f"{partitions} partitions: {json.dumps(found)}")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    console.print(f"written to {RESULT}")
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
