"""What a query of Prometheus asks for, and whether a router, an adapter or webhooks show it."""

import re
from typing import Final

from tests.support.declared_metrics import (
    ADAPTER_METRICS,
    METRICS,
    WEBHOOK_METRICS,
    DeclaredMetric,
)

_NAME: Final = re.compile(r"\bchatlane_[a-z_]+\b")
_MATCHED: Final = re.compile(r"\{([^}]*)\}")
_GROUPED: Final = re.compile(r"\bby \(([^)]*)\)")
# What a scrape adds to every series, and what a histogram has.
_ALWAYS: Final = {"instance", "job", "le"}


def _series_of(metric: DeclaredMetric) -> set[str]:
    if metric.kind == "histogram":
        return {f"{metric.name}_{part}" for part in ("bucket", "sum", "count")}
    return {metric.name}


SERIES: Final = {
    series: metric
    for metric in (*METRICS, *ADAPTER_METRICS, *WEBHOOK_METRICS)
    for series in _series_of(metric)
}


def series_asked(expression: str) -> set[str]:
    """Return the names of the series in an expression."""
    return {name for name in _NAME.findall(expression) if name != "chatlane"}


def labels_asked(expression: str) -> set[str]:
    """Return the labels an expression matches or groups by."""
    asked = {
        re.split(r"[=!]", matcher.strip(), maxsplit=1)[0]
        for found in _MATCHED.findall(expression)
        for matcher in found.split(",")
    }
    grouped = {
        label.strip() for found in _GROUPED.findall(expression) for label in found.split(",")
    }
    return asked | grouped


def check_asks_for_what_is_shown(expression: str) -> None:
    """Fail where it asks for a series or a label that no process shows."""
    named = series_asked(expression)
    assert named - SERIES.keys() == set()
    labels = {label for name in named for label in SERIES[name].labels} | _ALWAYS
    assert labels_asked(expression) - labels == set()
