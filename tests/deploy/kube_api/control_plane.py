"""A Kubernetes without machines: etcd, API server, controller manager and scheduler.

The programs come from PATH. All listen on loopback only, and end with the process that started them.
"""

import asyncio
import json
import shutil
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import trustme

from chatlane_servers.embedded import free_port
from chatlane_servers.processes import ServerProcess, log_tail

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_LOOPBACK: Final = "127.0.0.1"
_START_PATIENCE_SECONDS: Final = 120
_STOP_PATIENCE: Final = timedelta(seconds=5)
# Users that the API server knows, with their group.
_ADMINISTRATOR: Final = ("administrator", "system:masters")
_PROXY: Final = ("aggregator", "none")
_CONTROLLERS: Final = ("system:kube-controller-manager", "none")
_SCHEDULER: Final = ("system:kube-scheduler", "none")


def missing_programs() -> list[str]:
    """Return which programs are not on PATH."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        directory: Logs, certificates and data.
        url: Address of the API.
        kubeconfig: File with which an administrator connects.
        authority: Issues certificates that the API server trusts.
    """

    directory: Path
    url: str
    kubeconfig: Path
    authority: trustme.CA

    def client(self) -> httpx.AsyncClient:
        """Return a client of the API with all rights."""
        context = ssl.create_default_context(cafile=self.directory / "ca.crt")
        context.load_cert_chain(self.directory / f"{_ADMINISTRATOR[0]}.pem")
        return httpx.AsyncClient(
            base_url=self.url, verify=context, timeout=30, trust_env=False, http2=False
        )


@asynccontextmanager
async def open_control_plane(directory: Path) -> AsyncIterator[ControlPlane]:
    """Start all programs, and stop them at the end.

    Raises:
        AssertionError: A program ends, or the API is not ready in two minutes.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(directory / "ca.crt")
    for user, group in (_ADMINISTRATOR, _PROXY, _CONTROLLERS, _SCHEDULER):
        issued = authority.issue_cert("localhost", common_name=user, organization_name=group)
        issued.private_key_and_cert_chain_pem.write_to_path(directory / f"{user}.pem")
    serving = authority.issue_cert(_LOOPBACK, "localhost", "kubernetes.default.svc")
    serving.private_key_and_cert_chain_pem.write_to_path(directory / "serving.pem")
    store, peers, port = free_port(), free_port(), free_port()
    url = f"https://{_LOOPBACK}:{port}"
    plane = ControlPlane(directory, url, _kubeconfig(directory, url, _ADMINISTRATOR[0]), authority)
    async with AsyncExitStack() as stack:
        processes = [
            _started(stack, directory, "etcd", _etcd(directory, store, peers)),
            _started(stack, directory, "kube-apiserver", _api_server(directory, store, port)),
        ]
        await _until_ready(plane, processes)
        for name, user in (
            ("kube-controller-manager", _CONTROLLERS[0]),
            ("kube-scheduler", _SCHEDULER[0]),
        ):
            arguments = [f"--kubeconfig={_kubeconfig(directory, url, user)}"]
            arguments += ["--leader-elect=false", "--secure-port=0"]
            if name == "kube-controller-manager":
                arguments += [
                    f"--root-ca-file={directory / 'ca.crt'}",
                    f"--service-account-private-key-file={directory / 'serving.pem'}",
                    "--use-service-account-credentials=true",
                    # Nothing renews the nodes.
                    "--node-monitor-grace-period=24h",
                ]
            _started(stack, directory, name, arguments)
        yield plane


def _started(
    stack: AsyncExitStack, directory: Path, name: str, arguments: list[str]
) -> ServerProcess:
    program = shutil.which(name)
    assert program is not None, name
    process = ServerProcess(
        [program, *arguments],
        log_path=directory / f"{name}.log",
        identity=None,
        parent_death_signal=signal.SIGKILL,
    )
    stack.push_async_callback(process.stop, signal.SIGTERM, _STOP_PATIENCE)
    return process


def _etcd(directory: Path, port: int, peers: int) -> list[str]:
    return [
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls=http://{_LOOPBACK}:{port}",
        f"--advertise-client-urls=http://{_LOOPBACK}:{port}",
        f"--listen-peer-urls=http://{_LOOPBACK}:{peers}",
        f"--initial-advertise-peer-urls=http://{_LOOPBACK}:{peers}",
        f"--initial-cluster=default=http://{_LOOPBACK}:{peers}",
        # Nobody needs the data after a crash.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(directory: Path, store: int, port: int) -> list[str]:
    authority, serving = directory / "ca.crt", directory / "serving.pem"
    proxy = directory / f"{_PROXY[0]}.pem"
    return [
        f"--etcd-servers=http://{_LOOPBACK}:{store}",
        f"--bind-address={_LOOPBACK}",
        f"--secure-port={port}",
        f"--tls-cert-file={serving}",
        f"--tls-private-key-file={serving}",
        f"--client-ca-file={authority}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={serving}",
        f"--service-account-signing-key-file={serving}",
        # For the APIs of metrics, which another server answers.
        f"--requestheader-client-ca-file={authority}",
        f"--requestheader-allowed-names={_PROXY[0]}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy}",
        f"--proxy-client-key-file={proxy}",
    ]


def _kubeconfig(directory: Path, url: str, user: str) -> Path:
    certificate = str(directory / f"{user}.pem")
    cluster = {"server": url, "certificate-authority": str(directory / "ca.crt")}
    login = {"client-certificate": certificate, "client-key": certificate}
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": login}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    }
    path = directory / f"{user}.kubeconfig"
    path.write_text(json.dumps(document))
    return path


async def _until_ready(plane: ControlPlane, processes: list[ServerProcess]) -> None:
    async with plane.client() as client, asyncio.timeout(_START_PATIENCE_SECONDS):
        while True:
            for process, name in zip(processes, PROGRAMS, strict=False):
                assert process.is_running, log_tail(plane.directory / f"{name}.log")
            try:
                if (await client.get("/readyz")).status_code == httpx.codes.OK:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.2)
