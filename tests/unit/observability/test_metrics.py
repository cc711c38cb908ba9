"""The closed list of metrics."""

import re
from pathlib import Path
from typing import get_args

from prometheus_client.metrics import MetricWrapperBase

import chatlane
from chatlane.domain.counts import Count, CountName
from chatlane.nats.log_inspection import Reason
from chatlane.observability.metrics import LogAlarm, Metrics, show
from tests.support.declared_metrics import METRICS, declared_metrics


def test_the_service_sets_every_metric() -> None:
    sources = "\n".join(
        path.read_text("utf-8")
        for path in sorted(Path(chatlane.__file__).parent.rglob("*.py"))
        if path.name != "metrics.py"
    )
    own = {name for name, value in vars(Metrics()).items() if isinstance(value, MetricWrapperBase)}
    unset = {name for name in own if not re.search(rf"metrics\.{name}\b", sources)}
    assert {"build"} == unset


def test_every_count_of_a_decision_has_a_counter_with_as_many_labels() -> None:
    metrics = Metrics()
    labels_of = dict(zip(metrics.decisions, declared_metrics(metrics), strict=False))
    assert set(CountName) == labels_of.keys()
    for count in get_args(Count):
        names, *labels = get_args(count)
        for name in get_args(names):
            assert len(labels_of[name].labels) == len(labels), name


def test_names_follow_one_pattern() -> None:
    for metric in METRICS:
        assert metric.name.startswith("chatlane_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.meaning.endswith(".")


def test_every_reason_to_replace_a_log_is_an_alarm() -> None:
    assert {LogAlarm(reason) for reason in get_args(Reason)} < set(LogAlarm)


def test_counters_that_alerts_watch_start_at_zero() -> None:
    page = Metrics().render().decode()
    assert 'chatlane_batches_total{outcome="failed"} 0.0' in page
    assert 'chatlane_log_alarms_total{kind="tail_lost",log="results"} 0.0' in page


def test_two_processes_in_one_test_do_not_share_counts() -> None:
    first, second = Metrics(), Metrics()

    first.record_decisions({("routed", "telegram"): 3})

    assert b'chatlane_messages_routed_total{platform="telegram"} 3.0' in first.render()
    assert b"telegram" not in second.render()


def test_page_has_no_creation_times() -> None:
    metrics = Metrics()
    metrics.record_decisions({("routed", "telegram"): 3})

    assert b"_created" not in metrics.render()


def test_labels_without_a_value_disappear() -> None:
    metrics = Metrics()
    show(metrics.turns, {("main", "ready"): 2, ("main", "claimed"): 1})

    show(metrics.turns, {("main", "claimed"): 4})

    page = metrics.render().decode()
    assert 'chatlane_turns{agent="main",state="claimed"} 4.0' in page
    assert 'state="ready"' not in page
