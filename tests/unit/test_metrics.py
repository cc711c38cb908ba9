"""The closed list of metrics."""

import inspect
from datetime import timedelta
from typing import get_args

from chatlane.domain.counts import Count, CountName
from chatlane.observability.metrics import BUILD, COUNTERS, METRICS, TURNS, Metrics

SPAN = timedelta(seconds=0.2)


def _touch_everything(metrics: Metrics) -> None:
    """Call every method once with whatever its signature asks for."""
    for name, method in inspect.getmembers(metrics, inspect.ismethod):
        if not name.startswith("_") and name not in {
            "render",
            "record_decisions",
            "show",
            "record_stages",
        }:
            parameters = inspect.signature(method).parameters.values()
            method(**{its.name: _value_for(str(its.annotation)) for its in parameters})
    metrics.record_stages({"commit": 0.2})
    for metric in METRICS:
        if metric.kind == "gauge" and metric is not BUILD:
            metrics.show(metric, {("label",) * len(metric.labels): 1})
    metrics.record_decisions({(name, *metric.labels): 1 for name, metric in COUNTERS.items()})


def _value_for(annotation: str) -> object:
    if annotation == "timedelta":
        return SPAN
    return 1 if annotation in {"int", "bool"} else "label"


def test_every_metric_is_set_by_some_method() -> None:
    metrics = Metrics("1.2.3")

    _touch_everything(metrics)

    page = metrics.render().decode()
    names = {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line[0] != "#"}
    for metric in METRICS:
        assert names & {metric.name, f"{metric.name}_count"}, metric.name


def test_every_count_of_a_decision_has_a_counter_with_as_many_labels() -> None:
    assert set(CountName) == COUNTERS.keys()
    for count in get_args(Count):
        name, *labels = get_args(count)
        for one in get_args(name):
            assert len(COUNTERS[one].labels) == len(labels), one


def test_names_follow_one_pattern() -> None:
    for metric in METRICS:
        assert metric.name.startswith("chatlane_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert metric.meaning.endswith(".")


def test_two_processes_in_one_test_do_not_share_counts() -> None:
    first, second = Metrics(), Metrics()

    first.record_decisions({("routed", "telegram"): 3})

    assert b'chatlane_messages_routed_total{platform="telegram"} 3.0' in first.render()
    assert b"telegram" not in second.render()


def test_page_has_no_creation_times() -> None:
    metrics = Metrics()
    _touch_everything(metrics)

    assert b"_created" not in metrics.render()


def test_what_is_gone_is_not_shown_on() -> None:
    metrics = Metrics()
    metrics.show(TURNS, {("main", "ready"): 2, ("main", "claimed"): 1})

    metrics.show(TURNS, {("main", "claimed"): 4})

    page = metrics.render().decode()
    assert 'chatlane_turns{agent="main",state="claimed"} 4.0' in page
    assert 'state="ready"' not in page
