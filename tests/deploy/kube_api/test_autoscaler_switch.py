"""A fixed number of pods that becomes an autoscaler's, and back: no pod ends meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from tests.deploy.chart.test_chart import WORKER
from tests.deploy.kube_api.cluster import NAMESPACE, PATIENCE, Cluster
from tests.deploy.kube_api.gitops import sync_with_flux, sync_with_kubectl
from tests.deploy.kube_api.manual import chart_command, make_secrets, release_number
from tests.deploy.kube_api.test_chart_installed import prepare, set_values, until_routers
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(900)]

ROUTERS: Final = 3
WORKERS: Final = 2
MORE_WORKERS: Final = 4
_FIGURES_OF_ROUTERS: Final = (NAMESPACE, "chatlane-router")
_FIGURES_OF_WORKERS: Final = (NAMESPACE, "echo-worker")


async def uids(cluster: Cluster, component: str) -> set[str]:
    """Return which pods of a component there are."""
    return {pod["metadata"]["uid"] for pod in await cluster.pods(component)}


async def replicas(cluster: Cluster, name: str) -> int:
    """Return how many pods a Deployment is to have."""
    found = await cluster.find(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
    assert found is not None
    number: int = found["spec"]["replicas"]
    return number


@asynccontextmanager
async def never_below(cluster: Cluster, name: str, number: int) -> AsyncIterator[None]:
    """Check at the end of the block that a Deployment always was to have so many pods."""
    fewest = number

    async def watch() -> None:
        nonlocal fewest
        while True:
            fewest = min(fewest, await replicas(cluster, name))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert fewest == number


async def until_scaled(cluster: Cluster, name: str, number: int) -> None:
    """Wait until the autoscaler of KEDA has chosen a number, and as many pods are ready."""
    path = f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers"

    async def is_chosen() -> bool:
        found = await cluster.find(f"{path}/keda-hpa-{name}")
        chosen = (found or {}).get("status", {}).get("desiredReplicas")
        return bool(chosen == number == await replicas(cluster, name))

    await eventually(is_chosen, PATIENCE)


@pytest.mark.parametrize("server_side", ["true", "false"])
async def test_a_release_of_the_chart_keeps_all_pods_when_it_changes_who_scales_them(
    server_side: str, cluster: Cluster
) -> None:
    install = chart_command().rstrip() + f" --server-side={server_side}"
    values = {"size": "medium", "workers": [{**WORKER, "replicas": WORKERS}]}
    cluster.figures.external |= {_FIGURES_OF_ROUTERS: 0, _FIGURES_OF_WORKERS: 0}
    cluster.figures.processors[NAMESPACE] = 0.3
    await prepare(cluster, "none")
    set_values(cluster, "none", "1", **values)
    await cluster.run(install)
    await until_routers(cluster, "1", ROUTERS)
    if server_side == "false":
        # As Helm 3 leaves them: no field was applied on the server's side.
        forget = '[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]'
        for name in ("chatlane-router", "echo-worker"):
            await cluster.run(
                f"kubectl -n {NAMESPACE} patch deployment {name} --type=json -p '{forget}'"
            )
    before = await uids(cluster, "router"), await uids(cluster, "echo-worker")
    assert (len(before[0]), len(before[1])) == (ROUTERS, WORKERS)

    set_values(cluster, "none", "1", **values, autoscaling="keda")
    await cluster.run(install)
    await until_scaled(cluster, "chatlane-router", ROUTERS)
    await until_scaled(cluster, "echo-worker", WORKERS)
    assert (await uids(cluster, "router"), await uids(cluster, "echo-worker")) == before

    # What the autoscaler has chosen stays, also at the second release after it.
    cluster.figures.external[_FIGURES_OF_WORKERS] = 5 * MORE_WORKERS
    await until_scaled(cluster, "echo-worker", MORE_WORKERS)
    for digit in "23":
        set_values(cluster, "none", digit, **values, autoscaling="keda")
        async with (
            never_below(cluster, "chatlane-router", ROUTERS),
            never_below(cluster, "echo-worker", MORE_WORKERS),
        ):
            await cluster.run(install)

    # Then the number is the autoscaler's, which an apply on the server's side respects.
    set_values(cluster, "none", "3", **values)
    await cluster.run(install + " --force-conflicts" * (server_side == "true"))
    assert await replicas(cluster, "echo-worker") == WORKERS


@pytest.mark.parametrize("tool", ["kubectl", "flux"])
async def test_an_overlay_keeps_all_routers_when_it_gets_an_autoscaler(
    tool: str, cluster: Cluster
) -> None:
    """By the commands of the runbook."""
    sync = {"kubectl": sync_with_kubectl, "flux": sync_with_flux}[tool]
    cluster.figures.external[_FIGURES_OF_ROUTERS] = 0
    cluster.figures.processors[NAMESPACE] = 0.3
    await make_secrets(cluster)
    file = cluster.place / "deploy/kubernetes/overlays/production/kustomization.yaml"
    text = file.read_text()
    file.write_text(text.replace("  - ../../components/autoscale-lag\n", ""))
    await sync(cluster, "production")
    await until_routers(cluster, "1", ROUTERS)
    before = await uids(cluster, "router")

    await cluster.run(release_number(tool))
    file.write_text(text)
    await sync(cluster, "production")
    await until_scaled(cluster, "chatlane-router", ROUTERS)
    assert await uids(cluster, "router") == before
