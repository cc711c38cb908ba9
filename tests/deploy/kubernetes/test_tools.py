"""What well-kept checkers say about the manifests, each without a network."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.kubernetes.custom_resources import is_custom
from tests.deploy.kubernetes.manifests import FOLDER, RENDERED, rendered, rendered_text, tool

VERSIONS: Final = ("1.35", "1.36", "1.37")

# Each finding that stays, with its reason. One that is found no more is to be taken out.
REVIEWED: Final = {
    ("local-agent", "CKV_K8S_15"): "as in local",
    ("local-agent", "CKV_K8S_43"): "as in local",
    ("local", "CKV_K8S_15"): "the image is built on this machine; there is nowhere to pull it from",
    ("local", "CKV_K8S_43"): "what was built a minute ago has no digest in a registry",
}


def run(*command: str | Path, timeout: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 # the tools we were given
        command,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"},
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.timeout(150)
def test_kubernetes_takes_every_object(version: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{overlay}.yaml" for overlay in RENDERED]
    for path in paths:
        path.write_text(rendered_text(path.stem))
    done = run(
        tool("kubernetes-validate"),
        *("--strict", "--kubernetes-version", version),
        *paths,
        timeout=120,
    )
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0, said
    passed = [line for line in said if " passed for resource " in line]
    unknown = [line for line in said if "Couldn't find schema" in line]
    everything = [its for overlay in RENDERED for its in rendered(overlay)]
    custom = [its for its in everything if is_custom(its)]
    assert (len(passed), len(unknown)) == (len(everything) - len(custom), len(custom))
    assert len(said) == len(passed) + len(unknown)


def checked(folder: Path) -> list[dict[str, Any]]:
    """Return the failed and skipped checks of everything in a folder."""
    done = run(
        *(tool("checkov"), "--directory", folder),
        *("--framework", "kubernetes", "--skip-download", "--output", "json"),
        timeout=280,
    )
    (report,) = [its for its in _reports(done.stdout) if its["check_type"] == "kubernetes"]
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 200
    assert report["results"]["skipped_checks"] == []
    failed: list[dict[str, Any]] = report["results"]["failed_checks"]
    return failed


def _reports(text: str) -> list[dict[str, Any]]:
    said = json.loads(text)
    return said if isinstance(said, list) else [said]


@pytest.mark.timeout(300)
def test_checkov_finds_what_was_reviewed_and_nothing_else(tmp_path: Path) -> None:
    for overlay in RENDERED:
        (tmp_path / f"{overlay}.yaml").write_text(rendered_text(overlay))
    found = {
        (Path(its["file_path"]).stem, its["check_id"]): its["check_name"]
        for its in checked(tmp_path)
    }
    assert found.keys() == REVIEWED.keys(), found


def test_nothing_tells_a_checker_to_look_away() -> None:
    texts = {path: path.read_text() for path in FOLDER.rglob("*") if path.is_file()}
    assert [
        path for path, text in texts.items() if "checkov" in text and path.suffix != ".md"
    ] == []
