"""The arithmetic of the benchmarks, their table, and their plots."""

from itertools import islice, pairwise
from pathlib import Path

import pytest

from tests.benchmarks.bench import DOCUMENT, parser, plan_of
from tests.benchmarks.cases import BUSY, OPENING, Log, Measured
from tests.benchmarks.programs.generator import Backlog, mixed
from tests.benchmarks.programs.mix import shares
from tests.benchmarks.programs.naive_worker import Pace
from tests.benchmarks.report import tables
from tests.benchmarks.report.costs import Counted, committed
from tests.benchmarks.report.figures import (
    Costs,
    Failure,
    Flow,
    Latency,
    Naive,
    Percentiles,
    Reading,
    Reference,
    Results,
    Spread,
    percentiles,
)
from tests.benchmarks.report.plots import draw
from tests.benchmarks.rig import Throughput

ROOT = Path(__file__).parents[3]
PNG = b"\x89PNG"


def flow(case: str, ratio: float, *, routers: int = 1, existing: int = 0, active: int = 0) -> Flow:
    measured = Measured(
        runs=[Throughput(1000 * ratio, {"router": 60.0}, 0.002)],
        bare=[(900.0, 1100.0)],
        costs=[Costs(cpu_us={"router": 60.0}, commits=0.002, syncs=1.0, batch=500.0)],
    )
    cases = {"busy": BUSY, "opening": OPENING}
    return measured.as_flow(cases[case], "default", routers, existing, active)


def some_results() -> Results:
    times = Percentiles(p50=5, p95=8, p99=30, max=40)
    return Results(
        command="make bench",
        about={"processors": "2"},
        flows=[
            flow("busy", 0.95),
            flow("opening", 0.40),
            flow("busy", 0.80, existing=1000),
            flow("busy", 0.50, existing=1_000_000),
            flow("busy", 0.80, existing=1000, active=1000),
            flow("busy", 0.64, existing=1_000_000, active=1000),
        ],
        latencies=[Latency(per_second=300, turn_ms=times, bare_ms=times, missing=0)],
        naive=[
            Naive(
                case="busy",
                naive_per_second=Spread.of([100]),
                router_per_second=Spread.of([900]),
                times=Spread.of([9]),
            )
        ],
        reference=[
            Reference(sessions=10, per_second=100),
            Reference(sessions=1000, per_second=2),
        ],
        reading=Reading(reads_ms={"list": times}, alone_ms=times, beside_ms=times),
        failures=[Failure(what="stream", error="TimeoutError")],
    )


def test_a_run_is_compared_with_the_bare_runs_around_it() -> None:
    measured = Measured(
        runs=[
            Throughput(500.0, {"router": 60.0}, 0.002),
            Throughput(900.0, {"router": 40.0}, 0.004),
        ],
        bare=[(900.0, 1100.0), (2000.0, 1000.0)],
        costs=[
            Costs(cpu_us={"router": 60.0}, commits=0.002, syncs=1.0, batch=500.0),
            Costs(cpu_us={"router": 40.0}, commits=0.004, syncs=2.0, batch=300.0),
        ],
    )
    found = measured.as_flow(BUSY, "default", 2)
    assert found.ratio == Spread(median=0.55, least=0.5, most=0.6)
    assert found.bare_per_second.median == 1250
    assert found.costs.cpu_us == {"router": 50.0}
    assert found.costs.batch == 400
    assert found.costs.commits_per_batch == pytest.approx(1.2)


def test_syncs_are_counted_for_each_transaction_that_wrote() -> None:
    assert Counted(350, 260).syncs_per_commit(Counted(50, 20)) == 0.8
    assert Counted(50, 20).syncs_per_commit(Counted(50, 20)) == 0


def test_growth_is_what_a_message_costs_more_with_the_most_sessions() -> None:
    results = some_results()
    assert results.growth("busy", 0) == pytest.approx(0.6)
    assert results.growth("busy", 1000) == pytest.approx(0.25)
    assert results.growth("opening", 0) is None
    assert results.series() == [("busy", 0), ("busy", 1000)]


def test_the_reference_is_compared_with_as_many_sessions_as_it_is_judged_by() -> None:
    found = some_results().compared_with_reference()
    assert found is not None
    assert found.existing == 1000
    assert Results(command="", about={}).compared_with_reference() is None


def test_percentiles_lie_between_the_values() -> None:
    found = percentiles([float(value) for value in range(101)])
    assert found == {"p50": 50, "p95": 95, "p99": 99, "max": 100}


def test_messages_are_done_when_the_cursor_of_their_partition_has_passed_them() -> None:
    log = Log(1, 6, 0, {0: [1, 4, 6], 1: [2, 3], 2: [5]})
    assert log.done({0: 4, 1: 1}) == 2
    assert log.done({0: 9, 1: 3, 2: 5}) == log.messages


def test_committed_batches_are_read_from_the_metrics() -> None:
    page = (
        'chatlane_batches_total{outcome="committed"} 41.0\n'
        'chatlane_batches_total{outcome="failed"} 7.0\n'
    )
    assert committed(page) == 41
    assert committed("") == 0


def test_a_pace_begins_with_the_first_tenth() -> None:
    pace = Pace(20)
    for _ in range(20):
        pace.tick()
    assert pace.done == 20
    assert pace.per_second > 0


def test_a_backlog_goes_to_its_chats_in_turn_or_to_any_of_them() -> None:
    in_turn = [its.chat for its, _ in islice(Backlog("default", 3, "c").arrivals(), 4)]
    assert in_turn == ["c-0", "c-1", "c-2", "c-0"]
    anywhere = Backlog("default", 3, "c", first=7, is_random=True).arrivals()
    another = Backlog("default", 1000, "c", first=57, is_random=True).arrivals()
    before = Backlog("default", 1000, "c", first=7, is_random=True).arrivals()
    assert [its for its, _ in islice(another, 50)] != [its for its, _ in islice(before, 50)]
    found = list(islice(anywhere, 50))
    assert {its.chat for its, _ in found} == {"c-0", "c-1", "c-2"}
    assert found[0][1] == "7"


def test_the_mix_has_the_shares_of_the_feed_in_each_round_with_new_chats() -> None:
    parts = shares()
    whole = sum(parts[what] for what in ("message", "command", "repeat", "reaction", "broken"))
    assert whole == pytest.approx(1)
    assert 0.9 < parts["message"] < 1
    assert 0 < parts["new chat"] < 0.1
    arrived = list(islice(mixed("m"), 6000))
    texts = {its.text for its, _ in arrived if its.what == "command"}
    assert "/new" in texts
    repeats = [(before, its) for (before, its) in pairwise(arrived) if its[0].what == "repeat"]
    assert repeats
    assert all(before[1] == its[1] for before, its in repeats)
    assert all(before[0].chat == its[0].chat for before, its in repeats)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    results = some_results()
    results.write(tmp_path / "var" / "bench.json")
    assert Results.read(tmp_path / "var" / "bench.json") == results


def test_rows_say_what_missed_its_target() -> None:
    rows = {(row.what.partition(":")[0], row.setup): row for row in tables.rows(some_results())}
    assert rows["busy", "1 router, sync default"].is_met
    assert not rows["opening", "1 router, sync default"].is_met
    assert rows["busy", "1,000 sessions in it"].is_met
    late = rows["time to the notification of a turn, p99", "300 messages/s"]
    assert (late.figure, late.target, late.is_met) == ("30.0 ms", "< 25.0 ms", False)
    grown = [row for row in tables.rows(some_results()) if "costs more" in row.what]
    assert [(row.figure, row.is_met) for row in grown] == [("+60%", False), ("+25%", False)]
    failed = rows["stream", "not measured"]
    assert (failed.figure, failed.is_met) == ("TimeoutError", False)


def test_figures_and_plots_are_put_between_the_marks_of_a_document(tmp_path: Path) -> None:
    results = some_results()
    plots = draw(results, tmp_path / "plots")
    assert len(plots) == 4
    assert all(plot.read_bytes().startswith(PNG) for plot in plots)
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{tables.BEGIN}\nold figures\n{tables.END}\nafter\n", "utf-8")
    for _ in range(2):
        tables.paste(document, results, plots)
    text = document.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old figures" not in text
    assert text.count("Made by `make bench`") == 1
    assert "| ≥ 0.50 **missed** |" in text
    assert "](plots/latency.png)" in text


def test_a_document_without_a_place_for_figures_is_left_as_it_is(tmp_path: Path) -> None:
    document = tmp_path / "other.md"
    document.write_text("words\n", "utf-8")
    with pytest.raises(ValueError, match="no place"):
        tables.paste(document, some_results(), [])
    assert document.read_text("utf-8") == "words\n"


def test_the_benchmarks_have_their_place_in_the_document() -> None:
    text = (ROOT / DOCUMENT).read_text("utf-8")
    assert 0 < text.find(tables.BEGIN) < text.find(tables.END)


def test_nothing_is_drawn_without_figures(tmp_path: Path) -> None:
    assert draw(Results(command="", about={}), tmp_path) == []


def test_several_routers_get_more_messages_and_nobody_gets_less_than_some_batches() -> None:
    assert BUSY.messages_for(1, 1.0) == BUSY.messages
    assert BUSY.messages_for(4, 1.0) == 2.5 * BUSY.messages
    assert OPENING.messages_for(1, 0.001) == 3000
    assert OPENING.messages_for(2, 0.001) == 4500
    assert BUSY.messages_for(1, 0.001) == 3000 + BUSY.chats


def test_a_plan_has_everything_or_what_was_asked_for() -> None:
    whole = plan_of(parser().parse_args([]))
    assert (whole.routers, whole.sessions[-1], len(whole.cases)) == ((1, 2, 4), 1_000_000, 5)
    asked = ["--part", "cases", "--case", "busy", "--routers", "2", "--rounds", "1"]
    some = plan_of(parser().parse_args(asked))
    assert (some.parts, some.cases, some.routers, some.rounds) == (
        frozenset({"cases"}),
        (BUSY,),
        (2,),
        1,
    )
