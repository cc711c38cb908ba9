"""The Helm chart on a real API server: installed, upgraded, rolled back, removed."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.deploy.chart.test_chart import CONFIGURATION, VARIANTS
from tests.deploy.kube_api.cluster import NAMESPACE, PATIENCE, Cluster
from tests.deploy.kube_api.machines import UNKNOWN_DIGEST
from tests.deploy.kube_api.manual import chart_command, make_secret, make_secrets
from tests.support.eventually import eventually

pytestmark = [pytest.mark.kube_api, pytest.mark.timeout(900)]

ROUTERS: Final = {"none": 2, "hpa": 3, "keda": 4, "bot": 3}
# Secrets of clients that a variant names, with their keys.
OTHER_SECRETS: Final[Mapping[str, Mapping[str, str]]] = {
    "chatlane-nats-main-worker": {"seed": "x"},
    "chatlane-nats-slack-assistant": {"seed": "x"},
    "chatlane-nats-telegram-assistant": {"seed": "x"},
    "chatlane-nats-model-worker": {"seed": "x"},
    "chatlane-nats-telegram-bot": {"seed": "x"},
    "chatlane-bot-worker": {"OPENAI_API_KEY": "x", "TOOLS_WEB_HEADERS_X_KEY": "x"},
    "chatlane-bot-adapter": {"chatlane_adapter_token": "x"},
    "chatlane-nats-matrix": {"sales": "x", "support": "x"},
    "matrix-registration": {"registration.yaml": "x"},
    "slack-tokens": {"chatlane_adapter_bot_token": "x"},
    "chatlane-nats-console": {"seed": "x"},
    "chatlane-nats-console-operator": {"seed": "x"},
    "console-files": {"secret": "x"},
    "chatlane-nats-front-end": {"seed": "x"},
    "openai-files": {"openai.toml": "x"},
    "chatlane-nats-on-call": {"seed": "x"},
    "mcp-files": {"token": "x"},
    "chatlane-nats-events": {"seed": "x"},
    "webhooks-files": {"webhooks.toml": "x"},
    "chatlane-postgres-ca": {"ca.crt": "x"},
}


async def prepare(cluster: Cluster, variant: str) -> None:
    """Create the namespace and the Secrets, and write the values of a variant."""
    await make_secrets(cluster)
    await cluster.run(
        f"kubectl label namespace {NAMESPACE} pod-security.kubernetes.io/enforce=restricted"
    )
    for name, values in OTHER_SECRETS.items():
        await make_secret(cluster, name, **values)
    if variant == "hpa":
        # As cert-manager makes it, with its authority.
        await cluster.run(
            f"kubectl -n {NAMESPACE} delete secret chatlane-nats-tls\n"
            f"kubectl -n {NAMESPACE} create secret generic chatlane-nats-tls"
            " --from-file=tls.crt --from-file=tls.key --from-file=ca.crt"
        )
    toml = VARIANTS[variant].get("configuration", CONFIGURATION)
    (cluster.place / "chatlane.toml").write_text(str(toml))
    set_values(cluster, variant, "1")


def set_values(cluster: Cluster, variant: str, digit: str, **others: Any) -> None:  # noqa: ANN401
    """Write the values of a variant with an image."""
    image = {"repository": "registry.example.com/chatlane", "digest": f"sha256:{digit * 64}"}
    values = {**VARIANTS[variant], "image": image, **others}
    (cluster.place / "values.yaml").write_text(yaml.safe_dump(values))


async def installed(cluster: Cluster, variant: str) -> None:
    """Install a variant, and wait for as many routers as its size has."""
    await prepare(cluster, variant)
    await cluster.run(chart_command())
    await until_routers(cluster, "1", ROUTERS[variant])


async def until_routers(cluster: Cluster, digit: str, number: int) -> None:
    """Wait until there are so many routers of an image and no other one."""

    async def are_there() -> bool:
        ready = await cluster.ready("router", digit * 64)
        return ready == number == len(await cluster.pods("router"))

    await eventually(are_there, PATIENCE)


def first_two(cluster: Cluster) -> list[str]:
    """Return the two components that started first, without the scheduled erasures."""
    return [name for name, _ in cluster.machines.started if name != "erasure"][:2]


@pytest.mark.parametrize("variant", ROUTERS)
async def test_a_variant_is_installed_and_tested_and_removed_without_its_data(
    variant: str, cluster: Cluster, report_line: Callable[[str], None]
) -> None:
    clock = asyncio.get_running_loop().time
    await prepare(cluster, variant)
    begin = clock()
    output = await cluster.run(chart_command())
    first = clock() - begin
    assert "`helm uninstall` leaves all data" in output
    await until_routers(cluster, "1", ROUTERS[variant])
    assert first_two(cluster) == ["migrate", "provision"]
    assert cluster.machines.waiting == {}
    await cluster.run(f"helm test chatlane --namespace {NAMESPACE}")

    set_values(cluster, variant, "2")
    cluster.machines.started.clear()
    begin = clock()
    await cluster.run(chart_command())
    report_line(
        f"chart, {variant}: {first:.0f} s for an installation, {clock() - begin:.0f} s for a release"
    )
    await until_routers(cluster, "2", ROUTERS[variant])
    assert first_two(cluster) == ["migrate", "provision"]

    before = {secret["metadata"]["name"] for secret in await cluster.get("secret")}
    await cluster.run(f"helm uninstall chatlane --namespace {NAMESPACE} --wait")
    after = {secret["metadata"]["name"] for secret in await cluster.get("secret")}
    assert {name for name in before if not name.startswith("sh.helm.release")} == after
    kept = await cluster.get("deployment,cronjob,networkpolicy,service,poddisruptionbudget")
    assert kept == []


async def test_a_release_whose_migration_fails_changes_nothing(cluster: Cluster) -> None:
    await installed(cluster, "none")
    cluster.machines.failing_images.add(f"registry.example.com/chatlane@sha256:{'3' * 64}")
    set_values(cluster, "none", "3", configuration="[nats]\n")
    code, output = await cluster.attempt(chart_command())
    assert code != 0
    assert "pre-upgrade" in output
    assert await cluster.ready("router", "1" * 64) == ROUTERS["none"]
    (router,) = [
        found
        for found in await cluster.get("deployment")
        if found["metadata"]["name"] == "chatlane-router"
    ]
    assert "1" * 64 in router["spec"]["template"]["spec"]["containers"][0]["image"]

    set_values(cluster, "none", "2")
    await cluster.run(chart_command())
    await until_routers(cluster, "2", ROUTERS["none"])
    await cluster.run(f"helm rollback chatlane 1 --namespace {NAMESPACE} --wait")
    await until_routers(cluster, "1", ROUTERS["none"])


async def test_an_image_that_no_registry_has_stops_at_the_migration(cluster: Cluster) -> None:
    await prepare(cluster, "none")
    set_values(cluster, "none", "0")
    code, output = await cluster.attempt(chart_command().replace("15m", "20s"))
    assert code != 0
    assert "pre-install" in output
    assert UNKNOWN_DIGEST in "".join(cluster.machines.waiting.values())
    assert await cluster.get("deployment") == []
