"""What well-kept checkers say about the manifests, each without a network."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.chart.test_chart import VARIANTS, chart_objects
from tests.deploy.kubernetes.custom_resources import is_custom
from tests.deploy.kubernetes.manifests import (
    FOLDER,
    RENDERED,
    Manifest,
    objects,
    rendered,
    tool,
)

VERSIONS: Final = ("1.35", "1.36", "1.37")

# Each finding that stays, with its reason. One that is found no more is to be taken out.
REVIEWED: Final = {
    ("chart-keda", "CKV_K8S_8"): "an adapter with an image of its own; nobody knows its probes",
    ("chart-keda", "CKV_K8S_9"): "as CKV_K8S_8",
    ("local-agent", "CKV_K8S_15"): "as in local",
    ("local-agent", "CKV_K8S_43"): "as in local",
    ("local", "CKV_K8S_15"): "the image is built on this machine; there is nowhere to pull it from",
    ("local", "CKV_K8S_43"): "what was built a minute ago has no digest in a registry",
}


def run(
    *command: str | Path, timeout: float, text: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 # the tools we were given
        command,
        check=False,
        capture_output=True,
        text=True,
        input=text,
        timeout=timeout,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
    )


# Both tools as libraries: their programs import much that is not needed here.
_VALIDATE: Final = """
import json, sys
import kubernetes_validate
given = json.load(sys.stdin)
for version in given["versions"]:
    for its in given["objects"]:
        try:
            kubernetes_validate.validate(its, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            print(version, its["kind"], its["metadata"]["name"], error.message)
"""
_CHECK: Final = """
import json, sys
from checkov.kubernetes.runner import Runner
from checkov.runner_filter import RunnerFilter
report = Runner().run(sys.argv[1], runner_filter=RunnerFilter(framework=["kubernetes"]))
found = [[its.file_path, its.check_id, its.check_name] for its in report.failed_checks]
counts = [len(report.passed_checks), len(report.skipped_checks), len(report.parsing_errors)]
print(json.dumps([found, counts]))
"""


def installed() -> dict[str, tuple[Manifest, ...]]:
    """Return the objects of each overlay and of each variant of the chart."""
    overlays = {name: rendered(name) for name in RENDERED}
    return overlays | {f"chart-{name}": chart_objects(name) for name in VARIANTS}


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_kubernetes_takes_every_object() -> None:
    everything = [its for found in installed().values() for its in found if not is_custom(its)]
    different = {json.dumps(its, sort_keys=True): its for its in everything}
    given = json.dumps({"versions": VERSIONS, "objects": list(different.values())})
    done = run(tool("python"), "-c", _VALIDATE, timeout=120, text=given)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    broken = {**objects("production", "Deployment")["chatlane-router"], "kind": "Deployment"}
    broken["spec"] = {**broken["spec"], "replica": 3}
    given = json.dumps({"versions": VERSIONS, "objects": [broken]})
    done = run(tool("python"), "-c", _VALIDATE, timeout=120, text=given)
    assert len(done.stdout.splitlines()) == len(VERSIONS), done.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_checkov_finds_what_was_reviewed_and_nothing_else(tmp_path: Path) -> None:
    for name, found in installed().items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump_all(found))
    done = run(tool("python"), "-c", _CHECK, tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    failed, (passed, skipped, unread) = json.loads(done.stdout.splitlines()[-1])
    assert passed > 200
    assert (skipped, unread) == (0, 0)
    named = {(Path(path).stem, check): name for path, check, name in failed}
    assert named.keys() == REVIEWED.keys(), named


def test_nothing_tells_a_checker_to_look_away() -> None:
    texts = {path: path.read_text() for path in FOLDER.rglob("*") if path.is_file()}
    assert [
        path for path, text in texts.items() if "checkov" in text and path.suffix != ".md"
    ] == []
