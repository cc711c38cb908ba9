"""A cluster for one test run, and an operator who works on it with the commands of the documents."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from tests.deploy.kube_api.control_plane import ControlPlane, open_control_plane
from tests.deploy.kube_api.machines import UNKNOWN_DIGEST, Machines, Operators, listed, running
from tests.deploy.kube_api.metrics_api import Figures, registrations, serving_metrics
from tests.deploy.kubernetes.custom_resources import DEFINITIONS
from tests.deploy.kubernetes.manifests import (
    NETWORK_OF_POSTGRES,
    ROOT,
    UNSET_NETWORK,
    Manifest,
    tool,
)
from tests.support.eventually import eventually

NAMESPACE: Final = "chatlane"
TEAM: Final = "chatlane-agent-main"
PATIENCE: Final = timedelta(minutes=3)
_COMMAND_SECONDS: Final = 600
_HELM: Final = Path(__file__).with_name("helm_program.py")


@dataclass
class Cluster:
    """A running cluster and the directory of its operator.

    Attributes:
        plane: The control plane.
        client: Of the API, with all rights.
        machines: The nodes.
        figures: What autoscalers read.
        place: A directory with a copy of `deploy`, where commands run.
        secrets: Those that the commands of the README made, once they ran.
    """

    plane: ControlPlane
    client: httpx.AsyncClient
    machines: Machines
    figures: Figures
    place: Path
    secrets: list[Manifest] = field(default_factory=list)
    _environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> Path:
        """Keys and certificates that belong to `secrets`."""
        return self.plane.directory / "files"

    def take_checkout(self, place: Path) -> None:
        """Let commands run in a new copy of `deploy`."""
        place.mkdir()
        shutil.copytree(ROOT / "deploy", place / "deploy", symlinks=True)
        self.place = place

    def set_release(self, digit: str) -> None:
        """Write a digest of this digit, and the network of Postgres, into the overlays."""
        folder = self.place / "deploy/kubernetes"
        for path in [*folder.glob("overlays/*/*.yaml"), *folder.glob("agent-team/*.yaml")]:
            text = path.read_text()
            for known in (UNKNOWN_DIGEST, *(number * 64 for number in "123456789")):
                text = text.replace(f"sha256:{known}", f"sha256:{digit * 64}")
            path.write_text(text.replace(UNSET_NETWORK, NETWORK_OF_POSTGRES))

    async def attempt(self, script: str) -> tuple[int, str]:
        """Run commands in `place`; return the exit code, and what they print."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-euc", script),
            cwd=self.place,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            async with asyncio.timeout(_COMMAND_SECONDS):
                output, _ = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def run(self, script: str) -> str:
        """Run commands in `place` that have to succeed; return what they print."""
        code, output = await self.attempt(script)
        assert code == 0, f"{output}\nwaiting: {self.machines.waiting}"
        # Whatever is not restricted would get a warning, or be refused.
        assert "PodSecurity" not in output, output
        return output

    async def apply(self, manifests: list[Manifest], options: str = "") -> str:
        """Apply objects with kubectl."""
        path = self.place / "applied.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        return await self.run(f"kubectl apply {options} -f {path.name}")

    async def get(self, resource: str, *names: str) -> Any:  # noqa: ANN401 - whichever it is
        """Return an object, or the list of a kind in namespace `chatlane`."""
        text = await self.run(f"kubectl -n {NAMESPACE} get {resource} {' '.join(names)} -o json")
        found = json.loads(text)
        return found["items"] if found["kind"] == "List" else found

    async def find(self, path: str) -> Manifest | None:
        """Return the object at an address of the API, or None."""
        answer = await self.client.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        assert answer.is_success, answer.text
        found: Manifest = answer.json()
        return found

    async def knows_all_definitions(self) -> bool:
        """Return whether the API serves every custom resource."""
        found = await listed(self.client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        return all(_is_true(definition, "Established") for definition in found)

    async def pods(self, component: str, namespace: str = NAMESPACE) -> list[Manifest]:
        """Return the pods of a component, or of a name, that nobody has deleted."""
        path = f"/api/v1/namespaces/{namespace}/pods"
        found = []
        for label in ("component", "name"):
            selector = f"app.kubernetes.io/{label}={component}"
            answer = await self.client.get(path, params={"labelSelector": selector})
            assert answer.is_success, answer.text
            found += answer.json()["items"]
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def ready(self, component: str, image_part: str = "") -> int:
        """Return how many pods of a component are ready, of images with this text."""
        return sum(
            image_part in pod["spec"]["containers"][0]["image"] and _is_true(pod, "Ready")
            for pod in await self.pods(component)
        )

    async def clear(self) -> None:
        """Delete the namespaces of an installation, with all that is in them."""
        for namespace in (NAMESPACE, TEAM):
            await self.client.delete(f"/api/v1/namespaces/{namespace}")
        for namespace in (NAMESPACE, TEAM):
            path = f"/api/v1/namespaces/{namespace}"

            async def is_gone(path: str = path) -> bool:
                return await self.find(path) is None

            await eventually(is_gone, PATIENCE)
        self.machines.started.clear()
        self.machines.failing_images.clear()
        self.figures.external.clear()
        self.figures.processors.clear()


def _is_true(manifest: Manifest, condition: str) -> bool:
    """Return whether an object has a condition with the status True."""
    return any(
        found["type"] == condition and found["status"] == "True"
        for found in manifest.get("status", {}).get("conditions") or ()
    )


@asynccontextmanager
async def open_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Start a cluster with the definitions of all operators."""
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(open_control_plane(directory))
        client = await stack.enter_async_context(plane.client())
        figures = Figures()
        port = stack.enter_context(serving_metrics(figures, plane.authority))
        machines = Machines(client, figures)
        environment = _environment(directory, plane.kubeconfig)
        cluster = Cluster(plane, client, machines, figures, directory, [], environment)
        await machines.create()
        await cluster.run(f"kubectl apply --server-side -f {DEFINITIONS}")
        await eventually(cluster.knows_all_definitions, PATIENCE)
        await cluster.apply(registrations(port))
        await cluster.run("kubectl wait apiservice --all --for=condition=Available --timeout=120s")
        await stack.enter_async_context(running(machines, Operators(client)))
        yield cluster


def _environment(directory: Path, kubeconfig: Path) -> dict[str, str]:
    """Return the environment of an operator: kubectl, Helm and chatlane, and no other cluster."""
    programs = directory / "bin"
    programs.mkdir()
    python = Path(tool("kubectl")).with_name("python")
    helm = programs / "helm"
    helm.write_text(f'#!/bin/sh\nexec "{python}" "{_HELM}" "$@"\n')
    helm.chmod(0o755)
    folders = [programs, ROOT / ".venv/bin", Path(tool("kubectl")).parent, "/usr/bin", "/bin"]
    chart = os.environ.get("CHATLANE_TEST_NATS_CHART", "")
    return {
        "PATH": ":".join(map(str, folders)),
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(directory),
        "LC_ALL": "C.UTF-8",
        "CHATLANE_TEST_NATS_CHART": chart and str(Path(chart).resolve()),
    }
