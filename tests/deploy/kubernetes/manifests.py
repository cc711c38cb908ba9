"""The manifests of deploy/kubernetes as kustomize renders them, and what is in them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml

ROOT: Final = Path(__file__).parents[3]
FOLDER: Final = ROOT / "deploy/kubernetes"
# What is rendered by itself, by the name that tests give it.
RENDERED: Final[Mapping[str, str]] = {
    "local": "overlays/local",
    "production": "overlays/production",
    "production-external": "overlays/production-external",
    "agent-team": "agent-team",
    "local-agent": "overlays/local-agent",
}
# Namespaces of teams that run an agent.
TEAMS: Final = ("agent-team", "local-agent")
INSTALLATIONS: Final = ("local", "production", "production-external")
# What the API refuses in place of the network of an external Postgres, and what tests set.
UNSET_NETWORK: Final = "set-in-postgres-network.yaml"
NETWORK_OF_POSTGRES: Final = "10.2.0.0/24"

Manifest: TypeAlias = dict[str, Any]
Labels: TypeAlias = Mapping[str, str]


def tool(name: str) -> str:
    """Return a program that checks manifests; only CI, which fetches it, has to have it."""
    told = os.environ.get("CHATLANE_TEST_MANIFEST_TOOLS")
    fetched = ROOT / ".cache/manifest-tools/bin"
    found = shutil.which(name, path=told or str(fetched))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is missing: .ci/manifest-tools fetches it")
    if found is None:
        pytest.skip(f"{name} is missing: `make manifests` fetches it")
    return found


@cache
def rendered_text(name: str) -> str:
    """Return what would be applied, as kubectl prints it."""
    return kustomized(FOLDER / RENDERED[name])


def kustomized(folder: Path) -> str:
    """Return what would be applied of a folder, with a network of Postgres."""
    done = subprocess.run(  # noqa: S603 # the tool we were given
        [tool("kubectl"), "kustomize", folder],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert done.returncode == 0, done.stderr
    # Such as a field that kustomize will drop.
    assert done.stderr == ""
    return done.stdout.replace(UNSET_NETWORK, NETWORK_OF_POSTGRES)


@cache
def rendered(name: str) -> tuple[Manifest, ...]:
    """Return the objects of an overlay; nobody may change them."""
    return tuple(yaml.safe_load_all(rendered_text(name)))


def objects(name: str, kind: str) -> dict[str, Manifest]:
    """Return the objects of a kind by their name."""
    return {its["metadata"]["name"]: its for its in rendered(name) if its["kind"] == kind}


@dataclass(frozen=True)
class Workload:
    """Something that makes pods.

    Attributes:
        manifest: The object itself.
        template: Its template of a pod: metadata and spec.
    """

    manifest: Manifest
    template: Manifest

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def labels(self) -> Labels:
        labels: Labels = self.template["metadata"]["labels"]
        return labels

    @property
    def pod(self) -> Manifest:
        spec: Manifest = self.template["spec"]
        return spec

    @property
    def runs_on(self) -> bool:
        """Whether it is to run until it is told to end."""
        return self.kind in {"Deployment", "StatefulSet"}

    @property
    def containers(self) -> list[Manifest]:
        return [*self.pod.get("initContainers", ()), *self.pod["containers"]]

    @property
    def ports(self) -> set[int]:
        return {its["containerPort"] for one in self.containers for its in one.get("ports", ())}

    @property
    def is_ours(self) -> bool:
        """Whether it runs chatlane's image, and not that of a server."""
        return self.labels["app.kubernetes.io/name"] in {"chatlane", "echo-worker"}

    def secret_files(self, container: Manifest) -> dict[str, tuple[str, str]]:
        """Return the Secret and key of each file that the container finds, by its path."""
        mounts = {its["name"]: its["mountPath"] for its in container.get("volumeMounts", ())}
        return {
            f"{mounts[volume]}/{path}": (secret, key)
            for volume, secret, key, path in _files_of_secrets(self.pod)
            if volume in mounts
        }


def _files_of_secrets(pod: Manifest) -> Iterator[tuple[str, str, str, str]]:
    for volume in pod.get("volumes", ()):
        sources = [
            its["secret"]
            for its in volume.get("projected", {}).get("sources", ())
            if "secret" in its
        ]
        for source in sources:
            for item in source["items"]:
                yield volume["name"], source["name"], item["key"], item["path"]


def workloads(name: str) -> list[Workload]:
    """Return what makes pods in an overlay."""
    return workloads_of(rendered(name))


def workloads_of(objects_of_it: tuple[Manifest, ...]) -> list[Workload]:
    """Return what makes pods among objects."""
    found = []
    for its in objects_of_it:
        if its["kind"] in {"Deployment", "StatefulSet", "Job"}:
            found.append(Workload(its, its["spec"]["template"]))
        if its["kind"] == "CronJob":
            found.append(Workload(its, its["spec"]["jobTemplate"]["spec"]["template"]))
    return found


def matches(selector: Manifest, labels: Labels) -> bool:
    """Return whether a label selector means what has these labels; an empty one means all."""
    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(_fits(its, labels) for its in selector.get("matchExpressions", ()))


def _fits(expression: Manifest, labels: Labels) -> bool:
    value = labels.get(expression["key"])
    match expression["operator"]:
        case "In":
            return value in expression["values"]
        case "NotIn":
            return value not in expression["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case other:
            raise AssertionError(f"no operator of label selectors: {other}")
