"""The order in which Argo CD and Flux apply a folder, with kubectl.

Argo CD: one wave after the other, each when the one before is healthy; a hook with the policy
BeforeHookCreation is deleted before it is created. Flux: everything at once on the server's side; an
object with its annotation is created again if the API refuses a change of it.
"""

import itertools
from typing import Final

import yaml

from tests.deploy.kube_api.cluster import NAMESPACE, Cluster
from tests.deploy.kubernetes.manifests import Manifest, kustomized

WAVE: Final = "argocd.argoproj.io/sync-wave"
HOOK: Final = "argocd.argoproj.io/hook"
DELETE: Final = "argocd.argoproj.io/hook-delete-policy"
FORCE: Final = "kustomize.toolkit.fluxcd.io/force"
# What both tools wait for.
_HEALTHY: Final = {
    "Deployment": "rollout status {name} --timeout=180s",
    "StatefulSet": "rollout status {name} --timeout=180s",
    "Job": "wait {name} --for=condition=Complete --timeout=180s",
    "Cluster": "wait {name} --for=condition=Ready --timeout=180s",
}


def objects_of(cluster: Cluster, overlay: str) -> list[Manifest]:
    """Return the objects of an overlay in the operator's copy."""
    folder = cluster.place / "deploy/kubernetes/overlays" / overlay
    return list(yaml.safe_load_all(kustomized(folder)))


def _annotations(manifest: Manifest) -> dict[str, str]:
    found: dict[str, str] = manifest["metadata"].get("annotations", {})
    return found


def _kubectl(manifest: Manifest, command: str) -> str:
    namespace = manifest["metadata"].get("namespace", "default")
    kind = manifest["kind"].lower()
    if manifest["kind"] == "Cluster":
        kind = "clusters.postgresql.cnpg.io"
    name = f"{kind}/{manifest['metadata']['name']}"
    return f"kubectl -n {namespace} {command.format(name=name)}"


async def _until_healthy(cluster: Cluster, manifests: list[Manifest]) -> None:
    for manifest in manifests:
        if command := _HEALTHY.get(manifest["kind"]):
            await cluster.run(_kubectl(manifest, command))


async def sync_with_argo_cd(cluster: Cluster, overlay: str) -> None:
    """Apply an overlay wave by wave."""

    def wave(manifest: Manifest) -> int:
        return int(_annotations(manifest).get(WAVE, "0"))

    manifests = sorted(objects_of(cluster, overlay), key=wave)
    for _, group in itertools.groupby(manifests, wave):
        together = list(group)
        for manifest in together:
            if HOOK in _annotations(manifest):
                assert _annotations(manifest)[DELETE] == "BeforeHookCreation"
                await cluster.run(_kubectl(manifest, "delete {name} --ignore-not-found"))
        await cluster.apply(together)
        await _until_healthy(cluster, together)


async def sync_with_flux(cluster: Cluster, overlay: str) -> None:
    """Apply an overlay at once, namespaces first, and create again what cannot be changed."""
    manifests = objects_of(cluster, overlay)
    options = "--server-side --force-conflicts --field-manager=kustomize-controller"
    first = [manifest for manifest in manifests if manifest["kind"] == "Namespace"]
    await cluster.apply(first, options)
    for manifest in manifests:
        if manifest in first:
            continue
        path = cluster.place / "flux.yaml"
        path.write_text(yaml.safe_dump(manifest))
        code, output = await cluster.attempt(f"kubectl apply {options} -f {path.name}")
        if code:
            assert "field is immutable" in output, output
            assert _annotations(manifest)[FORCE] == "enabled"
            await cluster.run(_kubectl(manifest, "delete {name}"))
            await cluster.apply([manifest], options)
    await _until_healthy(cluster, manifests)


async def sync_with_kubectl(cluster: Cluster, overlay: str) -> None:
    """Apply an overlay at once, without the jobs of the release before."""
    await cluster.run(
        f"kubectl -n {NAMESPACE} delete job chatlane-migrate chatlane-provision --ignore-not-found\n"
        f"kubectl apply -k deploy/kubernetes/overlays/{overlay}\n"
        f"kubectl -n {NAMESPACE} rollout status deployment/chatlane-router --timeout=180s"
    )
