"""Nodes that are emptied one after the other."""

import asyncio

import pytest

from tests.deploy.kube_api.cluster import NAMESPACE, PATIENCE, Cluster
from tests.deploy.kube_api.machines import NODES
from tests.deploy.kube_api.manual import make_secrets, roll_out
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(900)]

ROUTERS = 3


async def test_nodes_are_drained_and_two_of_three_routers_stay_ready(cluster: Cluster) -> None:
    await make_secrets(cluster)
    await cluster.run(roll_out("production"))
    fewest = ROUTERS

    async def watch() -> None:
        nonlocal fewest
        while True:
            fewest = min(fewest, await cluster.ready("router"))
            await asyncio.sleep(0.02)

    async def all_are_ready() -> bool:
        return await cluster.ready("router") == ROUTERS

    # The autoscaler adds the others.
    await eventually(all_are_ready, PATIENCE)
    watching = asyncio.create_task(watch())
    try:
        used = {pod["spec"]["nodeName"] for pod in await cluster.pods("router")}
        for node in sorted(used):
            await cluster.run(
                f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=120s"
            )
            await eventually(all_are_ready, PATIENCE)
        left = {pod["spec"]["nodeName"] for pod in await cluster.pods("router")}
        assert left.isdisjoint(used)
    finally:
        watching.cancel()
        await cluster.run(f"kubectl uncordon {' '.join(NODES)}")
    assert fewest >= ROUTERS - 1


async def test_a_router_that_is_never_ready_does_not_keep_a_node(cluster: Cluster) -> None:
    """Such as one whose Secret is missing: its budget lets it go."""
    await make_secrets(cluster)
    await cluster.run(roll_out("production"))
    await cluster.run(
        f"kubectl -n {NAMESPACE} delete secret chatlane-digests\n"
        f"kubectl -n {NAMESPACE} delete pod -l app.kubernetes.io/component=router"
    )

    async def none_is_ready() -> bool:
        pods = await cluster.pods("router")
        placed = [pod for pod in pods if "nodeName" in pod["spec"]]
        return len(placed) == ROUTERS and await cluster.ready("router") == 0

    await eventually(none_is_ready, PATIENCE)
    node = (await cluster.pods("router"))[0]["spec"]["nodeName"]
    try:
        await cluster.run(
            f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data --timeout=120s"
        )
    finally:
        await cluster.run(f"kubectl uncordon {node}")
