"""The configuration of NATS in a cluster: what the server itself takes, and what is as elsewhere."""

import subprocess
from pathlib import Path
from typing import Final

import trustme

from chatlane_servers.binaries import nats_server_program
from tests.deploy.kubernetes.manifests import FOLDER, ROOT, objects

TLS: Final = "/etc/nats/tls/"


def test_nats_takes_the_configuration_of_a_local_cluster(tmp_path: Path) -> None:
    """With the accounts as they are shipped, laid out as the pod finds them."""
    (config,) = [
        its["data"]["nats-server.conf"]
        for name, its in objects("local", "ConfigMap").items()
        if name.startswith("chatlane-nats")
    ]
    certificate = trustme.CA().issue_cert("nats.chatlane.svc")
    certificate.private_key_pem.write_to_path(tmp_path / "tls.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "tls.crt")
    shipped = (ROOT / "deploy/nats/accounts.conf").read_text()
    assert shipped.count(TLS) == 2
    accounts = tmp_path / "accounts/accounts.conf"
    accounts.parent.mkdir()
    accounts.write_text(shipped.replace(TLS, f"{tmp_path}/"))
    path = tmp_path / "nats-server.conf"
    path.write_text(config.replace("store_dir: /data", f"store_dir: {tmp_path}/data"))

    done = subprocess.run(  # noqa: S603 # the server of the tests
        [nats_server_program(), "-t", "-c", path],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.returncode == 0, done.stderr


def test_a_local_server_and_the_one_of_compose_keep_what_they_store_alike() -> None:
    def jetstream(path: Path) -> str:
        _, _, rest = path.read_text().partition("jetstream {")
        return "\n".join(line for line in rest.splitlines() if "#" not in line)

    ours = jetstream(FOLDER / "overlays/local/nats-server.conf")
    assert ours == jetstream(ROOT / "deploy/nats/nats.conf")
