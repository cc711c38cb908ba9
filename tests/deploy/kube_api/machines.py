"""What a cluster has besides its control plane, as far as objects of the API show it.

Nodes run no container: a pod is ready as soon as the scheduler chose its node and all Secrets and
ConfigMaps with the keys that it mounts are there, and the pod of a job ends at once. Volumes are
bound as soon as they are claimed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import httpx

from tests.deploy.kube_api.metrics_api import Figures
from tests.deploy.kubernetes.manifests import Manifest

ZONES: Final = ("a", "b", "c")
NODES: Final = tuple(f"node-{zone}{number}" for zone in ZONES for number in (1, 2))
# The image of the manifests that no registry has.
UNKNOWN_DIGEST: Final = "0" * 64
_LOG: Final = logging.getLogger(__name__)
_PAUSE_SECONDS: Final = 0.5
_MERGE: Final = {"content-type": "application/merge-patch+json"}


async def create(client: httpx.AsyncClient, path: str, body: Manifest) -> None:
    """Create an object; one with its name may be there, or its namespace be deleted."""
    answer = await client.post(path, json=body)
    is_there = answer.status_code == httpx.codes.CONFLICT
    has_no_place = answer.status_code == httpx.codes.NOT_FOUND or "terminated" in answer.text
    assert answer.is_success or is_there or has_no_place, answer.text


async def patch(client: httpx.AsyncClient, path: str, body: Manifest) -> None:
    """Merge fields into an object; it may be gone."""
    answer = await client.patch(path, json=body, headers=_MERGE)
    assert answer.is_success or answer.status_code == httpx.codes.NOT_FOUND, answer.text


async def listed(client: httpx.AsyncClient, path: str) -> list[Manifest]:
    """Return the objects of a kind in all namespaces."""
    answer = await client.get(path)
    assert answer.is_success, answer.text
    items: list[Manifest] = answer.json()["items"]
    return items


@dataclass
class Machines:
    """The nodes, and what a test changes about them.

    Attributes:
        client: Of the API.
        failing_images: Images whose jobs fail.
        started: Component and image of each pod that became ready or ended, in order.
        waiting: Why pods do not start, by namespace and name.
        figures: What the APIs of metrics answer; has the pods that run.
    """

    client: httpx.AsyncClient
    figures: Figures
    failing_images: set[str] = field(default_factory=set)
    started: list[tuple[str, str]] = field(default_factory=list)
    waiting: dict[tuple[str, str], str] = field(default_factory=dict)

    async def create(self) -> None:
        """Create the nodes in three zones, and the class of volumes."""
        for name in NODES:
            labels = {
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": name[-2],
            }
            metadata = {"name": name, "labels": labels}
            await create(self.client, "/api/v1/nodes", {"metadata": metadata})
            room = {"cpu": "16", "memory": "64Gi", "pods": "110"}
            ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
            status = {"capacity": room, "allocatable": room, "conditions": ready}
            await patch(self.client, f"/api/v1/nodes/{name}/status", {"status": status})
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        await create(
            self.client,
            "/apis/storage.k8s.io/v1/storageclasses",
            {
                "metadata": {"name": "disks", "annotations": default},
                "provisioner": "kubernetes.io/no-provisioner",
                "reclaimPolicy": "Retain",
            },
        )

    async def work(self) -> None:
        """Look after all pods and volumes once."""
        pods = await listed(self.client, "/api/v1/pods")
        self.figures.pods = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        for pod in pods:
            await self._look_after(pod)
        for claim in await listed(self.client, "/api/v1/persistentvolumeclaims"):
            if claim["status"].get("phase") == "Pending":
                await self._provide(claim)

    async def _look_after(self, pod: Manifest) -> None:
        metadata, phase = pod["metadata"], pod["status"].get("phase")
        place = (metadata["namespace"], metadata["name"])
        path = f"/api/v1/namespaces/{place[0]}/pods/{place[1]}"
        if "deletionTimestamp" in metadata:
            self.waiting.pop(place, None)
            await self.client.delete(path, params={"gracePeriodSeconds": 0})
            return
        if phase != "Pending" or "nodeName" not in pod["spec"]:
            return
        if reason := await self._missing(pod):
            self.waiting[place] = reason
            return
        self.waiting.pop(place, None)
        await patch(self.client, f"{path}/status", {"status": self._status(pod)})
        component = metadata["labels"].get("app.kubernetes.io/component")
        name = component or metadata["labels"].get("app.kubernetes.io/name", metadata["name"])
        self.started.append((name, pod["spec"]["containers"][0]["image"]))

    async def _missing(self, pod: Manifest) -> str:
        """Return what a kubelet would wait for before it starts the containers."""
        for container in pod["spec"]["containers"]:
            if UNKNOWN_DIGEST in container["image"]:
                return f"no registry has {container['image']}"
        for kind, name, keys in _mounted(pod["spec"]):
            namespace = pod["metadata"]["namespace"]
            answer = await self.client.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}")
            if answer.status_code == httpx.codes.NOT_FOUND:
                return f"{kind} {name} is missing"
            if absent := keys - (answer.json().get("data") or {}).keys():
                return f"{kind} {name} has no {', '.join(sorted(absent))}"
        return ""

    def _status(self, pod: Manifest) -> Manifest:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        spec = pod["spec"]
        ends = spec["restartPolicy"] != "Always" and "command" not in spec["containers"][0]
        fails = ends and spec["containers"][0]["image"] in self.failing_images
        state: Manifest
        if not ends:
            phase, state = "Running", {"running": {"startedAt": now}}
        elif not fails:
            phase = "Succeeded"
            state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
        elif spec["restartPolicy"] == "Never":
            phase = "Failed"
            state = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": now}}
        else:
            phase, state = "Running", {"waiting": {"reason": "CrashLoopBackOff"}}
        is_ready = "running" in state
        conditions = [
            {
                "type": kind,
                "status": str(is_ready or kind == "PodScheduled"),
                "lastTransitionTime": now,
            }
            for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ]

        def statuses(containers: list[Manifest], **fields: Any) -> list[Manifest]:  # noqa: ANN401
            return [
                {"name": part["name"], "image": part["image"], "imageID": "", **fields}
                for part in containers
            ]

        done = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}}
        return {
            "phase": phase,
            "startTime": now,
            "podIP": "10.0.0.1",
            "conditions": conditions,
            "initContainerStatuses": statuses(
                spec.get("initContainers", []), ready=True, restartCount=0, state=done
            ),
            "containerStatuses": statuses(
                spec["containers"],
                ready=is_ready,
                started=is_ready,
                # More than any job lets a container start again.
                restartCount=100 if fails else 0,
                state=state,
            ),
        }

    async def _provide(self, claim: Manifest) -> None:
        metadata, spec = claim["metadata"], claim["spec"]
        name = f"disk-{metadata['uid']}"
        place = {key: metadata[key] for key in ("namespace", "name", "uid")}
        await create(
            self.client,
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": name},
                "spec": {
                    "capacity": spec["resources"]["requests"],
                    "accessModes": spec["accessModes"],
                    "storageClassName": spec["storageClassName"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": f"/{name}"},
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **place},
                },
            },
        )


def _mounted(spec: Manifest) -> Iterator[tuple[str, str, set[str]]]:
    """Yield kind, name and necessary keys of what a pod mounts."""
    for volume in spec.get("volumes", ()):
        for source in (volume, *volume.get("projected", {}).get("sources", ())):
            if secret := source.get("secret"):
                name = secret.get("secretName") or secret["name"]
                yield "secrets", name, {item["key"] for item in secret.get("items", ())}
            if mapping := source.get("configMap"):
                keys = {item["key"] for item in mapping.get("items", ())}
                yield "configmaps", mapping["name"], keys


class Operators:
    """What KEDA and CloudNativePG answer to their resources.

    KEDA makes a HorizontalPodAutoscaler of each ScaledObject. Of a Cluster of Postgres only its
    condition appears, and the Secret with its authority.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def work(self) -> None:
        """Answer to all resources once."""
        for scaled in await listed(self._client, "/apis/keda.sh/v1alpha1/scaledobjects"):
            if "deletionTimestamp" not in scaled["metadata"]:
                await self._scale(scaled)
        for cluster in await listed(self._client, "/apis/postgresql.cnpg.io/v1/clusters"):
            if not cluster.get("status"):
                await self._serve(cluster)

    async def _scale(self, scaled: Manifest) -> None:
        namespace = scaled["metadata"]["namespace"]
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        body = autoscaler_of(scaled)
        current = await self._client.get(f"{path}/{body['metadata']['name']}")
        if current.status_code == httpx.codes.NOT_FOUND:
            await create(self._client, path, body)

    async def _serve(self, cluster: Manifest) -> None:
        metadata = cluster["metadata"]
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "ClusterIsReady",
            "message": "ready",
            "lastTransitionTime": metadata["creationTimestamp"],
        }
        authority = {
            "metadata": {"name": f"{metadata['name']}-ca"},
            "stringData": {"ca.crt": "any"},
        }
        await create(self._client, f"/api/v1/namespaces/{metadata['namespace']}/secrets", authority)
        place = f"namespaces/{metadata['namespace']}/clusters/{metadata['name']}/status"
        body = {"status": {"conditions": [ready], "readyInstances": cluster["spec"]["instances"]}}
        await patch(self._client, f"/apis/postgresql.cnpg.io/v1/{place}", body)


def autoscaler_of(scaled: Manifest) -> Manifest:
    """Return the HorizontalPodAutoscaler that KEDA makes, with the names of its metrics."""
    metadata, spec = scaled["metadata"], scaled["spec"]
    selector = {"matchLabels": {"scaledobject.keda.sh/name": metadata["name"]}}
    metrics: list[Manifest] = []
    for number, trigger in enumerate(spec["triggers"]):
        values = trigger["metadata"]
        if trigger["type"] == "cpu":
            target = {"type": "Utilization", "averageUtilization": int(values["value"])}
            metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        else:
            target = {"type": "AverageValue", "averageValue": values["threshold"]}
            metric = {"name": f"s{number}-{trigger['type']}", "selector": selector}
            metrics.append({"type": "External", "external": {"metric": metric, "target": target}})
    owner = {
        "apiVersion": scaled["apiVersion"],
        "kind": scaled["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {"name": f"keda-hpa-{metadata['name']}", "ownerReferences": [owner]},
        "spec": {
            "scaleTargetRef": spec["scaleTargetRef"],
            "minReplicas": spec["minReplicaCount"],
            "maxReplicas": spec["maxReplicaCount"],
            "metrics": metrics,
            "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
        },
    }


@asynccontextmanager
async def running(*workers: Machines | Operators) -> AsyncIterator[None]:
    """Let all work until the end of the block; like real ones, they try again after an error."""

    async def repeat(worker: Machines | Operators) -> None:
        while True:
            try:
                await worker.work()
            except (httpx.TransportError, AssertionError):
                _LOG.exception("work_failed")
            await asyncio.sleep(_PAUSE_SECONDS)

    tasks = [asyncio.create_task(repeat(worker)) for worker in workers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
