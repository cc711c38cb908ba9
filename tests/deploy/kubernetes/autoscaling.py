"""A model of the HorizontalPodAutoscaler, as Kubernetes documents its algorithm.

Every 15 s it divides each metric by its target, ignores a ratio within the tolerance, takes the
largest of the results, and applies the stabilisation windows and policies of `behavior`.
https://kubernetes.io/docs/concepts/workloads/autoscaling/horizontal-pod-autoscale/
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from tests.deploy.kubernetes.manifests import Manifest

SYNC_SECONDS: Final = 15
TOLERANCE: Final = 0.1
# What Kubernetes uses where `behavior` leaves something out.
_DEFAULTS: Final[Mapping[str, Any]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "policies": [
            {"type": "Percent", "value": 100, "periodSeconds": 15},
            {"type": "Pods", "value": 4, "periodSeconds": 15},
        ],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 300,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}


def recommended(replicas: int, total: float, target: float) -> int:
    """Return how many replicas an average of `target` for each replica takes."""
    if abs(total / (target * replicas) - 1) <= TOLERANCE:
        return replicas
    return math.ceil(total / target)


@dataclass
class Autoscaler:
    """An autoscaler with its memory.

    Attributes:
        minimum: Fewest replicas.
        maximum: Most replicas.
        behavior: The field of the manifest, with all defaults.
        replicas: Present number.
        changes: Time and new number of each change.
    """

    minimum: int
    maximum: int
    behavior: Mapping[str, Any]
    replicas: int
    changes: list[tuple[float, int]] = field(default_factory=list)
    _recommendations: list[tuple[float, int]] = field(default_factory=list)
    _first: int = field(init=False)

    def __post_init__(self) -> None:
        self._first = self.replicas

    @classmethod
    def of(cls, scaler: Manifest, *, maximum: int | None = None, replicas: int = 0) -> Self:
        """Return the model of a ScaledObject.

        Args:
            scaler: The manifest.
            maximum: Most replicas, instead of those of the manifest.
            replicas: Number at the start; at least the minimum.
        """
        spec = scaler["spec"]
        told = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
        minimum = spec["minReplicaCount"]
        return cls(
            minimum=minimum,
            maximum=maximum or spec["maxReplicaCount"],
            behavior={way: {**rules, **told.get(way, {})} for way, rules in _DEFAULTS.items()},
            replicas=max(minimum, replicas),
        )

    def sync(self, now: float, metrics: Sequence[tuple[float, float]]) -> int:
        """Return the number of replicas after a look at the metrics.

        Args:
            now: Seconds; each call has a later time.
            metrics: Total and target of each metric that has an average as its target.
        """
        wanted = max(recommended(self.replicas, total, target) for total, target in metrics)
        wanted = min(max(wanted, self.minimum), self.maximum)
        stable = self._stabilized(now, wanted)
        self._recommendations.append((now, wanted))
        if stable > self.replicas:
            stable = min(stable, max(self.replicas, self._limit(now, "scaleUp")))
        elif stable < self.replicas:
            stable = max(stable, min(self.replicas, self._limit(now, "scaleDown")))
        if stable != self.replicas:
            self.replicas = stable
            self.changes.append((now, stable))
        return self.replicas

    def _stabilized(self, now: float, wanted: int) -> int:
        """Go up only to what every recent recommendation reaches, down likewise."""

        def recent(way: str) -> list[int]:
            window = self.behavior[way]["stabilizationWindowSeconds"]
            return [number for at, number in self._recommendations if at > now - window]

        least = min([wanted, *recent("scaleUp")])
        most = max([wanted, *recent("scaleDown")])
        return min(max(self.replicas, least), most)

    def _limit(self, now: float, way: str) -> int:
        limits: list[int] = []
        for policy in self.behavior[way]["policies"]:
            start: int = self._replicas_at(now - policy["periodSeconds"])
            sign = 1 if way == "scaleUp" else -1
            if policy["type"] == "Pods":
                limits.append(start + sign * policy["value"])
            else:
                share = start * (1 + sign * policy["value"] / 100)
                limits.append(math.ceil(share) if sign > 0 else math.floor(share))
        return max(limits) if way == "scaleUp" else min(limits)

    def _replicas_at(self, time: float) -> int:
        earlier = (number for at, number in reversed(self.changes) if at <= time)
        return next(earlier, self._first)

    def most_changes(self, begin: float, end: float, span: float) -> int:
        """Return the most changes in `span` seconds between two times."""
        times = [at for at, _ in self.changes if begin <= at < end]
        return max((sum(at <= other < at + span for other in times) for at in times), default=0)
