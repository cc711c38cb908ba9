"""What was measured, as it is written to JSON and read again, and the arithmetic on it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final, Literal, Self

from pydantic import BaseModel

Sync = Literal["default", "always"]

# The least ratios to the bare loop of the same run.
TARGETS: Final[Mapping[str, float]] = {
    "opening": 0.50,
    "busy": 0.90,
    "demo": 0.65,
    "round-trip": 0.10,
}
NAIVE_TIMES: Final = 8.0
REFERENCE_TIMES: Final = 300.0
REFERENCE_SESSIONS: Final = 1000
# How much more a message may cost with the most sessions than with the fewest.
MOST_GROWTH: Final = 0.15
# Milliseconds from the acknowledgement by the log to the notification, by messages a second.
LATENCY_TARGETS_MS: Final[Mapping[int, Mapping[str, float]]] = {
    300: {"p50": 8.0, "p99": 25.0},
    1000: {"p99": 80.0},
}


# Milliseconds from the worker to the adapter, by pieces a second; and of one processor, the part
# that nats-server may use for the most pieces.
PIECE_TARGETS_MS: Final[Mapping[int, float]] = {5000: 20.0}
PIECE_SERVER_TARGETS: Final[Mapping[int, float]] = {20_000: 0.5}


class Spread(BaseModel):
    """The middle of several runs, and the ends."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the spread of at least one value."""
        found = sorted(values)
        return cls(median=median(found), least=found[0], most=found[-1])


class Costs(BaseModel):
    """What a run cost besides time.

    Attributes:
        cpu_us: Microseconds of processor time for each message, by program; all routers are one.
        commits: Transactions that wrote, for each message.
        syncs: Of Postgres' log to the disk, for each of these transactions.
        batch: Messages in a batch, in the middle.
    """

    cpu_us: dict[str, float]
    commits: float
    syncs: float
    batch: float

    @property
    def commits_per_batch(self) -> float:
        """Transactions that wrote for each batch: one, and what else writes meanwhile."""
        return self.commits * self.batch

    @classmethod
    def of(cls, runs: Sequence[Self]) -> Self:
        """Return the medians of several runs."""
        return cls(
            cpu_us={name: median(run.cpu_us[name] for run in runs) for name in runs[0].cpu_us},
            commits=median(run.commits for run in runs),
            syncs=median(run.syncs for run in runs),
            batch=median(run.batch for run in runs),
        )


class Flow(BaseModel):
    """Messages read as fast as can be, and what the bare loop did with the same ones.

    Attributes:
        case: Name of the case.
        existing: Sessions that were there before the first message.
        active: The messages go to so many of these; 0 is any.
        per_second: Messages a second.
        ratio: Each run as a part of the bare runs right before and right after it.
    """

    case: str
    meaning: str
    sync: Sync
    routers: int
    existing: int
    active: int = 0
    per_second: Spread
    bare_per_second: Spread
    ratio: Spread
    costs: Costs
    runs: int

    @property
    def target(self) -> float | None:
        """The least ratio that is accepted."""
        return None if self.existing else TARGETS.get(self.case)


class Percentiles(BaseModel):
    """How long something took, in milliseconds."""

    p50: float
    p95: float
    p99: float
    max: float


class Latency(BaseModel):
    """Time from the acknowledgement by the log to what follows, at a steady rate.

    Attributes:
        per_second: Messages a second.
        turn_ms: To the notification of a turn.
        bare_ms: To the publication by the bare loop.
        missing: Messages of which no notification came.
    """

    per_second: int
    turn_ms: Percentiles
    bare_ms: Percentiles
    missing: int


class Naive(BaseModel):
    """The naive worker and routers on the same messages.

    Attributes:
        times: How many times as fast the routers were, in each round.
    """

    case: str
    routers: int = 1
    naive_per_second: Spread
    router_per_second: Spread
    times: Spread


class Reference(BaseModel):
    """The session store that chatlane takes over from, with so many sessions in it."""

    sessions: int
    per_second: float


class Reading(BaseModel):
    """Pages and searches while messages are routed, in milliseconds.

    Attributes:
        reads_ms: By what was read, `list` or `search`.
        alone_ms: To the notification of a turn while nobody reads.
        beside_ms: The same while somebody reads.
    """

    reads_ms: dict[str, Percentiles]
    alone_ms: Percentiles
    beside_ms: Percentiles


class LiveTurns(BaseModel):
    """Pieces of live turns from a worker to an adapter, at a steady rate.

    Attributes:
        turns: Turns that show something at once.
        asked_per_second: Pieces a second of all turns together, as wanted.
        per_second: The same as the worker managed.
        missing: Pieces that the adapter did not get.
        took_ms: From the worker to the adapter.
        processors: Of one processor, the part that a program used meanwhile.
    """

    turns: int
    asked_per_second: int
    per_second: float
    missing: int
    took_ms: Percentiles
    processors: dict[str, float]

    @property
    def server_us(self) -> float:
        """Microseconds of processor time that nats-server takes for a piece."""
        return self.processors["nats"] / self.per_second * 1e6

    @property
    def server_processors(self) -> float:
        """The part of a processor that nats-server takes at the wanted rate."""
        return self.server_us * self.asked_per_second / 1e6


class Failure(BaseModel):
    """Something that could not be measured.

    Attributes:
        error: Name of its class; what it says may name files of the machine.
    """

    what: str
    error: str


class Results(BaseModel):
    """Everything that one run measured, and what it could not.

    Attributes:
        command: What was typed.
        about: Of the machine and the moment.
    """

    command: str
    about: dict[str, str]
    flows: list[Flow] = []
    latencies: list[Latency] = []
    naive: list[Naive] = []
    reference: list[Reference] = []
    reading: Reading | None = None
    live_turns: list[LiveTurns] = []
    failures: list[Failure] = []

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what a run before wrote."""
        return cls.model_validate_json(path.read_text("utf-8"))

    def write(self, path: Path) -> None:
        """Write everything as JSON; the folder is made."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=2) + "\n", "utf-8")

    def series(self) -> list[tuple[str, int]]:
        """Return what was run among sessions that were there: the case, and how many were active."""
        return list(dict.fromkeys((its.case, its.active) for its in self.flows if its.existing))

    def among(self, case: str, active: int) -> list[Flow]:
        """Return the runs of a case among sessions that were there, the fewest first."""
        found = [flow for flow in self.flows if flow.case == case and flow.existing]
        return sorted(
            (flow for flow in found if flow.active == active), key=lambda flow: flow.existing
        )

    def growth(self, case: str, active: int) -> float | None:
        """Return by which part a message costs more with the most sessions than with the fewest.

        The cost is the time of a message in times of the bare loop's, so that a machine that became
        slower meanwhile does not count.
        """
        found = self.among(case, active)
        if len(found) <= 1:
            return None
        return found[0].ratio.median / found[-1].ratio.median - 1

    def compared_with_reference(self) -> Flow | None:
        """Return what the reference is compared with: one router, messages into sessions."""
        found = [
            flow
            for flow in self.flows
            if flow.case == "busy" and flow.sync == "default" and flow.routers == 1
        ]
        return min(found, key=lambda flow: abs(flow.existing - REFERENCE_SESSIONS), default=None)


def into(active: int) -> str:
    """Say to which of the sessions that are there messages go."""
    return f"into {active:,} of the sessions" if active else "into any session"


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return how long something took, in the unit of the values, of which there are at least two.

    Raises:
        statistics.StatisticsError: There are fewer.
    """
    cuts = quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}
