"""List the metrics of routers, adapters and webhooks as Prometheus and its users see them."""

from typing import Final, NamedTuple

from prometheus_client.metrics import MetricWrapperBase

from chatlane.observability.metrics import Metrics
from chatlane_adapters.kit import metrics as adapter_metrics
from chatlane_bridges.webhooks import metrics as webhook_metrics


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
ADAPTER_METRICS, WEBHOOK_METRICS = (
    tuple(_declared(it) for it in vars(module).values() if isinstance(it, MetricWrapperBase))
    for module in (adapter_metrics, webhook_metrics)
)
