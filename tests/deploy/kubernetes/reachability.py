"""Who may reach whom, as NetworkPolicies say: the rules of the API, without a cluster."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.deploy.kubernetes.manifests import Labels, Manifest, matches


@dataclass(frozen=True)
class Place:
    """A pod, or what stands for one that others run.

    Attributes:
        address: Where it is when it is no pod of the cluster, as the block it is in.
    """

    name: str
    namespace: str
    labels: Labels
    ports: frozenset[int] = field(default_factory=frozenset)
    namespace_labels: Labels = field(default_factory=dict)
    address: str | None = None


def reachable(policies: Sequence[Manifest], places: Iterable[Place]) -> set[tuple[str, str, int]]:
    """Return every (from, to, port) that the policies let through, over all of these places."""
    known = list(places)
    return {
        (source.name, target.name, port)
        for source in known
        for target in known
        for port in target.ports
        if _may_leave(policies, source, target, port) and _may_enter(policies, source, target, port)
    }


def _may_leave(policies: Sequence[Manifest], source: Place, target: Place, port: int) -> bool:
    return _is_let(policies, source, target, port, ("Egress", "egress", "to"))


def _may_enter(policies: Sequence[Manifest], source: Place, target: Place, port: int) -> bool:
    return _is_let(policies, target, source, port, ("Ingress", "ingress", "from"))


def _is_let(
    policies: Sequence[Manifest], place: Place, other: Place, port: int, way: tuple[str, str, str]
) -> bool:
    """Return whether one end lets it through; who is in no policy lets everything through."""
    kind, rules, peers = way
    own = [
        its["spec"]
        for its in policies
        if its["metadata"]["namespace"] == place.namespace
        and kind in its["spec"]["policyTypes"]
        and place.address is None
        and matches(its["spec"]["podSelector"], place.labels)
    ]
    return not own or any(
        _has_port(rule, port)
        and (peers not in rule or any(_is_meant(peer, other, place) for peer in rule[peers]))
        for spec in own
        for rule in spec.get(rules) or ()
    )


def _has_port(rule: Manifest, port: int) -> bool:
    return "ports" not in rule or port in {its["port"] for its in rule["ports"]}


def _is_meant(peer: Manifest, other: Place, place: Place) -> bool:
    if "ipBlock" in peer:
        return bool(peer["ipBlock"]["cidr"] == other.address)
    if other.address is not None:
        return False
    if "namespaceSelector" in peer:
        names = {"kubernetes.io/metadata.name": other.namespace, **other.namespace_labels}
        is_there = matches(peer["namespaceSelector"], names)
    else:
        is_there = other.namespace == place.namespace
    return is_there and matches(peer.get("podSelector", {}), other.labels)
