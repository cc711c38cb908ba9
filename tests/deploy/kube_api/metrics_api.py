"""The APIs of metrics, as metrics-server and KEDA serve them, with the figures of a test."""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import parse_qs, urlsplit

import trustme
from typing_extensions import override

from tests.deploy.kubernetes.manifests import Manifest

RESOURCE: Final = "metrics.k8s.io"
EXTERNAL: Final = "external.metrics.k8s.io"
_VERSION: Final = "v1beta1"
_OF_SCALED_OBJECT: Final = "scaledobject.keda.sh/name="


@dataclass
class Figures:
    """What the APIs answer.

    Attributes:
        external: Value of the metric of a ScaledObject, by its namespace and name. Without a value
            the API answers with an error, as KEDA does while Prometheus does not answer.
        processors: Processors that each pod uses, by namespace.
        pods: The pods that run.
        asked: How often an autoscaler asked for a value of `external`.
    """

    external: dict[tuple[str, str], float] = field(default_factory=dict)
    processors: dict[str, float] = field(default_factory=dict)
    pods: list[Manifest] = field(default_factory=list)
    asked: int = 0

    def answer(self, path: str, query: str) -> Manifest | None:
        """Return the object at an address of one of the APIs."""
        match path.strip("/").split("/"):
            case ["apis", group, version]:
                names = ["pods", "nodes"] if group == RESOURCE else ["any"]
                resources = [
                    {"name": name, "namespaced": True, "kind": "Metric", "verbs": ["get", "list"]}
                    for name in names
                ]
                found = f"{group}/{version}"
                return {"kind": "APIResourceList", "groupVersion": found, "resources": resources}
            case ["apis", group, version, "namespaces", namespace, "pods"] if group == RESOURCE:
                items = [self._of_pod(pod) for pod in self._pods(namespace)]
                return {
                    "kind": "PodMetricsList",
                    "apiVersion": f"{group}/{version}",
                    "items": items,
                }
            case ["apis", group, version, "namespaces", namespace, name] if group == EXTERNAL:
                (selector,) = parse_qs(query)["labelSelector"]
                self.asked += 1
                value = self.external.get((namespace, selector.removeprefix(_OF_SCALED_OBJECT)))
                if value is None:
                    return None
                item = {"metricName": name, "timestamp": _now(), "value": f"{value * 1000:.0f}m"}
                return {
                    "kind": "ExternalMetricValueList",
                    "apiVersion": f"{group}/{version}",
                    "items": [{**item, "metricLabels": {}}],
                }
        return None

    def _pods(self, namespace: str) -> list[Manifest]:
        known = namespace in self.processors
        return [pod for pod in self.pods if known and pod["metadata"]["namespace"] == namespace]

    def _of_pod(self, pod: Manifest) -> Manifest:
        namespace = pod["metadata"]["namespace"]
        usage = {"cpu": f"{self.processors[namespace] * 1000:.0f}m", "memory": "100Mi"}
        return {
            "metadata": {"name": pod["metadata"]["name"], "namespace": namespace},
            "timestamp": _now(),
            "window": "1s",
            "containers": [
                {"name": part["name"], "usage": usage} for part in pod["spec"]["containers"]
            ],
        }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def serving_metrics(figures: Figures, authority: trustme.CA) -> Iterator[int]:
    """Serve both APIs on a port of loopback, which is the value."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            address = urlsplit(self.path)
            found = figures.answer(address.path, address.query)
            body = json.dumps(found or {"kind": "Status", "status": "Failure"}).encode()
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        @override
        def log_message(self, *_: object) -> None: ...

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def registrations(port: int) -> list[Manifest]:
    """Return the objects by which the API server passes requests on to a port of loopback."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "metrics", "namespace": "kube-system"},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }
    return [
        service,
        *(
            {
                "apiVersion": "apiregistration.k8s.io/v1",
                "kind": "APIService",
                "metadata": {"name": f"{_VERSION}.{group}"},
                "spec": {
                    "group": group,
                    "version": _VERSION,
                    "groupPriorityMinimum": 100,
                    "versionPriority": 100,
                    "insecureSkipTLSVerify": True,
                    "service": {"name": "metrics", "namespace": "kube-system", "port": port},
                },
            }
            for group in (RESOURCE, EXTERNAL)
        ),
    ]
