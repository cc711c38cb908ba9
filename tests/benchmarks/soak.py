"""Watches a router over 200,000 messages to 50,000 chats, turns and answers included: `make soak`.

Memory, open descriptors and asyncio tasks are read whenever everything sent so far is answered.
After a warm-up, in which every chat has written once, they must stay where they are.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Final, LiteralString, NamedTuple

from rich.console import Console

from chatlane_servers.binaries import server_directory
from chatlane_servers.programs import Program
from tests.benchmarks.rig import Rig, open_rig

RESULT: Final = Path("var/soak.json")

MESSAGES: Final = 200_000
CHATS: Final = 50_000
_PER_STAGE: Final = 10_000
_WORKER_SLOTS: Final = 64
_MEMORY_TOLERANCE: Final = 0.10
# Connections of the pool come and go, and so do the tasks that wait for something once.
_DESCRIPTORS_MORE: Final = 8
_TASKS_MORE: Final = 8
# A burst may take the highest mark of memory a moment to settle.
_SETTLE: Final = timedelta(seconds=1.5)
_GIVE_UP: Final = timedelta(minutes=30)

UNANSWERED_SQL: Final[LiteralString] = """
-- soak: messages that are not answered yet, or answers that are not sent
SELECT $1 - (SELECT coalesce(sum(user_messages), 0)::bigint FROM sessions)
    + (SELECT count(*) FROM turns WHERE state IN ('ready', 'claimed'))
    + (SELECT count(*) FROM outbox)
"""


class Reading(NamedTuple):
    """What the router had when everything so far was answered."""

    messages: int
    rss_bytes: int
    descriptors: int
    tasks: int


async def soak(rig: Rig, messages: int, chats: int, console: Console) -> list[Reading]:
    """Send everything in stages and return a reading after each."""
    watched = rig.script("watched_router", rig.config, user="router")
    readings: list[Reading] = []
    async with rig.running(watched), rig.chatlane("echo-worker", "--slots", str(_WORKER_SLOTS)):
        for sent in range(0, messages, _PER_STAGE):
            count = min(_PER_STAGE, messages - sent)
            series = ("--chats", chats, "--prefix", "series", "--first", sent)
            await rig.run("generator", "fill", rig.nats.url, count, *rig.speaking(), *series)
            await _until_answered(rig, watched, sent + count)
            readings.append(await _read(watched, sent + count))
            console.print(_line(readings[-1]))
    return readings


async def _until_answered(rig: Rig, router: Program, sent: int) -> None:
    async def answered() -> int:
        return sent - int(await rig.database.fetchval(UNANSWERED_SQL, sent))

    await rig.until(router, answered, sent, patience=_GIVE_UP)


async def _read(router: Program, sent: int) -> Reading:
    await asyncio.sleep(_SETTLE.total_seconds())
    lines = router.log_path.read_text("utf-8").splitlines()
    last = next(line for line in reversed(lines) if line.startswith('{"rss_bytes"'))
    return Reading(sent, **json.loads(last))


def _line(reading: Reading) -> str:
    megabytes = reading.rss_bytes / 2**20
    return (
        f"{reading.messages:>9,} messages: {megabytes:6.1f} MiB, "
        f"{reading.descriptors} descriptors, {reading.tasks} tasks"
    )


def problems(readings: Sequence[Reading], warm_up: int) -> list[str]:
    """Return in words what did not stay flat once every chat had written."""
    cold = [one for one in readings if one.messages <= warm_up]
    warm = [one for one in readings if one.messages >= warm_up]
    before = warm[0]
    checks = (
        (
            "memory",
            all(
                abs(one.rss_bytes - before.rss_bytes) <= _MEMORY_TOLERANCE * before.rss_bytes
                for one in warm
            ),
        ),
        (
            "descriptors",
            warm[-1].descriptors <= max(one.descriptors for one in cold) + _DESCRIPTORS_MORE,
        ),
        ("tasks", warm[-1].tasks <= max(one.tasks for one in cold) + _TASKS_MORE),
    )
    return [name for name, is_flat in checks if not is_flat]


async def main(arguments: list[str]) -> int:
    """Soak, print and write; return the exit code."""
    parser = ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--chats", type=int, default=CHATS)
    asked = parser.parse_args(arguments)
    console = Console()
    begin = perf_counter()
    with server_directory("soak-") as directory:
        async with open_rig(directory / "rig") as rig:
            readings = await soak(rig, asked.messages, asked.chats, console)
    found = problems(readings, asked.chats)
    report = {
        "messages": asked.messages,
        "chats": asked.chats,
        "seconds": round(perf_counter() - begin, 1),
        "readings": [one._asdict() for one in readings],
        "not_flat": found,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    verdict = f"[bold red]not flat: {', '.join(found)}[/]" if found else "[bold green]flat[/]"
    console.print(f"{verdict}, written to {RESULT}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
