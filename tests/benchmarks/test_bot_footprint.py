"""What a whole bot needs on one machine: memory and processor time, idle and at a message a second."""

import asyncio
from time import monotonic
from typing import Final

import psutil
import pytest

from tests.acceptance.bot.bot_scene import BotScene, open_bot_scene, parts_of, stopped

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]

SPAN_SECONDS: Final = 60


def processes_of(pids: dict[str, int]) -> dict[str, list[psutil.Process]]:
    """Return each part with its children, such as those of Postgres."""
    parts = {name: psutil.Process(pid) for name, pid in pids.items()}
    return {
        name: [its, *(child for child in its.children(recursive=True) if name != "bot")]
        for name, its in parts.items()
    }


def memory_mib(processes: list[psutil.Process]) -> float:
    """Return the memory of processes; what they share counts once."""
    return sum(process.memory_full_info().pss for process in processes) / 1024 / 1024


def processor_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


async def measured(scene: BotScene, pids: dict[str, int], per_second: float) -> None:
    """Print what each part needed in a span of time."""
    async with scene.person() as ann:
        before = {name: processor_seconds(its) for name, its in processes_of(pids).items()}
        begin, written = monotonic(), 0
        while monotonic() - begin < SPAN_SECONDS:
            await asyncio.sleep(1)
            if per_second:
                await ann.write(f"message {written}.")
                written += 1
        if written:
            await ann.until_answered(f"message {written - 1}.")
        print(f"\n{per_second:g} messages a second")
        total_memory = total_share = 0.0
        for name, its in processes_of(pids).items():
            share = (processor_seconds(its) - before[name]) / (monotonic() - begin) * 100
            memory = memory_mib(its)
            total_memory, total_share = total_memory + memory, total_share + share
            print(f"{name:12} {memory:6.0f} MiB {share:6.1f} % of a core")
        print(f"{'total':12} {total_memory:6.0f} MiB {total_share:6.1f} % of a core")


async def test_footprint() -> None:
    async with open_bot_scene() as scene, scene.bot(*scene.new_bot()) as run:
        pids = {"bot": run.process.pid, **parts_of(run)}
        await measured(scene, pids, 0)
        await measured(scene, pids, 1)
        await stopped(run)
