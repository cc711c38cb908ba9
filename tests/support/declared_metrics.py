"""List the metrics of routers and adapters as Prometheus and its users see them."""

from typing import Final, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

from chatlane.observability.metrics import Metrics
from chatlane_adapters.kit import metrics as adapter_metrics


class DeclaredMetric(NamedTuple):
    """A metric with its full name."""

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]


def _declared(collector: MetricWrapperBase) -> DeclaredMetric:
    (family,) = collector.describe()
    name = f"{family.name}_total" if family.type == "counter" else family.name
    # The library shows the names of labels only once a series exists.
    labels = collector._labelnames
    return DeclaredMetric(name, family.type, family.documentation, tuple(labels))


def declared_metrics(metrics: Metrics) -> list[DeclaredMetric]:
    """Return the metrics in the order of their declaration."""
    own = (*metrics.decisions.values(), *vars(metrics).values())
    return [_declared(value) for value in own if isinstance(value, MetricWrapperBase)]


METRICS: Final = tuple(declared_metrics(Metrics()))
ADAPTER_METRICS: Final = tuple(
    _declared(value)
    for value in vars(adapter_metrics).values()
    if isinstance(value, MetricWrapperBase)
)
