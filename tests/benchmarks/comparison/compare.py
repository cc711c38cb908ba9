"""Compares chatlane with other ways to build the same bot: `make comparison`.

Each system gets the messages of the demo's chat day through the same adapter, with the same faults at
the same places, and then a burst. What counts is what people see in their chats.
"""

import asyncio
import json
import logging
import os
import platform as machine
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Final

from rich.console import Console
from rich.table import Table

from chatlane_devkit.scenario.feed import Cue, Publication, Step, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE
from chatlane_servers.binaries import server_directory
from chatlane_servers.conditions import until
from tests.benchmarks.comparison.chat_platform import (
    ChatPlatform,
    Message,
    Outcome,
    open_chat_platform,
)
from tests.benchmarks.comparison.systems import CANDIDATES, ROOT, THINK, Candidate, System

RESULT: Final = Path("var/comparison.json")
DOCUMENT: Final = ROOT / "docs" / "comparison.md"
BEGIN: Final = '<!-- figures: written by `make comparison ARGS="--markdown"` -->'
END: Final = "<!-- end of the figures -->"
PER_SECOND: Final = 10.0
# Every fifth chat writes, so that a small machine is not the limit.
_SHARE: Final = 5
BURST: Final = 300
_BURST_CHATS: Final = 100
_WARM_UP: Final = "warm-up"
_START_PATIENCE: Final = timedelta(seconds=90)
# A system that shows no answer for so long will not show another one: the longest pauses between two
# tries are a minute.
_PATIENCE: Final = timedelta(seconds=70)
# Messages that are written so long before or after a kill meet it.
_MARGIN: Final = 3.0


@dataclass(frozen=True, slots=True)
class Result:
    """What was measured of a system.

    Attributes:
        usual: Median of the seconds that people waited for an answer.
        recovery: By fault, the longest wait in seconds of those who met it and got an answer.
        per_second: Messages of the burst that were answered in a second.
        restarts: How often one of its programs ended by itself.
        lines: Lines of code that its user writes.
    """

    name: str
    outcome: Outcome
    usual: float
    recovery: dict[str, float]
    per_second: float
    restarts: int
    lines: int
    servers: str


def messages_of(steps: tuple[Step, ...]) -> Iterator[tuple[Message, str] | str]:
    """Yield messages of a chat day with their texts, and the cues of its faults.

    Messages that only one of several platforms can express are left out. A repeat of a message is the
    same message once more.
    """
    chats: dict[str, str] = {}
    written: set[Message] = set()
    for step in steps:
        if isinstance(step, Cue):
            yield step.name
        if not isinstance(step, Publication) or step.expect not in {"accepted", "duplicate"}:
            continue
        address = step.address
        place = json.dumps([address.platform, address.account, address.chat, address.sender])
        chat = chats.setdefault(place, f"chat-{len(chats) + 1}")
        if list(chats).index(place) % _SHARE:
            continue
        message = Message(chat, f"{chat}-{step.message_id or step.nats_id}")
        if (step.expect == "duplicate") == (message in written):
            written.add(message)
            yield message, step.text


async def measure(
    candidate: Candidate, steps: tuple[Step, ...], *, per_second: float, burst: int
) -> Result:
    """Start a system, play the chat day and the burst, and return what people saw."""
    with server_directory() as directory:
        async with (
            open_chat_platform() as platform,
            candidate.open(directory, platform.url) as system,
        ):
            platform.write(Message(_WARM_UP, "first"), "hello")
            await until(lambda: _is_answered(platform), _START_PATIENCE)
            began_at = monotonic()
            kills = await _play(platform, system, steps, per_second)
            await _until_quiet(platform)
            stuck = await _stuck_chats(platform)
            outcome = platform.outcome(stuck)
            ended_at = monotonic()
            waits = platform.waits(began_at, ended_at)
            recovery = {
                cue: max(platform.waits(at - _MARGIN, at + _MARGIN), default=0.0)
                for cue, at in kills.items()
            }
            rate = await _burst(platform, burst) if burst else 0.0
    return Result(
        name=candidate.name,
        outcome=outcome,
        usual=median(waits),
        recovery=recovery,
        per_second=rate,
        restarts=system.restarts,
        lines=candidate.lines,
        servers=candidate.servers,
    )


async def _is_answered(platform: ChatPlatform) -> bool:
    return not platform.unanswered


async def _play(
    platform: ChatPlatform, system: System, steps: tuple[Step, ...], per_second: float
) -> dict[str, float]:
    """Write the messages of the day; return when each fault began."""
    kills: dict[str, float] = {}
    next_at = monotonic()
    async with asyncio.TaskGroup() as faults:
        for item in messages_of(steps):
            if isinstance(item, str):
                kills[item] = monotonic()
                faults.create_task(system.happen(item))
                continue
            next_at += 1 / per_second
            await asyncio.sleep(max(0.0, next_at - monotonic()))
            platform.write(*item)
    return kills


async def _until_quiet(platform: ChatPlatform) -> None:
    """Wait until all is answered, or nothing has been for a long time."""
    begin = monotonic()

    async def is_quiet() -> bool:
        since = max(platform.last_answer_at, begin)
        return not platform.unanswered or monotonic() - since > _PATIENCE.total_seconds()

    await until(is_quiet, timedelta(minutes=10))


async def _stuck_chats(platform: ChatPlatform) -> set[str]:
    """Write to each chat with an unanswered message; return those that do not answer."""
    asked = {message.chat for message in platform.unanswered}
    probes = {chat: Message(chat, f"{chat}-probe") for chat in sorted(asked)}
    for message in probes.values():
        platform.write(message, "are you there?")

    async def all_answer() -> bool:
        return not set(probes.values()) & set(platform.unanswered)

    with suppress(TimeoutError):
        await until(all_answer, _PATIENCE)
    return {message.chat for message in platform.unanswered if message in probes.values()}


async def _burst(platform: ChatPlatform, count: int) -> float:
    """Write messages to many chats at once; return how many were answered in a second."""
    begin = monotonic()
    messages = [Message(f"burst-{n % _BURST_CHATS}", f"burst-{n}") for n in range(count)]
    for message in messages:
        platform.write(message, "all at once")

    async def are_answered() -> bool:
        return not set(messages) & set(platform.unanswered)

    with suppress(TimeoutError):
        await until(are_answered, timedelta(minutes=3))
    answered = count - len(set(messages) & set(platform.unanswered))
    return answered / (platform.last_answer_at - begin)


HEADINGS: Final = (
    "",
    "lost",
    "doubled",
    "reordered",
    "forgotten",
    "stuck chats",
    "usual wait",
    "longest wait at each fault",
    "burst, messages/s",
    "lines",
    "servers",
)


def cells(result: Result) -> tuple[str, ...]:
    """Return a result as cells under the headings."""
    its = result.outcome
    return (
        result.name,
        *map(str, (its.lost, its.doubled, its.reordered, its.forgotten, its.stuck)),
        f"{result.usual:.2f} s",
        ", ".join(f"{seconds:.1f} s" for seconds in result.recovery.values()),
        f"{result.per_second:.0f}",
        str(result.lines),
        result.servers,
    )


def document(results: list[Result]) -> str:
    """Return the results as Markdown."""
    names = ("restate-sdk", "dbos", "langgraph", "langgraph-checkpoint-postgres")
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in names)
    load = os.getloadavg()[1]
    setting = (
        f"{os.cpu_count()} cores with a load of {load:.0f}, "
        f"Python {machine.python_version()}, {versions}. {results[0].outcome.messages} messages, "
        f"{PER_SECOND:.0f} a second, {THINK.total_seconds() * 1000:.0f} ms of thinking."
    )
    lines = [
        setting,
        "",
        f"| {' | '.join(HEADINGS)} |",
        f"|{'---|' * len(HEADINGS)}",
        *(f"| {' | '.join(cells(result))} |" for result in results),
    ]
    return "\n".join(lines)


def _write_document(results: list[Result]) -> None:
    text = DOCUMENT.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{document(results)}\n\n{END}{after}", "utf-8")


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    names = [candidate.name for candidate in CANDIDATES]
    parser.add_argument("--only", action="append", choices=names, help="measure this system alone")
    parser.add_argument("--per-second", type=float, default=PER_SECOND, metavar="MESSAGES")
    parser.add_argument("--burst", type=int, default=BURST, metavar="MESSAGES")
    parser.add_argument("--markdown", action="store_true", help=f"write {DOCUMENT.name}")
    return parser.parse_args()


def main() -> None:
    """Measure, print a table, and write JSON."""
    arguments = _arguments()
    logging.getLogger("chatlane_client").setLevel(logging.ERROR)
    steps = read_feed(SCENARIO_FILE)
    results = []
    console = Console()
    for candidate in CANDIDATES:
        if arguments.only and candidate.name not in arguments.only:
            continue
        work = measure(candidate, steps, per_second=arguments.per_second, burst=arguments.burst)
        results.append(asyncio.run(work))
        console.print(" | ".join(cells(results[-1])), highlight=False)
    table = Table(*HEADINGS)
    for result in results:
        table.add_row(*cells(result))
    console.print(table)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps([asdict(result) for result in results], indent=2), "utf-8")
    if arguments.markdown:
        _write_document(results)


if __name__ == "__main__":
    main()
