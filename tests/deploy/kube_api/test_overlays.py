"""Overlays on a real API server, by the commands of the README."""

import asyncio
from collections.abc import Callable

import pytest

from tests.deploy.kube_api.cluster import NAMESPACE, PATIENCE, TEAM, Cluster
from tests.deploy.kube_api.machines import ZONES
from tests.deploy.kube_api.manual import (
    make_secret,
    make_secrets,
    make_secrets_of_team,
    release,
    roll_out,
    smoke,
)
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(900)]

ROUTERS = 3


def zones(pods: list[dict[str, dict[str, str]]]) -> list[str]:
    """Return the zone of each pod, in order."""
    return sorted(pod["spec"]["nodeName"][-2] for pod in pods)


@pytest.mark.parametrize("overlay", ["production", "production-external"])
async def test_an_overlay_is_rolled_out_and_released_by_the_commands_of_the_readme(
    overlay: str, cluster: Cluster, report_line: Callable[[str], None]
) -> None:
    clock = asyncio.get_running_loop().time
    begin = clock()
    await make_secrets(cluster)
    if overlay == "production-external":
        await make_secret(cluster, "chatlane-postgres-ca", **{"ca.crt": "authority"})
    await cluster.run(roll_out(overlay))
    first = clock() - begin

    async def all_are_ready() -> bool:
        return await cluster.ready("router", "1" * 64) == ROUTERS

    await eventually(all_are_ready, PATIENCE)
    assert zones(await cluster.pods("router")) == list(ZONES)
    assert [name for name, _ in cluster.machines.started if name != "nats"] == [
        "migrate",
        "provision",
        *["router"] * ROUTERS,
    ]
    await cluster.run(smoke())

    cluster.machines.started.clear()
    cluster.set_release("2")
    begin = clock()
    await cluster.run(release(overlay))
    report_line(
        f"{overlay}: {first:.0f} s for a first roll-out, {clock() - begin:.0f} s for a release"
    )

    assert await cluster.ready("router", "2" * 64) == ROUTERS
    images = [image[-64:] for name, image in cluster.machines.started if name != "nats"]
    assert images == ["2" * 64] * (2 + ROUTERS)
    assert [name for name, _ in cluster.machines.started][:2] == ["migrate", "provision"]
    await cluster.run(f"kubectl -n {NAMESPACE} rollout undo deployment/chatlane-router")

    async def previous_are_back() -> bool:
        return await cluster.ready("router", "1" * 64) == ROUTERS

    await eventually(previous_are_back, PATIENCE)


async def test_workers_of_a_team_run_in_their_own_namespace(cluster: Cluster) -> None:
    await make_secrets(cluster)
    await make_secrets_of_team(cluster)
    await cluster.run("kubectl apply -k deploy/kubernetes/agent-team")

    async def both_are_ready() -> bool:
        pods = await cluster.pods("echo-worker", TEAM)
        return [pod["status"]["phase"] for pod in pods] == ["Running"] * 2

    await eventually(both_are_ready, PATIENCE)


async def test_the_local_overlay_brings_its_servers_and_an_echo_worker(cluster: Cluster) -> None:
    await make_secrets(cluster)
    await make_secrets_of_team(cluster)
    await make_secret(cluster, "chatlane-postgres-superuser", password="x")  # noqa: S106
    await make_secret(cluster, "chatlane-postgres-tls", **{"tls.crt": "x", "tls.key": "x"})
    await make_secret(cluster, "chatlane-postgres-ca", **{"ca.crt": "x"})
    await cluster.run(roll_out("local"))
    assert await cluster.ready("router") == 2
    assert [name for name, _ in cluster.machines.started][-4:] == [
        "migrate",
        "provision",
        "router",
        "router",
    ]
    await cluster.run("kubectl apply -k deploy/kubernetes/overlays/local-agent")
    await cluster.run(smoke())


async def test_what_is_not_restricted_is_refused_beside_an_installation(cluster: Cluster) -> None:
    await cluster.run(
        "kubectl apply -k deploy/kubernetes/overlays/production -l chatlane/step=ground"
    )
    code, output = await cluster.attempt(
        f"kubectl -n {NAMESPACE} run stranger --image=registry.example.com/stranger"
    )
    assert code == 1
    assert 'violates PodSecurity "restricted' in output
    assert await cluster.pods("stranger") == []


async def test_an_overlay_without_the_network_of_postgres_is_refused_by_name(
    cluster: Cluster,
) -> None:
    cluster.take_checkout(cluster.place.with_name("untouched"))
    await cluster.run(f"kubectl create namespace {NAMESPACE}")
    code, output = await cluster.attempt(
        "kubectl apply -k deploy/kubernetes/overlays/production-external --dry-run=server"
    )
    assert code == 1
    assert output.count('Invalid value: "set-in-postgres-network.yaml"') == 6, output
