"""Measures the router against a bare loop over NATS: `make bench`.

Every figure is a ratio to what one Python process does on the same machine, in the same run and
on the same messages, so that it says something about the router and little about the machine.
Runs alternate (bare loop, router, bare loop), and what a run is compared with are the bare runs
right before and right after it.
"""

import asyncio
import json
import os
import platform
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from time import monotonic
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from chatlane.dev.binaries import server_directory
from tests.benchmarks.cases import (
    CASES,
    Case,
    Measured,
    measure_case,
    measure_latency,
    measure_reading,
    measure_turns,
)
from tests.benchmarks.rig import Rig, Throughput, open_rig

RESULT: Final = Path("var/bench.json")
P99_TARGET_MS: Final = 40.0
_PARTS: Final = ("sync", "latency", "reading", "turns")
# 95 of a hundred answers take no longer, while messages are routed that lose no more than this.
_READ_TARGETS_MS: Final = {"list": 50.0, "search": 100.0}
_P99_RISE_TARGET: Final = 1.5

# With a sync of every message all is several times slower, and fewer messages say as much.
_PORTION_WITH_SYNC: Final = 0.25
# A machine that is slow gets fewer rounds, but never fewer than this.
_FEWEST_ROUNDS: Final = 2
_ROUNDS_SECONDS: Final = 110.0
_ROUNDS_SECONDS_WITH_SYNC: Final = 40.0
_GIVE_UP_SECONDS: Final = 360.0

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure on one pair of servers, and for how long."""

    cases: tuple[Case, ...]
    rounds: int
    seconds: float
    portion: float = 1.0


async def measure_cases(rig: Rig, plan: Plan, console: Console) -> Figures:
    """Measure each case once per round."""
    found = {case.name: Measured() for case in plan.cases}
    end = monotonic() + plan.seconds
    for number in range(plan.rounds):
        if number >= _FEWEST_ROUNDS and monotonic() > end:
            break
        for case in plan.cases:
            console.print(f"  round {number + 1}: {case.meaning}", style="dim")
            messages = int(case.messages * plan.portion)
            await measure_case(rig, case, messages, found[case.name])
    return {case.name: _summary(case, found[case.name]) for case in plan.cases}


def _summary(case: Case, found: Measured) -> Figures:
    return {
        "meaning": case.meaning,
        "messages_per_second": _spread(run.per_second for run in found.runs),
        "bare_loop_per_second": _spread(mean(around) for around in found.bare),
        "ratio": _spread(found.ratios),
        "target_ratio": case.target,
        "cpu_us_per_message": _cpu(found.runs),
        "runs": len(found.runs),
    }


def _spread(values: Iterable[float]) -> dict[str, float]:
    found = sorted(values)
    return {"median": median(found), "least": found[0], "most": found[-1]}


def _cpu(runs: list[Throughput]) -> dict[str, float]:
    return {name: median(run.cpu_us[name] for run in runs) for name in runs[0].cpu_us}


async def measure(
    cases: tuple[Case, ...], rounds: int, parts: set[str], console: Console
) -> Figures:
    """Measure everything that was asked for; `parts` are of `_PARTS`."""
    figures: Figures = {}
    with server_directory("bench-") as directory:
        async with open_rig(directory / "default") as rig:
            console.print("NATS with its default sync")
            figures["default_sync"] = await measure_cases(
                rig, Plan(cases, rounds, _ROUNDS_SECONDS), console
            )
            if "latency" in parts:
                console.print("  time to a turn", style="dim")
                figures["latency"] = await measure_latency(rig)
            if "reading" in parts:
                console.print("  pages and searches while messages are routed", style="dim")
                figures["reading"] = await measure_reading(rig)
            if "turns" in parts:
                console.print("  turns that go round", style="dim")
                figures["turns"] = (await measure_turns(rig))._asdict()
        if "sync" in parts:
            async with open_rig(directory / "always", sync_always=True) as rig:
                console.print("NATS with sync_interval: always")
                plan = Plan(cases, _FEWEST_ROUNDS, _ROUNDS_SECONDS_WITH_SYNC, _PORTION_WITH_SYNC)
                figures["sync_always"] = await measure_cases(rig, plan, console)
    return figures


def throughput_table(title: str, figures: Figures) -> Table:
    """Return the ratios with what they were made from."""
    table = Table(title=title, title_justify="left")
    table.add_column("case")
    for name in ("messages/s", "bare loop/s", "ratio", "range", "target", "CPU µs per message"):
        table.add_column(name, justify="right")
    for its in figures.values():
        ratio, target = its["ratio"], its["target_ratio"]
        table.add_row(
            its["meaning"],
            f"{its['messages_per_second']['median']:,.0f}",
            f"{its['bare_loop_per_second']['median']:,.0f}",
            _judged(f"{ratio['median']:.2f}", is_met=target is None or ratio["median"] >= target),
            f"{ratio['least']:.2f} .. {ratio['most']:.2f}",
            "" if target is None else f">= {target:.2f}",
            ", ".join(f"{name} {us:.0f}" for name, us in its["cpu_us_per_message"].items()),
        )
    return table


def latency_table(figures: Figures) -> Table:
    """Return the percentiles, from both points in time."""
    table = Table(title="Time to the notification of a turn, ms", title_justify="left")
    table.add_column("counted from")
    for name in ("p50", "p95", "p99", "max", "target p99"):
        table.add_column(name, justify="right")
    rows = {
        "acknowledgement by the log": "from_acknowledgement_ms",
        "the intended time of sending": "from_intended_send_ms",
    }
    for meaning, key in rows.items():
        its = figures[key]
        is_met = key != "from_acknowledgement_ms" or its["p99"] < P99_TARGET_MS
        table.add_row(
            meaning,
            f"{its['p50']:.1f}",
            f"{its['p95']:.1f}",
            _judged(f"{its['p99']:.1f}", is_met=is_met),
            f"{its['max']:.1f}",
            f"< {P99_TARGET_MS:.0f}" if key == "from_acknowledgement_ms" else "",
        )
    return table


def reading_table(figures: Figures) -> Table:
    """Return how long reads took, and the p99 of routing alone and beside them."""
    table = Table(title="Reads in 10,000 sessions with 200,000 rows, ms", title_justify="left")
    for name in ("what", "p50", "p95", "p99", "max", "target"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for what, target in _READ_TARGETS_MS.items():
        its = figures["reads_ms"][what]
        p95 = _judged(f"{its['p95']:.1f}", is_met=its["p95"] < target)
        shown = (f"{its['p50']:.1f}", p95, f"{its['p99']:.1f}", f"{its['max']:.1f}")
        table.add_row(f"{what}, one page", *shown, f"p95 < {target:.0f}")
    alone, beside = (
        figures[name]["from_acknowledgement_ms"] for name in ("flow_alone", "flow_beside_reads")
    )
    rise = beside["p99"] / alone["p99"]
    for what, its in (("a turn, nobody reads", alone), ("a turn, beside reads", beside)):
        table.add_row(what, *(f"{its[name]:.1f}" for name in ("p50", "p95", "p99", "max")), "")
    judged = _judged(f"{rise:.2f}", is_met=rise < _P99_RISE_TARGET)
    table.add_row("rise of that p99", "", "", judged, "", f"< {_P99_RISE_TARGET}")
    return table


def _judged(text: str, *, is_met: bool) -> str:
    return text if is_met else f"[bold red]{text}[/]"


def show(figures: Figures, console: Console) -> None:
    """Print all tables."""
    titles = {
        "default_sync": "Throughput, NATS with its default sync",
        "sync_always": "Throughput, NATS with sync_interval: always",
    }
    for key, title in titles.items():
        if key in figures:
            console.print(throughput_table(title, figures[key]))
    if "latency" in figures:
        console.print(latency_table(figures["latency"]))
        if missing := figures["latency"]["missing"]:
            console.print(f"[bold red]{missing} turns were never notified[/]")
    if "reading" in figures:
        console.print(reading_table(figures["reading"]))
    if "turns" in figures:
        console.print(f"Turns that went round: {figures['turns']['per_second']:,.0f} per second")


def _about() -> Figures:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }


async def main(arguments: list[str]) -> None:
    """Measure, print and write what the arguments ask for."""
    parser = ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--case", action="append", choices=[case.name for case in CASES])
    parser.add_argument("--part", action="append", choices=[*_PARTS, "none"])
    asked = parser.parse_args(arguments)
    cases = tuple(case for case in CASES if asked.case is None or case.name in asked.case)
    parts = set(_PARTS) if asked.part is None else set(asked.part)
    console = Console()
    about = _about()
    async with asyncio.timeout(_GIVE_UP_SECONDS):
        figures = await measure(cases, asked.rounds, parts, console)
    show(figures, console)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"about": about, **figures}, indent=2) + "\n", "utf-8")
    console.print(f"written to {RESULT}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
