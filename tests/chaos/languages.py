"""A Python and a TypeScript worker of one agent share its turns while processes are killed.

Usage: `make language-chaos`, or with `ARGS="--messages 500 --seed 17"`. The judge of the demo decides: it
exits with 0 only if every message was answered once and in order, and both workers had turns.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from chatlane_servers.binaries import server_directory
from tests.support.chaos import Outcome, Plan, run_chaos
from tests.support.typescript import build_client


def plan(messages: int, package: Path, seed: int = 1) -> Plan:
    """Return a run with one kill or freeze for each 100 messages.

    Args:
        messages: At least so many are written.
        package: The built TypeScript client.
        seed: Of all chances.
    """
    return Plan(
        seed=seed,
        messages=messages,
        faults=max(6, messages // 100),
        per_second=150,
        pause=timedelta(milliseconds=600),
        messages_per_fault=60,
        most_unheard=300,
        patience=timedelta(minutes=10),
        longest_wait=timedelta(seconds=90),
        weights={"kill": 4, "freeze": 1},
        points=(),
        think=timedelta(milliseconds=50),
        talkers=0,
        typescript=package,
    )


def turns_of(directory: Path) -> Counter[str]:
    """Return how many attempts at turns each worker began in a run."""
    lines = (directory / "event_log.jsonl").read_text("utf-8").splitlines()
    events = (json.loads(line) for line in lines)
    return Counter(event["actor"] for event in events if event["op"] == "turn_began")


async def _run(messages: int, seed: int) -> tuple[Outcome, Counter[str]]:
    with TemporaryDirectory() as built, server_directory() as directory:
        package = build_client(Path(built))
        outcome = await run_chaos(directory, plan(messages, package, seed))
        return outcome, turns_of(directory)


def main() -> int:
    """Run once and print what it came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    outcome, turns = asyncio.run(_run(given.messages, given.seed))
    shared = ", ".join(f"{name} {count}" for name, count in sorted(turns.items()))
    sys.stdout.write(f"{outcome.summary()}\nturns: {shared}\n")
    sys.stdout.writelines(f"{problem}\n" for problem in outcome.problems)
    return int(bool(outcome.problems) or turns.keys() != {"worker-1", "worker-2"})


if __name__ == "__main__":
    sys.exit(main())
