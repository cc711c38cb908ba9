"""Measures routers against a bare loop over NATS, and against others: `make bench`.

Every figure is a ratio to what one Python process does on the same machine, in the same run and
on the same messages, so that it says something about the router and little about the machine.
Runs alternate (bare loop, routers, bare loop), and what a run is compared with are the bare runs
right before and right after it.
"""

import asyncio
import os
import platform
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Final

from rich.console import Console

from chatlane_servers.binaries import server_directory
from chatlane_servers.programs import cancel_on_stop_signals
from tests.benchmarks import cases, existing, live_turns
from tests.benchmarks.cases import BUSY, CASES, STREAM, Case, Measured
from tests.benchmarks.latencies import RATES, measure_latency, measure_reading
from tests.benchmarks.others import (
    NAIVE_CASES,
    NAIVE_ROUTERS,
    REFERENCE_SESSIONS,
    measure_naive,
    measure_reference,
)
from tests.benchmarks.report import tables
from tests.benchmarks.report.figures import Failure, Results, Sync
from tests.benchmarks.report.plots import draw
from tests.benchmarks.rig import Rig, open_rig

RESULT: Final = Path("var/bench.json")
PLOTS: Final = Path("var/plots")
DOCUMENT: Final = Path("docs/benchmarks.md")
DOCUMENT_PLOTS: Final = Path("docs/plots")
PARTS: Final = ("cases", "existing", "naive", "latency", "live", "reading", "reference", "sync")
ROUTERS: Final = (1, 2, 4)
SESSIONS: Final = (1000, 100_000, 1_000_000)
ROUNDS: Final = 3
# Both deliveries, messages into conversations that are there.
_EXISTING_CASES: Final = (BUSY, STREAM)
# As many of the sessions that are there get messages: the same traffic, whatever lies beside it.
_ACTIVE: Final = 1000
# With a sync of every message all is several times slower, and fewer messages say as much.
_PORTION_WITH_SYNC: Final = 0.2
# More routers than that only wait for the same disk.
_MOST_ROUTERS_WITH_SYNC: Final = 2
_GIVE_UP_SECONDS: Final = 3600.0
# Of the table in a file.
_WIDTH: Final = 220


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        portion: Of the messages and seconds of everything.
        has_users: NATS has users with accounts of their own.
    """

    parts: frozenset[str]
    cases: tuple[Case, ...]
    routers: tuple[int, ...]
    sessions: tuple[int, ...]
    rounds: int
    portion: float
    has_users: bool = True


class Bench:
    """Measures one part of a plan after another.

    What fails is told and put down, and the rest is measured: a run is long.
    """

    def __init__(self, plan: Plan, results: Results, console: Console) -> None:
        self._plan = plan
        self._results = results
        self._console = console
        self._begin = monotonic()

    async def run(self) -> None:
        """Measure everything that can be."""
        parts = self._plan.parts
        with server_directory("bench-") as directory:
            if parts - {"sync"}:
                await self._succeeds("sync default", self._measure_default(directory / "default"))
            if "sync" in parts:
                await self._succeeds("sync always", self._measure_always(directory / "always"))

    async def _measure_default(self, directory: Path) -> None:
        steps = {
            "naive": self._naive,
            "latency": self._latencies,
            "live": self._live_turns,
            "reading": self._reading,
            "reference": self._reference,
            "existing": self._existing,
        }
        async with open_rig(directory, has_users=self._plan.has_users) as rig:
            self._results.about["huge pages"] = rig.huge_pages
            if "cases" in self._plan.parts:
                await self._cases(rig, "default")
            for part, step in steps.items():
                if part in self._plan.parts:
                    await self._succeeds(part, step(rig))

    async def _measure_always(self, directory: Path) -> None:
        has_users = self._plan.has_users
        async with open_rig(directory, sync_always=True, has_users=has_users) as rig:
            await self._cases(rig, "always")

    async def _succeeds(self, what: str, step: Coroutine[object, object, None]) -> bool:
        """Take a step; where it fails say so, put it down, and return False."""
        try:
            await step
        except Exception as error:  # noqa: BLE001 - whatever it is, the rest can be measured
            self._console.print_exception(max_frames=6)
            self._results.failures.append(Failure(what=what, error=type(error).__name__))
            return False
        finally:
            self._results.write(RESULT)
        return True

    async def _cases(self, rig: Rig, sync: Sync) -> None:
        portion = self._plan.portion * (_PORTION_WITH_SYNC if sync == "always" else 1.0)
        most = _MOST_ROUTERS_WITH_SYNC if sync == "always" else max(self._plan.routers)
        counts = [routers for routers in self._plan.routers if routers <= most]
        setups = [(case, routers) for case in self._plan.cases for routers in counts]
        found = {setup: Measured() for setup in setups}

        async def measure_once(case: Case, routers: int) -> None:
            await rig.reset()
            log = await cases.write_log(rig, case, case.messages_for(routers, portion))
            await cases.measure(rig, case, log, routers, found[case, routers])

        try:
            for number in range(1, self._plan.rounds + 1):
                for case, routers in list(setups):
                    what = f"{case.name}, {routers} router(s), sync {sync}"
                    self._tell(f"round {number}: {what}")
                    # What failed once most likely fails again, after as long a time.
                    if not await self._succeeds(what, measure_once(case, routers)):
                        setups.remove((case, routers))
        finally:
            self._results.flows += [
                its.as_flow(case, sync, routers)
                for (case, routers), its in found.items()
                if its.runs
            ]

    async def _existing(self, rig: Rig) -> None:
        for sessions in self._plan.sessions:
            for case in (case for case in _EXISTING_CASES if case in self._plan.cases):
                what = f"{case.name}, among {sessions:,} sessions"
                await self._succeeds(what, self._among(rig, case, sessions))

    async def _among(self, rig: Rig, case: Case, sessions: int) -> None:
        await rig.reset()
        self._tell(f"making {sessions:,} sessions for {case.name}")
        await existing.fill(rig.database, sessions, case.agent)
        found = {active: Measured() for active in (_ACTIVE, 0) if active <= sessions}
        for number in range(1, self._plan.rounds + 1):
            self._tell(f"round {number}: {case.name}, among {sessions:,} sessions")
            for active, its in found.items():
                await rig.empty_outputs()
                messages = case.messages_for(1, self._plan.portion)
                log = await cases.write_log_to_existing(rig, case, messages, sessions, active)
                await cases.measure(rig, case, log, 1, its)
        for active, its in found.items():
            self._results.flows.append(its.as_flow(case, "default", 1, sessions, active))

    async def _naive(self, rig: Rig) -> None:
        plan = self._plan
        for case in (case for case in NAIVE_CASES if case in plan.cases):
            for routers in (count for count in NAIVE_ROUTERS if count in plan.routers):
                self._tell(f"{case.name}, {routers} router(s) beside the naive worker")
                found = await measure_naive(rig, case, routers, plan.rounds, plan.portion)
                self._results.naive.append(found)

    async def _latencies(self, rig: Rig) -> None:
        for rate in RATES:
            self._tell(f"time to a turn, {rate} messages a second")
            self._results.latencies.append(await measure_latency(rig, rate, self._plan.portion))

    async def _live_turns(self, rig: Rig) -> None:
        for turns, per_second in live_turns.RATES:
            self._tell(f"{turns:,} live turns with {per_second:,} pieces a second")
            found = await live_turns.measure_live_turns(rig, turns, per_second, self._plan.portion)
            self._results.live_turns.append(found)

    async def _reading(self, rig: Rig) -> None:
        self._tell("pages and searches while messages are routed")
        self._results.reading = await measure_reading(rig, self._plan.portion)

    async def _reference(self, rig: Rig) -> None:
        for sessions in REFERENCE_SESSIONS:
            self._tell(f"the reference with {sessions:,} sessions")
            found = await measure_reference(rig, sessions, self._plan.portion)
            self._results.reference.append(found)

    def _tell(self, words: str) -> None:
        minutes, seconds = divmod(int(monotonic() - self._begin), 60)
        self._console.print(f"  {minutes:3}:{seconds:02} {words}", style="dim", highlight=False)


def parser() -> ArgumentParser:
    """Return what reads the arguments; without any, everything is measured."""
    arguments = ArgumentParser(prog="make bench", description=__doc__)
    arguments.add_argument("--part", action="append", choices=PARTS)
    arguments.add_argument("--case", action="append", choices=[case.name for case in CASES])
    arguments.add_argument("--routers", action="append", type=int)
    arguments.add_argument("--sessions", action="append", type=int)
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    arguments.add_argument("--portion", type=float, default=1.0, help="of messages and seconds")
    arguments.add_argument(
        "--without-users", action="store_true", help="NATS has one account, open to everybody"
    )
    arguments.add_argument(
        "--again", action="store_true", help="measure nothing: show what the last run measured"
    )
    arguments.add_argument(
        "--markdown",
        action="store_true",
        help=f"write the figures into {DOCUMENT} and the plots into {DOCUMENT_PLOTS}",
    )
    return arguments


def plan_of(asked: Namespace) -> Plan:
    """Return what is to be measured."""
    return Plan(
        parts=frozenset(asked.part or PARTS),
        cases=tuple(its for its in CASES if asked.case is None or its.name in asked.case),
        routers=tuple(asked.routers or ROUTERS),
        sessions=tuple(asked.sessions or SESSIONS),
        rounds=asked.rounds,
        portion=asked.portion,
        has_users=not asked.without_users,
    )


def about() -> dict[str, str]:
    """Return on what it is measured, and when."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="minutes"),
        "Python": platform.python_version(),
        "processors": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


async def measure(plan: Plan, command: str, console: Console) -> Results:
    """Measure; what was measured is written even when the rest fails or takes too long."""
    results = Results(command=command, about=about())
    begin = monotonic()
    try:
        async with asyncio.timeout(_GIVE_UP_SECONDS):
            await Bench(plan, results, console).run()
    except (TimeoutError, asyncio.CancelledError) as error:
        after = f"what came after {(monotonic() - begin) / 60:.0f} minutes"
        results.failures.append(Failure(what=after, error=type(error).__name__))
        if isinstance(error, asyncio.CancelledError):
            raise
    finally:
        results.about["minutes"] = f"{(monotonic() - begin) / 60:.1f}"
        results.write(RESULT)
        console.print(f"written to {RESULT}")
    return results


async def main(arguments: list[str]) -> int:
    """Measure, print, draw and write what the arguments ask for; return 1 where a part failed."""
    asked = parser().parse_args(arguments)
    cancel_on_stop_signals()
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    if asked.again:
        results = Results.read(RESULT)
    else:
        words = [word for word in arguments if word != "--markdown"]
        command = f'make bench ARGS="{" ".join(words)}"' if words else "make bench"
        results = await measure(plan_of(asked), command, console)
    console.print(tables.as_table(results))
    plots = draw(results, DOCUMENT_PLOTS if asked.markdown else PLOTS)
    console.print(f"drawn: {', '.join(map(str, plots))}")
    if asked.markdown:
        tables.paste(DOCUMENT, results, plots)
    return 1 if results.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
