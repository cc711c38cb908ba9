"""Measures what a flood costs the others: `make flood`.

Quiet chats write steadily, first alone, then while one chat has 10,000 messages in the log, then
while a thousand chats of one account have as many together, then while the adapter of another account
publishes garbage (`tests/support/service/hostile_adapter.py`). What is compared is the time from the
acknowledgement by the log to the notification of the turn. Those quiet chats that are in the
flooded partition count, and are shown by themselves as well.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from chatlane_servers.binaries import server_directory
from chatlane_servers.conditions import until
from chatlane_servers.programs import Program
from tests.benchmarks.programs import generator
from tests.benchmarks.rig import HOSTILE, PATIENCE, PYTHONPATH, Rig, open_rig
from tests.support.service import hostile_adapter

RESULT: Final = Path("var/flood.json")
FLOOD: Final = 10_000
PER_SECOND: Final = 50
# Mutated, oversized, replayed and misaddressed events of another account.
HOSTILE_PER_SECOND: Final = 150
SECONDS: Final = 10
_WARM_UP_SECONDS: Final = 1
# As `fill` names the first of its chats.
_FLOODING: Final = "one_chat-0"
_MANY_CHATS: Final = 1000
# How much later the quiet ones may be beside a flood of one chat, by their p99.
MOST_TIMES: Final = 3.0


async def measure(rig: Rig, flood: int, seconds: float) -> dict[str, Any]:
    """Return the percentiles of the quiet chats alone and beside the floods, in milliseconds."""
    await rig.reset()
    near = ("--near", _FLOODING)
    flow = (rig.nats.url, PER_SECOND, seconds, _WARM_UP_SECONDS, *rig.speaking(), *near)
    async with rig.chatlane("router") as router:
        await rig.until_owned(router)
        alone = await rig.run("generator", "flow", *flow)
        beside: dict[str, Any] = {}
        for name, chats in (("one_chat", 1), ("one_account", _MANY_CHATS)):
            fill = ["fill", rig.nats.url, str(flood), "--chats", str(chats), "--prefix", name]
            fill += rig.speaking()
            flooding = Program(name, [generator.__file__, *fill], rig.directory, PYTHONPATH)
            flooding.start()
            beside[name] = await rig.run("generator", "flow", *flow)
            flooding.require_success()
        beside["hostile"] = await _beside_hostile_events(rig, flow, seconds)
    return {"flood": flood, "alone": alone, "beside": beside}


async def _beside_hostile_events(
    rig: Rig, flow: tuple[object, ...], seconds: float
) -> dict[str, Any]:
    account = (rig.nats.url, generator.PLATFORM, "hostile", HOSTILE_PER_SECOND)
    arguments = [hostile_adapter.__file__, *map(str, account), str(seconds + _WARM_UP_SECONDS)]
    arguments += rig.speaking(HOSTILE)
    attacking = Program("hostile", arguments, rig.directory, PYTHONPATH)
    attacking.start()
    report = await rig.run("generator", "flow", *flow)

    async def has_ended() -> bool:
        return not attacking.is_running

    await until(has_ended, PATIENCE)
    attacking.require_success()
    return report


def times(figures: dict[str, Any], flood: str) -> float:
    """Return how many times as long the quiet ones waited beside a flood, by their p99."""
    beside = figures["beside"][flood]["from_acknowledgement_ms"]["p99"]
    return float(beside / figures["alone"]["from_acknowledgement_ms"]["p99"])


async def main(arguments: list[str]) -> int:
    """Measure, print and write; return 1 when the quiet ones waited for too long."""
    parser = ArgumentParser(prog="make flood", description=__doc__)
    parser.add_argument("--messages", type=int, default=FLOOD)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args(arguments)
    with server_directory("flood-") as directory:
        async with open_rig(directory / "rig") as rig:
            figures = await measure(rig, asked.messages, asked.seconds)
    console = Console()
    ratios = {name: times(figures, name) for name in figures["beside"]}
    for name, its in {"alone": figures["alone"], **figures["beside"]}.items():
        console.print(f"{name}: {_shown(its['from_acknowledgement_ms'])}")
        if "in_the_same_partition_ms" in its:
            neighbours = _shown(its["in_the_same_partition_ms"])
            console.print(f"  in the flooded partition: {neighbours}")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({**figures, "times": ratios}, indent=2) + "\n", "utf-8")
    for name, ratio in ratios.items():
        console.print(f"{ratio:.1f} times as long beside a flood of {name}")
    console.print(f"written to {RESULT}")
    return 1 if ratios["one_chat"] > MOST_TIMES else 0


def _shown(its: dict[str, float]) -> str:
    return f"p50 {its['p50']:.1f} ms, p99 {its['p99']:.1f} ms"


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
