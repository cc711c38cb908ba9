"""How many pods the chart renders for an autoscaler, by what the cluster knows of the Deployment.

Helm's own code looks the Deployment up, in a server that answers as the API server does.
"""

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
import yaml
from typing_extensions import override

from tests.deploy.chart.test_chart import CHART, VALUES, WORKER
from tests.deploy.kubernetes.manifests import Manifest, tool

NAMES: Final = ("chatlane-router", "echo-worker")
LIVE_REPLICAS: Final = 5
_PLACE: Final = "/apis/apps/v1/namespaces/chatlane/deployments"
# Reads values and the address of the API from standard input, and prints the templates.
_RENDER: Final = """
import json, sys
import helm_python
given = json.load(sys.stdin)
config = helm_python.Config(kubeconfig_content=json.dumps(given["cluster"]), namespace="chatlane")
with helm_python.Chart.load(sys.argv[1]) as chart, config:
    found = config.render(chart, given["values"], name="chatlane", namespace="chatlane")
    print("\\n---\\n".join(text for name, text in found.items() if name.endswith(".yaml")))
"""


def entry(operation: str, *fields: str, subresource: str = "") -> Manifest:
    """Return an entry of `managedFields` that owns fields of the spec."""
    return {
        "manager": "helm",
        "operation": operation,
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {f"f:{field}": {} for field in fields}},
        **({"subresource": subresource} if subresource else {}),
    }


# As Helm 3 leaves a Deployment, and Helm 4 without server-side apply.
UPDATED: Final = entry("Update", "replicas", "selector", "template")
APPLIED: Final = entry("Apply", "replicas", "selector", "template")
APPLIED_WITHOUT_NUMBER: Final = entry("Apply", "selector", "template")
AUTOSCALER: Final = entry("Update", "replicas", subresource="scale")
# What others apply on the server's side: a label, and the number of pods.
LABEL: Final = {**entry("Apply"), "fieldsV1": {"f:metadata": {"f:labels": {"f:team": {}}}}}
NUMBER: Final = entry("Apply", "replicas")


@contextmanager
def api_with(deployments: Sequence[Manifest]) -> Iterator[Manifest]:
    """Serve the API of Deployments on loopback; the value is the kubeconfig for it."""
    kind = {"name": "deployments", "namespaced": True, "kind": "Deployment", "verbs": ["get"]}
    answers: dict[str, Manifest] = {
        "/apis/apps/v1": {
            "kind": "APIResourceList",
            "groupVersion": "apps/v1",
            "resources": [kind],
        },
        **{f"{_PLACE}/{found['metadata']['name']}": found for found in deployments},
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            missing = {"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404}
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(found or missing).encode())

        @override
        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": address}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def rendered_replicas(autoscaling: str, managed: Sequence[Manifest] | None) -> list[int | None]:
    """Return the number of pods of routers and workers that the chart renders.

    Args:
        autoscaling: Who scales from this release on.
        managed: `managedFields` of the Deployments that are there; None at a first installation.
    """
    deployments = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "chatlane", "managedFields": managed},
            "spec": {"replicas": LIVE_REPLICAS},
        }
        for name in NAMES
        if managed is not None
    ]
    values = {**VALUES, "size": "medium", "workers": [WORKER], "autoscaling": autoscaling}
    with api_with(deployments) as cluster:
        done = subprocess.run(  # noqa: S603 # the tool we were given
            [Path(tool("kubectl")).with_name("python"), "-c", _RENDER, CHART],
            check=False,
            capture_output=True,
            text=True,
            input=json.dumps({"values": values, "cluster": cluster}),
            timeout=50,
        )
    assert done.returncode == 0, done.stderr
    found = {
        its["metadata"]["name"]: its["spec"].get("replicas")
        for its in yaml.safe_load_all(done.stdout)
        if its and its["kind"] == "Deployment"
    }
    return [found[name] for name in NAMES]


@pytest.mark.parametrize(
    ("managed", "number"),
    [
        pytest.param(None, None, id="first installation"),
        pytest.param([UPDATED], LIVE_REPLICAS, id="Helm 3"),
        pytest.param([entry("Update", "selector"), AUTOSCALER], LIVE_REPLICAS, id="Helm 3, scaled"),
        pytest.param([UPDATED, LABEL], LIVE_REPLICAS, id="Helm 3, a label of others"),
        pytest.param([UPDATED, NUMBER], LIVE_REPLICAS, id="Helm 3, the number of others"),
        pytest.param([APPLIED], LIVE_REPLICAS, id="Helm 4"),
        pytest.param([APPLIED, LABEL], LIVE_REPLICAS, id="Helm 4, a label of others"),
        pytest.param([APPLIED_WITHOUT_NUMBER, AUTOSCALER], None, id="Helm 4, scaled"),
        pytest.param([APPLIED_WITHOUT_NUMBER, NUMBER], None, id="Helm 4, the number of others"),
    ],
)
def test_the_number_of_pods_stays_until_it_is_the_autoscalers(
    managed: Sequence[Manifest] | None, number: int | None
) -> None:
    """A manifest without the number, from one with it, would leave one pod."""
    assert rendered_replicas("keda", managed) == [number, number]
    # Nothing scales workers by the HorizontalPodAutoscaler; their number is in the values.
    assert rendered_replicas("hpa", managed) == [number, 2]
