"""How the autoscalers answer arrivals of turns and outages, by the documented algorithm."""

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.kubernetes.autoscaling import SYNC_SECONDS, Autoscaler, recommended
from tests.deploy.kubernetes.manifests import Manifest, objects, workloads
from tests.deploy.kubernetes.outage_recording import AWAY, CPU, END, INTERVAL, RECORDED
from tests.deploy.kubernetes.queries import answers
from tests.deploy.kubernetes.worker_load import Load, WorkerLoad, power_of_two

MOST_WAIT_SECONDS: Final = 15
TEN_MINUTES: Final = 600.0
MANY: Final = 10_000


def worker_scaler() -> Manifest:
    return objects("agent-team", "ScaledObject")["echo-worker"]


def trigger(scaler: Manifest) -> Manifest:
    """Return the metadata of the one trigger that asks Prometheus."""
    (found,) = [its for its in scaler["spec"]["triggers"] if its["type"] == "prometheus"]
    its: Manifest = found["metadata"]
    return its


def slots() -> int:
    (worker,) = workloads("agent-team")
    arguments = worker.containers[0]["args"]
    return int(arguments[arguments.index("--slots") + 1])


def scrape_seconds() -> int:
    (endpoint,) = objects("production", "ServiceMonitor")["chatlane-router"]["spec"]["endpoints"]
    return int(endpoint["interval"].removesuffix("s"))


def played(load: Load, seed: int) -> tuple[WorkerLoad, Autoscaler]:
    """Return workers and their autoscaler after a load, with as many as it takes."""
    scaler = worker_scaler()
    target = float(trigger(scaler)["threshold"])
    before = math.ceil(power_of_two(round(load.rate * load.turn_seconds)) / target)
    autoscaler = Autoscaler.of(scaler, maximum=MANY, replicas=before)
    workers = WorkerLoad(slots(), scrape_seconds(), autoscaler.replicas)
    chance = random.Random(seed)  # noqa: S311 # repeatable arrivals
    workers.play(load, chance, autoscaler, target)
    return workers, autoscaler


@pytest.mark.timeout(120)
@pytest.mark.parametrize("turn_seconds", [3, 10, 30, 100, 300])
@pytest.mark.parametrize("rate", [0.05, 0.2, 0.8, 3.3, 5, 14.7])
def test_a_turn_waits_15_seconds_at_most_after_a_step_to_four_times_the_turns(
    rate: float, turn_seconds: float
) -> None:
    """From 0.05 turns a second to 0.2, up to 14.7 to 59; fewer than four changes in ten minutes."""
    load = Load(rate, 4, turn_seconds)

    workers, autoscaler = played(load, seed=round(rate * turn_seconds))

    # Without random peaks there is no queue at all.
    assert workers.longest_wait(-TEN_MINUTES, 0) < 1
    assert workers.longest_wait(0, load.after) <= MOST_WAIT_SECONDS
    assert autoscaler.most_changes(-TEN_MINUTES, 0, TEN_MINUTES) < 4
    assert autoscaler.most_changes(0, load.after, TEN_MINUTES) < 4


def test_workers_of_two_triggers_would_wait_for_a_queue_of_a_whole_turn() -> None:
    """The maximum of the turns that wait and the turns in work, which this replaced."""
    claimed, waiting, slots_of_one = 60, 60, 8
    assert recommended(8, claimed, slots_of_one) == recommended(8, waiting, slots_of_one) == 8
    assert recommended(8, claimed + waiting, slots_of_one) == 15


def test_live_turns_of_the_agent_are_one_sum_over_states(tmp_path: Path) -> None:
    series = {
        'chatlane_build_info{job="chatlane", version="1", instance="a"}': "1x3",
        'chatlane_turns{job="chatlane", agent="main", state="ready", instance="a"}': "3x3",
        'chatlane_turns{job="chatlane", agent="main", state="ready", instance="b"}': "2x3",
        'chatlane_turns{job="chatlane", agent="main", state="claimed", instance="a"}': "5x3",
        'chatlane_turns{job="chatlane", agent="main", state="overdue", instance="b"}': "1x3",
        'chatlane_turns{job="chatlane", agent="main", state="resting", instance="a"}': "40x3",
        'chatlane_turns{job="chatlane", agent="other", state="ready", instance="a"}': "70x3",
    }
    query = trigger(worker_scaler())["query"]

    # 5 ready, 5 claimed and 1 overdue.
    assert answers(query, series, [10], interval=5, folder=tmp_path) == [16]


def test_live_turns_are_rounded_up_to_a_power_of_two(tmp_path: Path) -> None:
    live = [0, 1, 2, 3, 4, 5, 8, 9, 1000, 1024, 1025]
    series = {
        'chatlane_build_info{job="chatlane", version="1", instance="a"}': f"1x{len(live)}",
        'chatlane_turns{job="chatlane", agent="main", state="ready", instance="a"}': " ".join(
            map(str, live)
        ),
    }
    query = trigger(worker_scaler())["query"]
    times = [5 * number for number in range(len(live))]

    found = answers(query, series, times, interval=5, folder=tmp_path)

    assert found == [power_of_two(number) for number in live]


def test_without_turns_the_sum_is_zero_and_without_routers_there_is_none(tmp_path: Path) -> None:
    """No answer is an error for KEDA, and keeps the number of workers."""
    query = trigger(worker_scaler())["query"]
    series = {'chatlane_build_info{job="chatlane", version="1", instance="a"}': "1 1 stale"}

    assert answers(query, series, [5, 10], interval=5, folder=tmp_path) == [0, None]
    assert trigger(worker_scaler())["ignoreNullValues"] == "false"


def test_a_worker_is_added_before_its_slots_are_full() -> None:
    assert float(trigger(worker_scaler())["threshold"]) == slots() * 5 / 8


# Routers

OUTAGES: Final[Mapping[str, Mapping[str, Sequence[float | None]]]] = json.loads(
    RECORDED.read_text("ascii")
)


def router_scaler() -> Manifest:
    return objects("production", "ScaledObject")["chatlane-router"]


def cpu_target() -> float:
    """Return the processors that a router may use before another one is added."""
    (router,) = objects("production", "Deployment").values()
    (container,) = router["spec"]["template"]["spec"]["containers"]
    (trigger,) = [its for its in router_scaler()["spec"]["triggers"] if its["type"] == "cpu"]
    percent = float(trigger["metadata"]["value"])
    return float(container["resources"]["requests"]["cpu"]) * percent / 100


def processors(recorded: Mapping[str, Sequence[float | None]], time: int) -> float:
    """Return the processors that all routers used in the 15 s before a time."""
    used = 0.0
    for name, row in recorded.items():
        if name.startswith(CPU):
            known = [(at * INTERVAL, value) for at, value in enumerate(row) if value is not None]
            before = [its for its in known if its[0] <= time - SYNC_SECONDS]
            until = [its for its in known if its[0] <= time]
            (began, first), (ended, last) = before[-1], until[-1]
            used += (last - first) / (ended - began)
    return used


def answers_during(victim: str, query: str, times: Sequence[int], folder: Path) -> list[float]:
    """Return the answers to a query during a recorded outage; each time has an answer."""
    series = {
        name: " ".join("_" if value is None else f"{value:g}" for value in row)
        for name, row in OUTAGES[victim].items()
        if not name.startswith(CPU)
    }
    found = answers(query, series, times, interval=INTERVAL, folder=folder)
    known = [value for value in found if value is not None]
    assert len(known) == len(found)
    return known


def after_outage(victim: str, query: str, folder: Path) -> Autoscaler:
    """Return the autoscaler of the routers after a recorded outage and two more minutes."""
    recorded = OUTAGES[victim]
    times = range(SYNC_SECONDS, END + 1, SYNC_SECONDS)
    lagging = answers_during(victim, query, times, folder)
    autoscaler = Autoscaler.of(router_scaler())
    threshold = float(trigger(router_scaler())["threshold"])
    for time, count in zip(times, lagging, strict=True):
        autoscaler.sync(time, [(count, threshold), (processors(recorded, time), cpu_target())])
    return autoscaler


@pytest.mark.parametrize("victim", OUTAGES)
def test_an_outage_adds_no_router(victim: str, tmp_path: Path) -> None:
    query = trigger(router_scaler())["query"]

    assert after_outage(victim, query, tmp_path).changes == []


@pytest.mark.parametrize("victim", OUTAGES)
def test_an_outage_adds_no_worker(victim: str, tmp_path: Path) -> None:
    scaler = worker_scaler()
    times = range(SYNC_SECONDS, AWAY.stop, SYNC_SECONDS)
    live = answers_during(victim, trigger(scaler)["query"], times, tmp_path)
    # Turns were in work when the server went away.
    assert max(live) > 0
    autoscaler = Autoscaler.of(scaler)
    for time, turns in zip(times, live, strict=True):
        autoscaler.sync(time, [(turns, float(trigger(scaler)["threshold"]))])
    # A change at the start answers what was counted before.
    assert [at for at, _ in autoscaler.changes if at > AWAY.start] == []


def test_lag_alone_would_add_routers_while_postgres_is_away(tmp_path: Path) -> None:
    lag = 'count(max by (log, partition) (chatlane_partition_lag_seconds{job="chatlane"}) > 2)'

    assert after_outage("postgres", f"{lag} or vector(0)", tmp_path).replicas > 3


def test_routers_that_commit_and_do_not_keep_up_get_more(tmp_path: Path) -> None:
    series = {
        'chatlane_batches_total{job="chatlane", outcome="committed", instance="a"}': "0+50x40",
        **{
            f'chatlane_partition_lag_seconds{{job="chatlane", log="inbound", partition="{number}", '
            'instance="a"}': "9x40"
            for number in range(24)
        },
    }
    query, threshold = trigger(router_scaler())["query"], trigger(router_scaler())["threshold"]
    times = range(SYNC_SECONDS, 181, SYNC_SECONDS)
    lagging = answers(query, series, times, interval=INTERVAL, folder=tmp_path)
    autoscaler = Autoscaler.of(router_scaler())

    for time, count in zip(times, lagging, strict=True):
        autoscaler.sync(time, [(count or 0, float(threshold))])

    assert [number for _, number in autoscaler.changes] == [6]


def test_partitions_of_a_router_that_is_cut_off_do_not_count(tmp_path: Path) -> None:
    series = {
        'chatlane_batches_total{job="chatlane", outcome="committed", instance="a"}': "0+50x40",
        'chatlane_batches_total{job="chatlane", outcome="committed", instance="b"}': "7x40",
        'chatlane_partition_lag_seconds{job="chatlane", log="inbound", partition="1", '
        'instance="b"}': "9x40",
    }
    query = trigger(router_scaler())["query"]

    assert answers(query, series, [60], interval=INTERVAL, folder=tmp_path) == [0]
