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
        autoscaler: Decides about the number of workers.
        target: Live turns for each worker.
        slots: Turns that a worker takes at once.
        scrape_seconds: Interval at which Prometheus reads the routers.
        waits: Arrival and wait of each turn that a worker took, in seconds.
    """

    autoscaler: Autoscaler
    target: float
    slots: int
    scrape_seconds: float
    waits: list[tuple[float, float]] = field(default_factory=list)

    def play(self, load: Load, chance: random.Random) -> None:
        """Play all arrivals, and the looks of the autoscaler."""
        queue: deque[float] = deque()
        ends: list[float] = []
        starting: list[tuple[float, int]] = []
        running = self.autoscaler.replicas
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
        next_sync = now + chance.uniform(0, SYNC_SECONDS)
        while now < load.after:
            now += STEP_SECONDS
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            while starting and starting[0][0] <= now:
                running = starting.pop(0)[1]
            while arrival is not None and arrival <= now:
                queue.append(arrival)
                arrival = next(arrivals, None)
            while queue and len(ends) < running * self.slots:
                arrived = queue.popleft()
                self.waits.append((arrived, now - arrived))
                heapq.heappush(ends, now + load.turn_seconds)
            for router in routers:
                live = (len(queue), len(ends))
                router.look(now, live, chance.uniform(*SAMPLE_SECONDS), self.scrape_seconds)
            if now >= next_sync:
                next_sync += SYNC_SECONDS
                # 2 ^ ceil(log2(sum(max by (state) (...))))
                states = zip(*(router.scraped for router in routers), strict=True)
                live_turns = power_of_two(sum(map(max, states)))
                wanted = self.autoscaler.sync(now, [(live_turns, self.target)])
                if wanted > running:
                    starting.append((now + START_SECONDS, wanted))
                elif wanted < running:
                    # A stopped worker takes no turn, and answers those that it has.
                    running = wanted
                    starting.clear()

    def longest_wait(self, begin: float, end: float) -> float:
        """Return the longest wait of the turns that arrived in a span."""
        return max((wait for at, wait in self.waits if begin <= at < end), default=0.0)

    def changes(self, begin: float, end: float, span: float) -> int:
        """Return the most changes of the number of workers in `span` seconds."""
        times = [at for at, _ in self.autoscaler.changes if begin <= at < end]
        return max((sum(at <= other < at + span for other in times) for at in times), default=0)
