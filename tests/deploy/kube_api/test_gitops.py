"""An overlay in the order of Argo CD and of Flux, and at once by kubectl; then a release."""

from collections.abc import Awaitable, Callable

import pytest

from tests.deploy.kube_api.cluster import PATIENCE, Cluster
from tests.deploy.kube_api.gitops import sync_with_argo_cd, sync_with_flux, sync_with_kubectl
from tests.deploy.kube_api.manual import make_secrets
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(900)]

ROUTERS = 3


@pytest.mark.parametrize(
    "sync", [sync_with_argo_cd, sync_with_flux, sync_with_kubectl], ids=["argo", "flux", "kubectl"]
)
async def test_a_release_replaces_the_jobs_and_routers(
    sync: Callable[[Cluster, str], Awaitable[None]], cluster: Cluster
) -> None:
    await make_secrets(cluster)
    for digit in "12":
        cluster.set_release(digit)
        cluster.machines.started.clear()
        await sync(cluster, "production")

        async def all_are_of_the_release(image: str = digit * 64) -> bool:
            ready = await cluster.ready("router", image)
            return ready == ROUTERS == len(await cluster.pods("router"))

        await eventually(all_are_of_the_release, PATIENCE)
        started = cluster.machines.started
        assert {image[-64:] for _, image in started} == {digit * 64}
        names = [name for name, _ in started]
        assert names.count("migrate") == names.count("provision") == 1
        if sync is sync_with_argo_cd:
            assert names[:2] == ["migrate", "provision"]
