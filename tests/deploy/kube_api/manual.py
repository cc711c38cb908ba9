"""The commands of the documents, as an operator runs them."""

import re
import shutil
from typing import Final

import trustme

from tests.deploy.kube_api.cluster import NAMESPACE, TEAM, Cluster
from tests.deploy.kube_api.machines import create
from tests.deploy.kubernetes.manifests import ROOT

_SMOKE_USER: Final = """
[environments.production.users.smoke]
role = "adapter"
account = "smoke/test"
nkeys = []
"""


def _blocks(path: str) -> list[str]:
    text = (ROOT / "deploy" / path).read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def _block(path: str, words: str) -> str:
    (found,) = [block for block in _blocks(path) if words in block]
    return found


def roll_out(overlay: str) -> str:
    """Return the commands of the first roll-out of an overlay."""
    script = _block("kubernetes/README.md", "--dry-run=server")
    cluster = re.compile(r"^.* wait cluster/chatlane-postgres .*\n", re.MULTILINE)
    if overlay == "production-external":
        script = cluster.sub("", script)
    if overlay == "local":
        wait = _block("kubernetes/overlays/local/README.md", "rollout status statefulset")
        script = cluster.sub(wait, script)
        script = re.sub(r"^helm .*?--wait\n", "", script, flags=re.MULTILINE | re.DOTALL)
    return _of(overlay, script)


def release(overlay: str) -> str:
    """Return the commands of a release of an overlay."""
    script = _block("kubernetes/README.md", "kubectl diff")
    # It ends with 1 if there are differences.
    return _of(
        overlay, script.replace("kubectl diff -k $overlay", "kubectl diff -k $overlay || true")
    )


def _of(overlay: str, script: str) -> str:
    assert "overlays/production\n" in script
    if overlay == "production-external":
        # Which the README says to leave out.
        script = re.sub(r"^.*chatlane/step=servers\n", "", script, flags=re.MULTILINE)
    return script.replace("overlays/production\n", f"overlays/{overlay}\n")


def smoke() -> str:
    """Return the commands of the smoke test, but for its log."""
    return _block("kubernetes/README.md", "job/smoke").replace(
        "&& kubectl -n chatlane logs job/smoke", ""
    )


def release_number(tool: str) -> str:
    """Return the command that leaves the number of routers to an autoscaler, for `kubectl` or `flux`."""
    words = {"kubectl": "set-last-applied", "flux": "--server-side"}[tool]
    return _block("kubernetes/runbook.md", words)


def chart_command() -> str:
    """Return the command that installs the chart and makes each release of it."""
    return re.split(r"^helm test", _block("chart/README.md", "helm test"), flags=re.MULTILINE)[0]


async def make_secrets(cluster: Cluster) -> None:
    """Create the Secrets as the README says, with keys and certificates of this run.

    The second time copies of the first ones are created, because the commands take a while.
    """
    if cluster.secrets:
        shutil.copytree(cluster.files, cluster.place, dirs_exist_ok=True)
        await create(cluster.client, "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for secret in cluster.secrets:
            await create(cluster.client, f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
        return
    users = (ROOT / "deploy/nats/users.toml").read_text()
    (cluster.place / "users.toml").write_text(users + _SMOKE_USER)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(cluster.place / "ca.crt")
    issued = authority.issue_cert("nats.chatlane.svc", "*.nats-headless")
    issued.private_key_pem.write_to_path(cluster.place / "tls.key")
    issued.cert_chain_pems[0].write_to_path(cluster.place / "tls.crt")
    await cluster.run(_block("kubernetes/README.md", "admin nats-keys"))
    ignored = shutil.ignore_patterns("deploy")
    shutil.copytree(cluster.place, cluster.files, ignore=ignored)
    for secret in await cluster.get("secret"):
        named = {key: secret["metadata"].get(key) for key in ("name", "labels")}
        kept = {key: secret[key] for key in ("type", "data")}
        cluster.secrets.append({"metadata": named, **kept})


async def make_secrets_of_team(cluster: Cluster) -> None:
    """Create the namespace of a team, and the Secrets that the README lists for it."""
    await cluster.run(
        f"kubectl create namespace {TEAM}\n"
        f"kubectl -n {TEAM} create secret generic chatlane-nats-worker"
        " --from-file=seed=keys/production/main-worker.nk\n"
        f"kubectl -n {TEAM} create secret generic chatlane-nats-ca --from-file=ca.crt"
    )


async def make_secret(cluster: Cluster, name: str, **values: str) -> None:
    """Create a Secret of the installation."""
    body = {"metadata": {"name": name}, "stringData": values}
    await create(cluster.client, f"/api/v1/namespaces/{NAMESPACE}/secrets", body)
