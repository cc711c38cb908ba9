"""Runs of chaos one after the other, each with a seed of its own, until the messages are many.

Usage: `make chaos-long`, or `make chaos-long ARGS="--runs 1 --seed 17"` to see one again.
"""

import argparse
import asyncio
import sys
from collections import Counter
from datetime import timedelta
from time import monotonic

from chatlane.dev.binaries import server_directory
from tests.support.chaos import Outcome, Plan, run_chaos


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="chaos-long", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10, help="how many")
    parser.add_argument("--messages", type=int, default=10_000, help="in each run")
    parser.add_argument("--seed", type=int, default=100, help="of the first run")
    parser.add_argument("--per-second", type=float, default=200, help="messages")
    parser.add_argument("--pause", type=float, default=0.4, help="seconds between two faults")
    return parser.parse_args()


async def _run(plan: Plan) -> Outcome:
    with server_directory() as directory:
        return await run_chaos(directory, plan)


def main() -> int:
    """Run; return 1 when anything went wrong."""
    its = _arguments()
    begin, sent, bad = monotonic(), 0, 0
    faults: Counter[str] = Counter()
    for seed in range(its.seed, its.seed + its.runs):
        pause = timedelta(seconds=its.pause)
        patience = timedelta(seconds=60 + 3 * its.messages / its.per_second)
        plan = Plan(seed, its.messages, its.per_second, pause, patience)
        outcome = asyncio.run(_run(plan))
        print(outcome.report(plan), flush=True)
        sent += outcome.sent
        faults += outcome.faults
        bad += len(outcome.problems)
    seconds = monotonic() - begin
    made = faults.total() - faults["crash point"]
    print(f"{sent} messages, {made} faults, {bad} problems, {seconds:.0f} s: {dict(faults)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
