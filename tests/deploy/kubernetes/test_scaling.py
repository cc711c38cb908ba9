"""How many replicas there may be, who decides it, and what the servers have for them."""

import copy
import itertools
import re
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from chatlane.config.setting_groups import PostgresSettings
from chatlane.config.settings import Settings, load_settings
from chatlane.durations import parse_duration
from tests.deploy.kubernetes.custom_resources import is_custom, validate
from tests.deploy.kubernetes.manifests import (
    FOLDER,
    INSTALLATIONS,
    RENDERED,
    ROOT,
    Manifest,
    objects,
    rendered,
    workloads,
)
from tests.deploy.metric_queries import check_asks_for_what_is_shown

# For jobs, people, and whatever else connects.
SPARE_CONNECTIONS: Final = 20

each_overlay = pytest.mark.parametrize("overlay", RENDERED)


def declared(overlay: str, tmp_path: Path) -> Settings:
    """Return what chatlane.toml of an installation says."""
    (text,) = [
        its["data"]["chatlane.toml"]
        for name, its in objects(overlay, "ConfigMap").items()
        if name.startswith("chatlane-configuration")
    ]
    path = tmp_path / "chatlane.toml"
    path.write_text(text)
    return load_settings(path, {})


def autoscalers(overlay: str) -> list[tuple[Manifest, Manifest, int, int]]:
    """Return each with what it scales and from where to where."""
    found = []
    for its in rendered(overlay):
        spec = its.get("spec", {})
        if its["kind"] == "HorizontalPodAutoscaler":
            found.append((its, spec["scaleTargetRef"], spec["minReplicas"], spec["maxReplicas"]))
        if its["kind"] == "ScaledObject":
            least, most = spec["minReplicaCount"], spec["maxReplicaCount"]
            found.append((its, spec["scaleTargetRef"], least, most))
    return found


@each_overlay
def test_one_autoscaler_at_most_decides_about_a_deployment_and_nobody_else_does(
    overlay: str,
) -> None:
    targets = [target["name"] for _, target, _, _ in autoscalers(overlay)]
    assert len(targets) == len(set(targets))
    deployments = objects(overlay, "Deployment")
    assert set(targets) <= deployments.keys()
    with_a_number = {name for name, its in deployments.items() if "replicas" in its["spec"]}
    assert with_a_number == deployments.keys() - set(targets)


def test_each_way_to_scale_is_in_one_installation() -> None:
    ways = {name: [its["kind"] for its, *_ in autoscalers(name)] for name in RENDERED}
    assert ways == {
        "local": [],
        "production": ["ScaledObject"],
        "production-external": ["HorizontalPodAutoscaler"],
        "agent-team": ["ScaledObject"],
        "local-agent": [],
    }


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_there_are_never_more_routers_than_partitions_nor_fewer_than_two(
    overlay: str, tmp_path: Path
) -> None:
    (router,) = objects(overlay, "Deployment").values()
    scaled = [(least, most) for _, _, least, most in autoscalers(overlay)]
    least, most = scaled[0] if scaled else (router["spec"]["replicas"],) * 2
    assert 2 <= least <= most <= declared(overlay, tmp_path).router.partitions


def postgres_conf(path: Path) -> dict[str, str]:
    lines = re.findall(r"^(\w+) = '?([^'\n]+)'?$", path.read_text(), re.MULTILINE)
    return dict(lines)


def test_postgres_takes_the_connections_of_all_routers(tmp_path: Path) -> None:
    (cluster,) = objects("production", "Cluster").values()
    most = max(its[3] for its in autoscalers("production"))
    pool = declared("production", tmp_path).postgres.pool_size
    limit = int(cluster["spec"]["postgresql"]["parameters"]["max_connections"])
    assert limit >= most * pool + SPARE_CONNECTIONS

    local = postgres_conf(FOLDER / "overlays/local/postgresql.conf")
    replicas = objects("local", "Deployment")["chatlane-router"]["spec"]["replicas"]
    assert (
        int(local["max_connections"]) >= replicas * PostgresSettings().pool_size + SPARE_CONNECTIONS
    )


def test_postgres_is_set_up_as_everywhere() -> None:
    """What differs between installations is how large they are, and where their files are."""
    reviewed = postgres_conf(ROOT / "deploy/postgres/postgresql.conf")
    (cluster,) = objects("production", "Cluster").values()
    sizes = {"max_connections", "shared_buffers"}
    ours = {
        name: value
        for name, value in cluster["spec"]["postgresql"]["parameters"].items()
        if name not in sizes
    }
    assert ours.items() <= reviewed.items()
    assert ours["synchronous_commit"] == "on"
    local = postgres_conf(FOLDER / "overlays/local/postgresql.conf")
    tls = {"ssl", "ssl_cert_file", "ssl_key_file"}
    wanted = {name: value for name, value in reviewed.items() if name not in sizes}
    found = {name: value for name, value in local.items() if name not in sizes | tls}
    assert found == wanted
    assert local["ssl"] == "on"


def test_a_commit_waits_for_a_standby_in_another_zone() -> None:
    (cluster,) = objects("production", "Cluster").values()
    its = cluster["spec"]
    assert its["postgresql"]["synchronous"] == {
        "method": "any",
        "number": 1,
        "dataDurability": "required",
        "failoverQuorum": True,
    }
    # The operator reads the version from the tag.
    assert re.fullmatch(r"[a-z0-9./-]+:18@sha256:[0-9a-f]{64}", its["imageName"])
    # One may be lost, and there is still another that has every commit.
    assert its["instances"] == 3
    assert its["affinity"]["podAntiAffinityType"] == "required"
    assert its["affinity"]["topologyKey"] == "topology.kubernetes.io/zone"


@each_overlay
def test_custom_resources_are_what_their_operators_read(overlay: str) -> None:
    custom = [its for its in rendered(overlay) if is_custom(its)]
    for its in custom:
        validate(its)
    kinds = {str(its["kind"]) for its in custom}
    assert (
        kinds
        == {
            "local": set(),
            "production": {
                "Cluster",
                "PodMonitor",
                "PrometheusRule",
                "ScaledObject",
                "ServiceMonitor",
            },
            "production-external": {"PrometheusRule", "ServiceMonitor"},
            "agent-team": {"ScaledObject"},
            "local-agent": set(),
        }[overlay]
    )


def test_a_field_that_an_operator_does_not_know_is_refused() -> None:
    broken = copy.deepcopy(objects("agent-team", "ScaledObject")["echo-worker"])
    broken["spec"]["fallback"]["replica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        validate(broken)


@each_overlay
def test_autoscalers_keep_the_rules_of_keda_that_are_in_no_schema(overlay: str) -> None:
    for scaler in objects(overlay, "ScaledObject").values():
        triggers = scaler["spec"]["triggers"]
        # KEDA uses the fallback only for an average, and not for a trigger of processor time.
        asked = [trigger for trigger in triggers if trigger["type"] != "cpu"]
        assert {trigger["metricType"] for trigger in asked} == {"AverageValue"}
        assert len({trigger["name"] for trigger in triggers}) == len(triggers)


@each_overlay
def test_what_decides_by_prometheus_asks_for_what_routers_show(overlay: str) -> None:
    for scaler, *_ in autoscalers(overlay):
        for trigger in scaler["spec"].get("triggers", ()):
            if trigger["type"] == "prometheus":
                check_asks_for_what_is_shown(trigger["metadata"]["query"])


def test_routers_are_scaled_by_partitions_that_lag() -> None:
    ((scaler, _, _, _),) = autoscalers("production")
    triggers = {its["type"]: its["metadata"] for its in scaler["spec"]["triggers"]}
    assert triggers.keys() == {"prometheus", "cpu"}
    assert "chatlane_partition_lag_seconds" in triggers["prometheus"]["query"]


def test_workers_are_scaled_by_the_turns_of_their_agent(tmp_path: Path) -> None:
    ((scaler, _, _, _),) = autoscalers("agent-team")
    (worker,) = workloads("agent-team")
    told = dict(itertools.pairwise(worker.containers[0]["args"]))
    (trigger,) = scaler["spec"]["triggers"]
    assert told["--agent"] in declared("production", tmp_path).catalog().agents
    assert f'agent="{told["--agent"]}"' in trigger["metadata"]["query"]


# NATS by its chart


VALUES: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "nats/values.yaml").read_text())
UNITS: Final = {"Gi": 1024**3, "GB": 1024**3, "MB": 1024**2}


def size(text: str) -> int:
    number, unit = re.fullmatch(r"(\d+)([A-Za-z]+)", text).groups()  # type: ignore[union-attr]
    return int(number) * UNITS[unit]


def test_nats_has_three_servers_in_three_zones_and_syncs_every_message() -> None:
    its = VALUES["config"]
    assert its["cluster"]["replicas"] == 3
    assert its["jetstream"]["merge"] == {"sync_interval": "always"}
    assert VALUES["podTemplate"]["topologySpreadConstraints"] == {
        "topology.kubernetes.io/zone": {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    }
    assert VALUES["podTemplate"]["merge"]["metadata"]["labels"] == {"chatlane/server": "nats"}


def test_streams_find_room_on_the_disks_of_nats(tmp_path: Path) -> None:
    store = VALUES["config"]["jetstream"]["fileStore"]
    needed = sum(declared("production", tmp_path).streams.max_bytes_by_stream().values())
    assert 2 * needed < size(store["maxSize"]) < size(store["pvc"]["size"])
    local = (FOLDER / "overlays/local/nats-server.conf").read_text()
    (limit,) = re.findall(r"max_file_store: (\w+)", local)
    needed = sum(declared("local", tmp_path).streams.max_bytes_by_stream().values())
    (claim,) = objects("local", "StatefulSet")["nats"]["spec"]["volumeClaimTemplates"]
    assert 2 * needed < size(limit) < size(claim["spec"]["resources"]["requests"]["storage"])


def test_nats_is_of_the_release_that_tests_run_on() -> None:
    tag = VALUES["container"]["image"]["tag"]
    image = objects("local", "StatefulSet")["nats"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ]
    assert image.partition("@")[0] == f"nats:{tag}"


def test_every_server_of_nats_is_as_restricted_as_ours() -> None:
    its = VALUES["podTemplate"]["merge"]["spec"]
    assert its["automountServiceAccountToken"] is False
    assert its["securityContext"]["runAsNonRoot"] is True
    assert its["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for name in ("container", "reloader", "promExporter"):
        assert VALUES[name]["merge"]["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert VALUES["natsBox"]["enabled"] is False


# Prometheus and Grafana


@pytest.mark.parametrize("overlay", ["production", "production-external"])
def test_alarms_and_dashboard_are_those_of_the_project(overlay: str) -> None:
    rules = {name: its["spec"] for name, its in objects(overlay, "PrometheusRule").items()}
    folder = ROOT / "deploy/observability"
    assert rules == {
        "chatlane": yaml.safe_load((folder / "alerts.yaml").read_text()),
        "chatlane-kubernetes": yaml.safe_load((folder / "kubernetes_alerts.yaml").read_text()),
    }
    dashboard = objects(overlay, "ConfigMap")["chatlane-dashboard"]
    assert dashboard["data"] == {
        "dashboard.json": (ROOT / "deploy/observability/dashboard.json").read_text()
    }
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize("overlay", ["production", "production-external"])
def test_routers_are_scraped_under_the_name_that_alarms_ask_for(overlay: str) -> None:
    monitor = objects(overlay, "ServiceMonitor")["chatlane-router"]["spec"]
    service = objects(overlay, "Service")["chatlane-router"]
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert labels[monitor["jobLabel"]] == "chatlane"
    (endpoint,) = monitor["endpoints"]
    assert endpoint["path"] == "/metrics"
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert parse_duration(endpoint["scrapeTimeout"]) < parse_duration(endpoint["interval"])
