"""Who may reach whom in a cluster: exactly what is written here."""

import ipaddress
import re
from typing import Final

import pytest
import yaml

from tests.deploy.kubernetes.manifests import (
    FOLDER,
    NETWORK_OF_POSTGRES,
    RENDERED,
    UNSET_NETWORK,
    Workload,
    matches,
    objects,
    rendered,
    workloads,
)
from tests.deploy.kubernetes.reachability import Place, reachable

CLIENTS: Final = {"chatlane/clients": "allowed"}

# What is in a cluster besides what we render.
DNS: Final = Place("dns", "kube-system", {"k8s-app": "kube-dns"}, frozenset({53, 9153}))
# As clusters with NodeLocal DNSCache and OpenShift have it.
NODE_DNS: Final = Place("node-dns", "", {}, frozenset({53, 8080}), address="169.254.20.10/32")
OPENSHIFT_DNS: Final = Place(
    "openshift-dns",
    "openshift-dns",
    {"dns.operator.openshift.io/daemonset-dns": "default"},
    frozenset({5353, 9154}),
)
NAMES: Final = (("dns", 53), ("node-dns", 53), ("openshift-dns", 5353))
API: Final = Place("api", "", {}, frozenset({443}), address="the control plane's")
WEB: Final = Place("web", "", {}, frozenset({80, 443, 4222, 5432}), address="anywhere")
POSTGRES_OUTSIDE: Final = Place(
    "outside", "", {}, frozenset({22, 5432}), address=NETWORK_OF_POSTGRES
)
PROMETHEUS: Final = Place(
    "prometheus", "monitoring", {"app": "prometheus"}, frozenset({9090, 4318})
)
KEDA: Final = Place("keda", "keda", {"app": "keda-operator"}, frozenset({9666}))
OPERATOR: Final = Place(
    "cnpg", "cnpg-system", {"app.kubernetes.io/name": "cloudnative-pg"}, frozenset({9443})
)
STRANGER: Final = Place("stranger", "default", {"app": "anything"}, frozenset({80}))
TEAM: Final = Place(
    "team", "chatlane-agent-main", {"app.kubernetes.io/name": "x"}, frozenset({8080}), CLIENTS
)
# Of their charts and operators.
NATS: Final = Place(
    "nats",
    "chatlane",
    {"app.kubernetes.io/component": "nats", "chatlane/server": "nats"},
    frozenset({4222, 6222, 8222, 7777}),
)
CLUSTER: Final = Place(
    "postgres",
    "chatlane",
    {"cnpg.io/cluster": "chatlane-postgres", "chatlane/server": "postgres"},
    frozenset({5432, 8000, 9187}),
)
AROUND: Final = (
    DNS,
    NODE_DNS,
    OPENSHIFT_DNS,
    API,
    WEB,
    POSTGRES_OUTSIDE,
    PROMETHEUS,
    KEDA,
    OPERATOR,
    STRANGER,
)

# Who needs a server to do its work, and what looks after the servers.
INSIDE: Final = {
    ("chatlane-router", "nats", 4222),
    ("chatlane-provision", "nats", 4222),
    ("chatlane-toolbox", "nats", 4222),
    ("chatlane-erasure", "nats", 4222),
    ("chatlane-smoke", "nats", 4222),
    ("team", "nats", 4222),
    ("prometheus", "chatlane-router", 8080),
}
USERS_OF_POSTGRES: Final = (
    "chatlane-router",
    "chatlane-migrate",
    "chatlane-provision",
    "chatlane-toolbox",
    "chatlane-erasure",
    "chatlane-retention",
)
# With the chart: the servers among themselves, and their exporter.
CLUSTERED: Final = {("nats", "nats", 6222), ("prometheus", "nats", 7777)}
LOOKED_AFTER: Final = {
    ("postgres", "postgres", 5432),
    ("postgres", "postgres", 8000),
    ("postgres", "api", 443),
    ("postgres", "web", 443),
    ("cnpg", "postgres", 5432),
    ("cnpg", "postgres", 8000),
    ("prometheus", "postgres", 9187),
}
EXPECTED: Final = {
    "local": INSIDE | {(its, "postgres", 5432) for its in USERS_OF_POSTGRES},
    "production": INSIDE
    | LOOKED_AFTER
    | CLUSTERED
    | {("chatlane-router", "prometheus", 4318)}
    | {(its, "postgres", 5432) for its in USERS_OF_POSTGRES},
    "production-external": INSIDE
    | CLUSTERED
    | {(its, "outside", 5432) for its in USERS_OF_POSTGRES},
    "agent-team": {("echo-worker", "nats", 4222)},
    "local-agent": {("echo-worker", "nats", 4222)},
}
BROUGHT: Final = {
    "local": (TEAM,),
    "production": (TEAM, NATS, CLUSTER),
    "production-external": (TEAM, NATS),
    "agent-team": (NATS,),
    "local-agent": (NATS,),
}


def place_of(workload: Workload) -> Place:
    return Place(
        workload.name,
        workload.manifest["metadata"]["namespace"],
        workload.labels,
        frozenset(workload.ports),
        CLIENTS if workload.name == "echo-worker" else {},
    )


@pytest.mark.parametrize("overlay", RENDERED)
def test_nobody_reaches_anybody_but_who_has_to(overlay: str) -> None:
    policies = list(objects(overlay, "NetworkPolicy").values())
    pods = [place_of(its) for its in workloads(overlay)]
    brought = BROUGHT[overlay]
    found = reachable(policies, [*pods, *brought, *AROUND])
    # Of whom there is no policy here, we decide nothing.
    ours = {its.name for its in pods} | {
        its.name
        for its in brought
        if any(its.namespace == one["metadata"]["namespace"] for one in policies)
    }
    decided = {way for way in found if ours & set(way[:2])}
    names = {(its, *place) for its in ours for place in NAMES}
    assert decided - names == EXPECTED[overlay]
    assert names <= found


@pytest.mark.parametrize("overlay", RENDERED)
def test_what_no_policy_names_is_denied(overlay: str) -> None:
    (namespace,) = objects(overlay, "Namespace")
    denied = objects(overlay, "NetworkPolicy")["default-deny"]
    assert denied["metadata"]["namespace"] == namespace
    assert denied["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


@pytest.mark.parametrize("overlay", RENDERED)
def test_every_port_is_covered_by_a_policy_of_its_own(overlay: str) -> None:
    """Its policy names it, or says outright that nobody may call."""
    policies = [its["spec"] for its in objects(overlay, "NetworkPolicy").values()]
    for workload in workloads(overlay):
        own = [
            its
            for its in policies
            if its["podSelector"]
            and "Ingress" in its["policyTypes"]
            and matches(its["podSelector"], workload.labels)
        ]
        named = {port["port"] for its in own for rule in its["ingress"] for port in rule["ports"]}
        if workload.ports:
            assert own, workload.name
        assert workload.ports <= named or not named, workload.name


@pytest.mark.parametrize("overlay", RENDERED)
def test_every_policy_means_somebody(overlay: str) -> None:
    labels = [its.labels for its in workloads(overlay)] + [its.labels for its in BROUGHT[overlay]]
    idle = [
        its["metadata"]["name"]
        for its in rendered(overlay)
        if its["kind"] == "NetworkPolicy"
        and not any(matches(its["spec"]["podSelector"], one) for one in labels)
    ]
    assert idle == []


def test_the_network_of_an_external_postgres_is_one_value_that_an_operator_sets() -> None:
    folder = FOLDER / "overlays/production-external"
    value = yaml.safe_load((folder / "postgres-network.yaml").read_text())["data"]["cidr"]
    assert value == UNSET_NETWORK
    with pytest.raises(ValueError, match=UNSET_NETWORK):
        ipaddress.ip_network(value)
    # The overlay has no other address.
    assert re.findall(r"\d+\.\d+\.\d+\.\d+", (folder / "kustomization.yaml").read_text()) == []
