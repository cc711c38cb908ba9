"""What an operations team asks of every pod, asked of what kustomize renders."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml

from chatlane.config.settings import Settings, load_settings
from tests.deploy.kubernetes.manifests import (
    INSTALLATIONS,
    RENDERED,
    ROOT,
    TEAMS,
    Manifest,
    Workload,
    matches,
    objects,
    rendered,
    workloads,
)

each_overlay = pytest.mark.parametrize("overlay", RENDERED)
each_installation = pytest.mark.parametrize("overlay", INSTALLATIONS)

DIGEST: Final = re.compile(r"[a-z0-9.-]+(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}")
SECRETS: Final = "/run/secrets/chatlane"
# In this order a roll-out applies them; README.md says how.
STEPS: Final = ("ground", "servers", "migrate", "provision", "serve")


def settings_of(overlay: str, workload: Workload, container: Manifest, folder: Path) -> Settings:
    """Return the settings a container of ours would read.

    Its secrets are laid out as the kubelet does: links into a directory that is swapped as a whole.
    """
    files = workload.secret_files(container)
    secrets, data = folder / "secrets", folder / "secrets/..2026"
    data.mkdir(parents=True)
    (secrets / "..data").symlink_to("..2026")
    for path, (_, key) in files.items():
        name = path.removeprefix(f"{SECRETS}/")
        (data / name).write_text(
            "postgresql://user@host/chatlane"
            if key == "dsn"
            else "a secret of that name, and of 32 bytes\n"
        )
        (secrets / name).symlink_to(Path("..data", name))
    environ = {
        its["name"]: its["value"].replace(SECRETS, str(secrets)) for its in container.get("env", ())
    }
    mounted = [its["configMap"]["name"] for its in workload.pod["volumes"] if "configMap" in its]
    if not mounted:
        return load_settings(environ=environ)
    (name,) = mounted
    config = folder / "chatlane.toml"
    config.write_text(objects(overlay, "ConfigMap")[name]["data"]["chatlane.toml"])
    return load_settings(config, environ)


def is_setting(variable: str) -> bool:
    """Return whether a variable or a file of this name is read by the settings."""
    group, _, name = variable.removeprefix("CHATLANE_").lower().partition("__")
    its = Settings.model_fields.get(group)
    return its is not None and name in getattr(its.annotation, "model_fields", {})


def settings(overlay: str, tmp_path: Path) -> Settings:
    """Return the settings of the routers of an installation."""
    (router,) = [its for its in workloads(overlay) if its.name == "chatlane-router"]
    return settings_of(overlay, router, router.containers[0], tmp_path)


@each_overlay
def test_everything_is_in_one_namespace_that_refuses_what_is_not_restricted(overlay: str) -> None:
    (namespace,) = objects(overlay, "Namespace").values()
    labels = namespace["metadata"]["labels"]
    modes = ("enforce", "audit", "warn")
    assert {labels[f"pod-security.kubernetes.io/{mode}"] for mode in modes} == {"restricted"}
    places = {its["metadata"].get("namespace") for its in rendered(overlay) if its is not namespace}
    assert places == {namespace["metadata"]["name"]}


@each_overlay
def test_no_pod_gets_a_token_or_the_account_of_others(overlay: str) -> None:
    accounts = objects(overlay, "ServiceAccount")
    assert {its["automountServiceAccountToken"] for its in accounts.values()} == {False}
    for workload in workloads(overlay):
        assert workload.pod["automountServiceAccountToken"] is False, workload.name
        assert workload.pod["serviceAccountName"] in accounts, workload.name
    granting = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}
    assert [its["kind"] for its in rendered(overlay) if its["kind"] in granting] == []


@each_overlay
def test_every_pod_is_restricted(overlay: str) -> None:
    for workload in workloads(overlay):
        its = workload.pod["securityContext"]
        assert its["runAsNonRoot"] is True, workload.name
        assert its["runAsUser"] > 10_000, workload.name
        assert its["seccompProfile"] == {"type": "RuntimeDefault"}, workload.name
        assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(workload.pod), workload.name
        kinds = {kind for one in workload.pod["volumes"] for kind in one} - {"name"}
        assert kinds <= {"configMap", "emptyDir", "projected", "secret"}, workload.name
        for container in workload.containers:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, workload.name


@each_overlay
def test_every_container_says_what_it_needs_and_where_it_ends(overlay: str) -> None:
    for workload in workloads(overlay):
        for container in workload.containers:
            resources = container["resources"]
            assert resources["requests"].keys() == {"cpu", "memory"}, workload.name
            assert resources["limits"].keys() == {"cpu", "memory"}, workload.name


@each_overlay
def test_what_runs_on_is_watched_and_ours_is_not_killed_for_its_servers(overlay: str) -> None:
    for workload in workloads(overlay):
        for container in workload.containers:
            probes = {
                name: container.get(f"{name}Probe") for name in ("startup", "liveness", "readiness")
            }
            assert all(probes.values()) is workload.runs_on, workload.name
            if workload.runs_on and workload.is_ours:
                asked = {name: its["httpGet"]["path"] for name, its in probes.items() if its}
                assert asked == {"startup": "/livez", "liveness": "/livez", "readiness": "/readyz"}
                assert {its["httpGet"]["port"] for its in probes.values() if its} == {"http"}


@each_installation
def test_a_router_has_longer_to_stop_than_it_takes(overlay: str, tmp_path: Path) -> None:
    (router,) = [its for its in workloads(overlay) if its.name == "chatlane-router"]
    (container,) = router.containers
    before = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    its = settings(overlay, tmp_path)
    longest = 2 * its.router.stop_timeout.total_seconds()
    assert router.pod["terminationGracePeriodSeconds"] > longest + before
    # Within it the longest batch comes to its end, be that a statement that is cut off.
    assert its.router.stop_timeout > 2 * its.postgres.statement_timeout


@each_installation
def test_a_probe_waits_longer_than_what_it_asks_for(overlay: str, tmp_path: Path) -> None:
    (router,) = [its for its in workloads(overlay) if its.name == "chatlane-router"]
    readiness = router.containers[0]["readinessProbe"]
    assert (
        readiness["timeoutSeconds"] > settings(overlay, tmp_path).http.probe_timeout.total_seconds()
    )


@each_overlay
def test_a_drained_node_or_a_lost_zone_takes_one_replica_at_a_time(overlay: str) -> None:
    budgets = objects(overlay, "PodDisruptionBudget").values()
    for workload in workloads(overlay):
        if workload.kind != "Deployment":
            continue
        (budget,) = [its for its in budgets if matches(its["spec"]["selector"], workload.labels)]
        assert budget["spec"]["maxUnavailable"] == 1
        assert workload.manifest["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
        spreads = workload.pod["topologySpreadConstraints"]
        assert "topology.kubernetes.io/zone" in {its["topologyKey"] for its in spreads}
        assert all(matches(its["labelSelector"], workload.labels) for its in spreads)
        assert {its["maxSkew"] for its in spreads} == {1}


@each_overlay
def test_selectors_mean_the_pods_of_their_own_template(overlay: str) -> None:
    for workload in workloads(overlay):
        if workload.runs_on:
            assert matches(workload.manifest["spec"]["selector"], workload.labels), workload.name
    for name, service in objects(overlay, "Service").items():
        selector = {"matchLabels": service["spec"]["selector"]}
        (meant,) = [its for its in workloads(overlay) if matches(selector, its.labels)]
        ports = {port["name"] for one in meant.containers for port in one.get("ports", ())}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports, name


@pytest.mark.parametrize("overlay", [name for name in RENDERED if not name.startswith("local")])
def test_images_are_named_by_their_digest(overlay: str) -> None:
    images = {container["image"] for its in workloads(overlay) for container in its.containers}
    assert [image for image in images if not DIGEST.fullmatch(image)] == []
    # One release at a time: the jobs are those of the routers.
    assert len(images) == 1


def test_a_local_cluster_runs_what_compose_runs() -> None:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    (ours,) = re.findall(
        r"^export CHATLANE_IMAGE \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE
    )
    images = {its.name: its.containers[0]["image"] for its in workloads("local")}
    # There a variable may name another one: ${CHATLANE_NATS_IMAGE:-nats:...}.
    defaults = {
        name: re.sub(r"^\$\{[A-Z_]+:-(.+)\}$", r"\1", compose[name]["image"])
        for name in ("nats", "postgres")
    }
    assert {name: images[name] for name in defaults} == defaults
    assert {image for name, image in images.items() if name.startswith("chatlane-")} == {ours}


@each_overlay
def test_secrets_are_files_and_never_in_the_environment(overlay: str) -> None:
    for workload in workloads(overlay):
        for container in workload.containers:
            assert "envFrom" not in container, workload.name
            for variable in container.get("env", ()):
                assert variable.keys() == {"name", "value"}, workload.name
                assert not re.search(r"PASSWORD$|TOKEN$|DSN$|_KEY$", variable["name"])
            mounts = {its["name"]: its for its in container["volumeMounts"]}
            assert mounts.keys() <= {
                its["name"] for its in (*workload.pod["volumes"], *_claims(workload))
            }
            for volume in workload.pod["volumes"]:
                if ({"secret", "projected"} & volume.keys()) and volume["name"] in mounts:
                    assert mounts[volume["name"]]["readOnly"] is True
                    assert (volume.get("projected") or volume["secret"])["defaultMode"] == 0o440


def _claims(workload: Workload) -> list[Manifest]:
    claims: list[Manifest] = workload.manifest["spec"].get("volumeClaimTemplates", [])
    return [its["metadata"] for its in claims]


@each_overlay
def test_every_variable_and_secret_of_ours_is_a_setting(overlay: str, tmp_path: Path) -> None:
    """A wrong name of a variable would stop the process; a file has to be where one says."""
    ours = [its for its in workloads(overlay) if its.is_ours]
    for number, workload in enumerate(ours):
        for place, container in enumerate(workload.containers):
            folder = tmp_path / f"{number}-{place}"
            its = settings_of(overlay, workload, container, folder)
            for path in (its.nats.nkey_seed_file, its.nats.tls_ca_file, its.postgres.tls_ca_file):
                assert path is None or path.is_file(), (workload.name, path)
            variables = {one["name"] for one in container["env"]}
            assert {name for name in variables if not name.startswith("CHATLANE_")} == set()
            files = {path.rpartition("/")[2] for path in workload.secret_files(container)}
            # A file of another name is not read, and nobody says so.
            settings = {name for name in files if name.startswith("CHATLANE_")}
            assert {name for name in settings if not is_setting(name)} == set(), workload.name
            # Whoever talks to a server verifies who it is.
            assert ("nats.nk" in files) is ("CHATLANE_NATS__TLS_CA_FILE" in variables)
            assert ("CHATLANE_POSTGRES__DSN" in files) is (
                "CHATLANE_POSTGRES__TLS_CA_FILE" in variables
            )
            named = {
                one["value"] for one in container["env"] if one["value"].startswith(f"{SECRETS}/")
            }
            assert named <= workload.secret_files(container).keys()


@each_overlay
def test_only_the_owner_of_the_tables_migrates_and_only_the_provisioner_makes_streams(
    overlay: str,
) -> None:
    users = {
        workload.name: {
            secret
            for one in workload.containers
            for secret, _ in workload.secret_files(one).values()
        }
        - {"chatlane-nats-ca", "chatlane-postgres-ca", "chatlane-digests"}
        for workload in workloads(overlay)
        if workload.is_ours
    }
    assert users == (
        {"echo-worker": {"chatlane-nats-worker"}}
        if overlay in TEAMS
        else {
            "chatlane-migrate": {"chatlane-postgres-owner"},
            "chatlane-provision": {"chatlane-nats-provisioner", "chatlane-postgres-application"},
            "chatlane-router": {"chatlane-nats-router", "chatlane-postgres-application"},
            "chatlane-toolbox": {"chatlane-nats-operator", "chatlane-postgres-application"},
            "chatlane-erasure": {"chatlane-nats-eraser", "chatlane-postgres-retention"},
            "chatlane-retention": {"chatlane-postgres-retention"},
            "chatlane-smoke": {"chatlane-nats-smoke"},
        }
    )


@each_overlay
def test_config_maps_that_pods_mount_are_rendered(overlay: str) -> None:
    config_maps = objects(overlay, "ConfigMap")
    for workload in workloads(overlay):
        for volume in workload.pod["volumes"]:
            sources = [volume, *volume.get("projected", {}).get("sources", ())]
            for source in [its["configMap"] for its in sources if "configMap" in its]:
                data = config_maps[source["name"]]["data"]
                assert {item["key"] for item in source.get("items", ())} <= data.keys()


@each_installation
def test_every_object_belongs_to_a_step_and_the_migration_comes_before_routers(
    overlay: str,
) -> None:
    steps = {
        (its["kind"], its["metadata"]["name"]): its["metadata"]["labels"].get("chatlane/step")
        for its in rendered(overlay)
    }
    assert {name: step for name, step in steps.items() if step not in STEPS} == {}
    order = [
        steps["Job", "chatlane-migrate"],
        steps["Job", "chatlane-provision"],
        steps["Deployment", "chatlane-router"],
    ]
    assert order == ["migrate", "provision", "serve"]
    # What a pod needs is there before it.
    early = {"Namespace", "NetworkPolicy", "ServiceAccount"}
    assert {step for (kind, _), step in steps.items() if kind in early} == {"ground"}


@pytest.mark.parametrize("overlay", ["production", "production-external"])
def test_production_keeps_three_copies(overlay: str, tmp_path: Path) -> None:
    assert settings(overlay, tmp_path).streams.replicas == 3
