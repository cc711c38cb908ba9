"""A run of the benchmarks measures what it can."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.benchmarks import bench
from tests.benchmarks.bench import Bench, parser, plan_of
from tests.benchmarks.cases import Case
from tests.benchmarks.report.figures import Failure, Latency, Naive, Percentiles, Results
from tests.benchmarks.rig import Rig


@asynccontextmanager
async def no_rig(
    _directory: Path, *, has_users: bool, sync_always: bool = False
) -> AsyncIterator[object]:
    assert has_users
    if sync_always:
        raise RuntimeError("no servers")
    yield SimpleNamespace(huge_pages="off")


async def no_naive(_rig: Rig, case: Case, _routers: int, _rounds: int, _portion: float) -> Naive:
    raise ValueError(case.name)


async def a_latency(_rig: Rig, per_second: int, _portion: float) -> Latency:
    times = Percentiles(p50=1, p95=2, p99=3, max=4)
    return Latency(per_second=per_second, turn_ms=times, bare_ms=times, missing=0)


async def test_what_fails_is_put_down_and_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written = tmp_path / "bench.json"
    monkeypatch.setattr(bench, "RESULT", written)
    monkeypatch.setattr(bench, "open_rig", no_rig)
    monkeypatch.setattr(bench, "measure_naive", no_naive)
    monkeypatch.setattr(bench, "measure_latency", a_latency)
    asked = ["--part", "naive", "--part", "latency", "--part", "sync"]
    results = Results(command="make bench", about={})
    console = Console(record=True, quiet=True)
    await Bench(plan_of(parser().parse_args(asked)), results, console).run()
    assert results.failures == [
        Failure(what="naive", error="ValueError"),
        Failure(what="sync always", error="RuntimeError"),
    ]
    assert [its.per_second for its in results.latencies] == [300, 1000]
    assert Results.read(written) == results


async def test_a_run_with_a_failure_does_not_end_well(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "RESULT", tmp_path / "bench.json")
    monkeypatch.setattr(bench, "PLOTS", tmp_path / "plots")
    monkeypatch.setattr(bench, "cancel_on_stop_signals", lambda: None)
    results = Results(command="make bench", about={})
    results.write(bench.RESULT)
    assert await bench.main(["--again"]) == 0
    results.failures.append(Failure(what="naive", error="ValueError"))
    results.write(bench.RESULT)
    assert await bench.main(["--again"]) == 1
