"""Ways in which messages arrive, each read by the bare loop, by routers, and by the bare loop again."""

from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Final, LiteralString

from tests.benchmarks import existing
from tests.benchmarks.report import costs
from tests.benchmarks.report.figures import Costs, Flow, Spread, Sync
from tests.benchmarks.rig import Rig, Router, Throughput

_CHATS: Final = 2000
# As many turns are in work: each answer takes some batches to get there and back.
_WORKER_SLOTS: Final = 512
# Some batches, whatever portion is asked for: one alone says nothing.
_FEWEST_MESSAGES: Final = 3000
# Of the messages, one part in so many is not counted.
_WARM_UP_PART: Final = 10
# Enough for a bare run; it is made twice for each of the router's.
_BARE_MESSAGES: Final = 10_000

CURSORS_SQL: Final[LiteralString] = """
-- bench: how far the inbound log is read
SELECT id, cursor FROM partitions WHERE log = 'inbound'
"""
TURNS_SQL: Final[LiteralString] = """
-- bench: turns that were begun, each of which is made known
SELECT count(*) FROM turns
"""


@dataclass(frozen=True, slots=True)
class Case:
    """One way in which messages arrive.

    Attributes:
        messages: So many arrive for one router.
        chats: The messages go to so many chats in turn; 0 is a new chat for each.
        stored: Messages are done when so many are in this stream; those that are only put down
            have none, and are done when they are committed.
        is_mixed: They come as in the demo, whatever `profile` and `chats` say.
        is_answered: A worker answers at once.
        fewest: So many arrive at least, whatever portion is taken, and as many as there are chats.
    """

    name: str
    meaning: str
    messages: int
    stored: str | None
    profile: str = "default"
    chats: int = 0
    is_mixed: bool = False
    is_answered: bool = False
    fewest: int = _FEWEST_MESSAGES

    @property
    def agent(self) -> str:
        """Name of the agent that the profile belongs to."""
        return "main" if self.profile == "default" else self.profile

    def messages_for(self, routers: int, portion: float) -> int:
        """Return how many messages arrive: more for several routers, which take some to share."""
        fewest = self.fewest + self.chats
        return max(int(self.messages * portion), fewest) * (1 + routers) // 2


OPENING: Final = Case("opening", "every message opens a session and a turn", 12_000, "TURNS")
BUSY: Final = Case("busy", f"into {_CHATS:,} sessions with a live turn", 24_000, None, chats=_CHATS)
STREAM: Final = Case(
    "stream", f"stream delivery to {_CHATS:,} sessions", 12_000, "ROUTED", "notes", _CHATS
)
CASES: Final = (
    OPENING,
    BUSY,
    STREAM,
    # Worked off so fast that fewer are done before several routers share them.
    Case("demo", "as in the demo", 18_000, None, is_mixed=True, fewest=9_000),
    Case(
        "round-trip", "a turn and its answer for every message", 4000, "OUTBOUND", is_answered=True
    ),
)


@dataclass(frozen=True, slots=True)
class Log:
    """The part of the inbound log that is measured.

    Attributes:
        first: Its first sequence.
        warm_up: So many of the messages are not counted: they fill caches, or open sessions.
        positions: The sequences that each partition has in it, rising.
    """

    first: int
    messages: int
    warm_up: int
    positions: Mapping[int, list[int]]

    def done(self, cursors: Mapping[int, int]) -> int:
        """Return how many messages lie before the cursors of the partitions."""
        return sum(
            bisect_right(sequences, cursors.get(partition, 0))
            for partition, sequences in self.positions.items()
        )


@dataclass(slots=True)
class Measured:
    """All runs of one setup, and of the bare loop right before and right after each."""

    runs: list[Throughput] = field(default_factory=list)
    bare: list[tuple[float, float]] = field(default_factory=list)
    costs: list[Costs] = field(default_factory=list)

    def as_flow(
        self, case: Case, sync: Sync, routers: int, existing_: int = 0, active: int = 0
    ) -> Flow:
        """Return the summary of at least one run."""
        around = [mean(pair) for pair in self.bare]
        rates = [run.per_second for run in self.runs]
        return Flow(
            case=case.name,
            meaning=case.meaning,
            sync=sync,
            routers=routers,
            existing=existing_,
            active=active,
            per_second=Spread.of(rates),
            bare_per_second=Spread.of(around),
            ratio=Spread.of(rate / bare for rate, bare in zip(rates, around, strict=True)),
            costs=Costs.of(self.costs),
            runs=len(rates),
        )


async def write_log(rig: Rig, case: Case, messages: int) -> Log:
    """Publish the messages of a case, which nobody reads yet."""
    if case.is_mixed:
        arguments: tuple[object, ...] = ("--mix",)
    else:
        arguments = ("--profile", case.profile, "--chats", case.chats or messages)
    # The first message to each chat opens its session; that is another case. Answers come after most
    # sessions are open: what opened them belongs to the round trip, however many there are.
    warm_up = 0 if case.is_answered else max(messages // _WARM_UP_PART, case.chats)
    return await _filled(rig, messages, warm_up, *arguments)


async def write_log_to_existing(
    rig: Rig, case: Case, messages: int, sessions: int, active: int
) -> Log:
    """Publish messages to sessions that were made before.

    Args:
        active: They go to so many of them, which are spread evenly; 0 is any.
    """
    chosen = active or sessions
    chats = ("--prefix", existing.CHAT_PREFIX, "--chats", chosen, "--stride", sessions // chosen)
    # Other message ids in each round: the same would be known.
    first = ("--first", await rig.last_sequence("INBOUND"))
    warm_up = messages // _WARM_UP_PART
    return await _filled(
        rig, messages, warm_up, "--profile", case.profile, "--random", *chats, *first
    )


async def _filled(rig: Rig, messages: int, warm_up: int, *arguments: object) -> Log:
    first = await rig.last_sequence("INBOUND") + 1
    partitions = ("--partitions", rig.partitions)
    filling = (rig.nats.url, messages, *partitions, *rig.speaking(), *arguments)
    report = await rig.run("generator", "fill", *filling)
    positions = {int(partition): its for partition, its in report["positions"].items()}
    return Log(first, messages, warm_up, positions)


async def measure(rig: Rig, case: Case, log: Log, routers: int, into: Measured) -> None:
    """Read a log with the bare loop, with so many routers, and with the bare loop again."""
    bare = partial(bare_rate, rig, log)
    before = await bare()
    begin = await costs.counted(rig)
    async with _request_handler(rig, case), rig.routers(routers) as running:
        run = await throughput(rig, case, log, running)
        batches = await costs.batches(running)
    end = await costs.counted(rig)
    after = await bare()
    into.runs.append(run)
    into.bare.append((before, after))
    into.costs.append(
        Costs(
            cpu_us=run.cpu_us,
            commits=run.commits,
            syncs=end.syncs_per_commit(begin),
            batch=log.messages / batches,
        )
    )


async def throughput(rig: Rig, case: Case, log: Log, running: Sequence[Router]) -> Throughput:
    """Return how fast routers take the messages of a log that count."""
    return await rig.throughput(running, counter(rig, case, log), log.warm_up, log.messages)


async def bare_rate(rig: Rig, log: Log) -> float:
    """Return how many messages of a log the bare loop takes in a second."""
    messages = min(log.messages, _BARE_MESSAGES)
    report = await rig.run("bare_loop", rig.nats.url, "drain", log.first, messages)
    return float(report["per_second"])


@asynccontextmanager
async def _request_handler(rig: Rig, case: Case) -> AsyncIterator[None]:
    """Run a worker that answers at once, where the case has one."""
    if not case.is_answered:
        yield
        return
    async with rig.chatlane("echo-worker", "--slots", str(_WORKER_SLOTS)):
        yield


def counter(rig: Rig, case: Case, log: Log) -> Callable[[], Awaitable[int]]:
    """Return what tells how many messages of a log are done."""
    if case.stored is not None:
        return partial(rig.stored, case.stored)

    async def committed() -> int:
        done = log.done({its["id"]: its["cursor"] for its in await rig.database.fetch(CURSORS_SQL)})
        # What the last batch decided must be published as well.
        if done == log.messages and case.is_mixed:
            done -= await rig.value(TURNS_SQL) - await rig.stored("TURNS")
        return done

    return committed
