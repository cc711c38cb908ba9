"""A model of workers under arrivals of turns, scaled by what Prometheus knows of them."""

import heapq
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.deploy.kubernetes.autoscaling import SYNC_SECONDS, Autoscaler

ROUTERS: Final = 3
# From the decision to add a pod until its worker claims turns, where the image is on the node.
START_SECONDS: Final = 4.0
STEP_SECONDS: Final = 0.25
# Routers count the turns in the database at random intervals (`database figures`).
SAMPLE_SECONDS: Final = (5.0, 15.0)


def power_of_two(live: int) -> int:
    """Return live turns as the query of the autoscaler has them: rounded up to a power of two."""
    return 1 << (live - 1).bit_length() if live else 0


@dataclass(frozen=True)
class Load:
    """Arrivals of turns that become `factor` times as many at time 0.

    Attributes:
        rate: Turns a second before time 0.
        factor: What the rate is multiplied by at time 0.
        turn_seconds: How long a worker takes for a turn.
        before: Seconds that are played before time 0.
        after: Seconds that are played after time 0.
    """

    rate: float
    factor: float
    turn_seconds: float
    before: float = 1500.0
    after: float = 1800.0

    def arrivals(self, chance: random.Random) -> Iterator[float]:
        """Yield the times at which turns arrive, independently of each other."""
        now = -self.before
        while now < self.after:
            now += chance.expovariate(self.rate if now < 0 else self.rate * self.factor)
            yield now


@dataclass
class _Router:
    """The gauges of a router: sampled now and then, scraped regularly."""

    next_sample: float
    next_scrape: float
    sampled: tuple[int, int] = (0, 0)
    scraped: tuple[int, int] = (0, 0)

    def look(self, now: float, live: tuple[int, int], pause: float, scrape_seconds: float) -> None:
        if now >= self.next_sample:
            self.sampled, self.next_sample = live, now + pause
        if now >= self.next_scrape:
            self.scraped, self.next_scrape = self.sampled, now + scrape_seconds


@dataclass
class WorkerLoad:
    """Turns, workers and what is known of them.

    Attributes:
        slots: Turns that a worker takes at once.
        scrape_seconds: Interval at which Prometheus reads the routers.
        running: Workers that take turns.
        live_turns: What the query of the autoscaler answers now.
        waits: Arrival and wait of each turn that a worker took, in seconds.
    """

    slots: int
    scrape_seconds: float
    running: int
    live_turns: int = 0
    waits: list[tuple[float, float]] = field(default_factory=list)

    def steps(self, load: Load, chance: random.Random) -> Iterator[float]:
        """Play all arrivals; yield the time after each step, when `running` may change."""
        queue: deque[float] = deque()
        ends: list[float] = []
        arrivals = load.arrivals(chance)
        arrival = next(arrivals, None)
        now = -load.before
        routers = [
            _Router(
                now + chance.uniform(0, SAMPLE_SECONDS[1]),
                now + chance.uniform(0, self.scrape_seconds),
            )
            for _ in range(ROUTERS)
        ]
        while now < load.after:
            now += STEP_SECONDS
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            while arrival is not None and arrival <= now:
                queue.append(arrival)
                arrival = next(arrivals, None)
            while queue and len(ends) < self.running * self.slots:
                arrived = queue.popleft()
                self.waits.append((arrived, now - arrived))
                heapq.heappush(ends, now + load.turn_seconds)
            for router in routers:
                live = (len(queue), len(ends))
                router.look(now, live, chance.uniform(*SAMPLE_SECONDS), self.scrape_seconds)
            # 2 ^ ceil(log2(sum(max by (state) (...))))
            states = zip(*(router.scraped for router in routers), strict=True)
            self.live_turns = power_of_two(sum(map(max, states)))
            yield now

    def play(
        self, load: Load, chance: random.Random, autoscaler: Autoscaler, target: float
    ) -> None:
        """Play all arrivals, and the looks of an autoscaler with a target for each worker."""
        starting: list[tuple[float, int]] = []
        next_sync = chance.uniform(0, SYNC_SECONDS) - load.before
        for now in self.steps(load, chance):
            while starting and starting[0][0] <= now:
                self.running = starting.pop(0)[1]
            if now >= next_sync:
                next_sync += SYNC_SECONDS
                wanted = autoscaler.sync(now, [(self.live_turns, target)])
                if wanted > self.running:
                    starting.append((now + START_SECONDS, wanted))
                elif wanted < self.running:
                    # A stopped worker takes no turn, and answers those that it has.
                    self.running = wanted
                    starting.clear()

    def longest_wait(self, begin: float, end: float) -> float:
        """Return the longest wait of the turns that arrived in a span."""
        return max((wait for at, wait in self.waits if begin <= at < end), default=0.0)
