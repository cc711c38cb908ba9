"""Measures what a flood from one chat costs the others: `make flood`.

Quiet chats write steadily, first alone, then while one chat has 10,000 messages in the log. What is
compared is the time from the acknowledgement by the log to the notification of the turn.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from chatlane.dev.binaries import server_directory
from chatlane.dev.programs import Program
from tests.benchmarks import generator
from tests.benchmarks.rig import PYTHONPATH, Rig, open_rig

RESULT: Final = Path("var/flood.json")
FLOOD: Final = 10_000
PER_SECOND: Final = 50
SECONDS: Final = 10
_WARM_UP_SECONDS: Final = 1
# How much later the quiet ones may be, by their p99.
MOST_TIMES: Final = 3.0


async def measure(rig: Rig, flood: int, seconds: float) -> dict[str, Any]:
    """Return the percentiles of the quiet chats alone and beside the flood, in milliseconds."""
    await rig.reset()
    flow = ("generator", "flow", rig.nats.url, PER_SECOND, seconds, _WARM_UP_SECONDS)
    fill = [generator.__file__, "fill", rig.nats.url, str(flood), "--chats", "1"]
    async with rig.chatlane("router") as router:
        await rig.until_owned(router)
        alone = await rig.run(*flow)
        flooding = Program("flooding", fill, rig.directory, PYTHONPATH)
        flooding.start()
        beside = await rig.run(*flow)
        flooding.require_success()
    return {"flood": flood, "alone": alone, "beside": beside}


def times(figures: dict[str, Any]) -> float:
    """Return how many times as long the quiet ones waited, by their p99."""
    alone, beside = (figures[key]["from_acknowledgement_ms"]["p99"] for key in ("alone", "beside"))
    return float(beside / alone)


async def main(arguments: list[str]) -> int:
    """Measure, print and write; return 1 when the quiet ones waited for too long."""
    parser = ArgumentParser(prog="make flood", description=__doc__)
    parser.add_argument("--messages", type=int, default=FLOOD)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    asked = parser.parse_args(arguments)
    with server_directory("flood-") as directory:
        async with open_rig(directory / "rig") as rig:
            figures = await measure(rig, asked.messages, asked.seconds)
    console, ratio = Console(), times(figures)
    for name in ("alone", "beside"):
        its = figures[name]["from_acknowledgement_ms"]
        console.print(f"{name}: p50 {its['p50']:.1f} ms, p99 {its['p99']:.1f} ms")
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({**figures, "times": ratio}, indent=2) + "\n", "utf-8")
    console.print(f"{ratio:.1f} times as long beside the flood, written to {RESULT}")
    return 1 if ratio > MOST_TIMES else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
