"""Runs of chaos one after the other, each with a seed of its own, until the messages are many.

What each run came to is a line in `var/chaos-long.jsonl`. Runs that are there already are not
made again, so that a series which was interrupted goes on where it was; `--fresh` begins anew. Of a
run with findings everything is kept in `var/chaos-long/`: the event log, the logs of all processes, the data
of both servers.

Usage: `make chaos-long`, or `make chaos-long ARGS="--runs 1 --seed 17"` to see one again.
"""

import argparse
import asyncio
import json
import logging
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Final

from chatlane_servers.binaries import server_directory
from tests.support.chaos import Outcome, Plan, run_chaos
from tests.support.nemesis import CRASH_POINT

RESULTS: Final = Path("var/chaos-long.jsonl")
_EVIDENCE: Final = Path("var/chaos-long")
_HEAD: Final = (
    f"{'seed':>6} {'messages':>9} {'faults':>6} {'crash points':>12} {'slowest':>8} {'held back':>9} "
    f"{'settled':>8} {'took':>6} {'memory':>7} {'findings':>8}"
)


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to, as a line of the file.

    Attributes:
        plan: What the seed does not say; results of another plan are not counted.
        faults: By kind; crash points that were reached are counted beside the faults.
        slowest: The longest wait for an answer, in seconds.
        held_back: For how many seconds people could not write.
        memory: The most that the supervisor, with the checker, has taken up so far, in MiB.
    """

    seed: int
    plan: dict[str, float]
    sent: int
    faults: dict[str, int]
    ended: int
    slowest: float
    held_back: float
    settled_after: float
    took: float
    memory: int
    problems: list[str]

    @property
    def fault_count(self) -> int:
        """How many faults were made."""
        return sum(count for kind, count in self.faults.items() if kind != CRASH_POINT)

    def row(self) -> str:
        """Return a row of the table."""
        return (
            f"{self.seed:>6} {self.sent:>9,} {self.fault_count:>6} "
            f"{self.faults.get(CRASH_POINT, 0):>12} {self.slowest:>6.1f} s "
            f"{self.held_back:>7.0f} s {self.settled_after:>6.1f} s {self.took:>4.0f} s "
            f"{self.memory:>3} MiB {len(self.problems):>8}"
        )


def _arguments() -> argparse.Namespace:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="chaos-long", description=lines[0])
    parser.add_argument("--runs", type=int, default=40, help="how many")
    parser.add_argument("--messages", type=int, default=25_000, help="in each run")
    parser.add_argument("--seed", type=int, default=100, help="of the first run")
    parser.add_argument("--per-second", type=float, default=400, help="messages")
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two faults")
    parser.add_argument(
        "--longest-wait", type=float, default=50, help="seconds; more on a machine that is shared"
    )
    parser.add_argument("--fresh", action="store_true", help="forget what was reached before")
    return parser.parse_args()


def _plan(its: argparse.Namespace, seed: int) -> Plan:
    return Plan(
        seed,
        its.messages,
        its.per_second,
        timedelta(seconds=its.pause),
        # A worker that is hit has turns in work.
        think=timedelta(milliseconds=100),
        slots=16,
        # A machine that is shared may be several times slower.
        patience=timedelta(seconds=60 + 20 * its.messages / its.per_second),
        settled_within=timedelta(minutes=2),
        longest_wait=timedelta(seconds=its.longest_wait),
    )


def _known(path: Path, seeds: Iterable[int], plan: dict[str, float]) -> Iterator[Result]:
    """Yield what an earlier call has reached of this series."""
    wanted = set(seeds)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    for line in lines:
        result = Result(**json.loads(line))
        if result.plan == plan and result.seed in wanted:
            wanted.discard(result.seed)
            yield result


async def _outcome(plan: Plan) -> Outcome:
    """Run; what is to be looked at afterwards is kept."""
    with server_directory() as directory:
        outcome: Outcome | None = None
        try:
            outcome = await run_chaos(directory, plan)
            return outcome
        finally:
            if outcome is None or outcome.problems:
                kept = _EVIDENCE / f"seed-{plan.seed}"
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(directory, kept)


def _result(its: argparse.Namespace, seed: int) -> Result:
    begin = monotonic()
    outcome = asyncio.run(_outcome(_plan(its, seed)))
    return Result(
        seed=seed,
        plan=_varied(its),
        sent=outcome.sent,
        faults=dict(outcome.faults),
        ended=len(outcome.ended),
        slowest=round(outcome.slowest, 1),
        held_back=round(outcome.held_back, 1),
        settled_after=round(outcome.settled_after, 1),
        took=round(monotonic() - begin, 1),
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        problems=list(outcome.problems),
    )


def _varied(its: argparse.Namespace) -> dict[str, float]:
    return {"messages": its.messages, "per_second": its.per_second, "pause": its.pause}


def _append(path: Path, result: Result) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(asdict(result))}\n")


def _total(results: Iterable[Result]) -> str:
    """Return what all runs together came to."""
    its = list(results)
    faults: Counter[str] = Counter()
    for result in its:
        faults.update(result.faults)
    findings = [problem for result in its for problem in result.problems]
    kinds = Counter(problem.partition(":")[0] for problem in findings)
    figures = (
        f"{sum(it.sent for it in its):,} messages, {sum(it.fault_count for it in its):,} faults, "
        f"{len(findings)} findings in {len(its)} runs, {sum(it.took for it in its):.0f} s"
    )
    return f"{figures}\nfaults: {_counted(faults)}\nfindings: {_counted(kinds) or 'none'}"


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))


def main() -> int:
    """Run; return 1 when anything went wrong."""
    # That servers go away is no news here.
    logging.disable(logging.WARNING)
    its = _arguments()
    seeds = range(its.seed, its.seed + its.runs)
    if its.fresh:
        RESULTS.unlink(missing_ok=True)
    known = {it.seed: it for it in _known(RESULTS, seeds, _varied(its))}
    results: list[Result] = []
    print(_HEAD, flush=True)
    for seed in seeds:
        result = known.get(seed)
        if result is None:
            result = _result(its, seed)
            _append(RESULTS, result)
        results.append(result)
        print(result.row(), *(f"    {line[:200]}" for line in result.problems[:10]), sep="\n")
        sys.stdout.flush()
    print(_total(results))
    return 1 if any(it.problems for it in results) else 0


if __name__ == "__main__":
    sys.exit(main())
