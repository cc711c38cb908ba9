"""A second release of an installation: what changes, in which order, and what may not change."""

import os
import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.deploy.kubernetes.manifests import FOLDER, INSTALLATIONS, Manifest, kustomized, rendered

WAVES: Final = {"ground": 0, "servers": 1, "migrate": 2, "provision": 3, "serve": 4}
WAVE: Final = "argocd.argoproj.io/sync-wave"
# Fields that the API refuses to change, of the kinds that we render.
IMMUTABLE: Final = {
    "Job": ("template", "selector", "completionMode"),
    "Deployment": ("selector",),
    "StatefulSet": ("selector", "serviceName", "volumeClaimTemplates"),
}

each_installation = pytest.mark.parametrize("overlay", INSTALLATIONS)


def annotations(manifest: Manifest) -> dict[str, str]:
    its: dict[str, str] = manifest["metadata"].get("annotations", {})
    return its


def key_of(manifest: Manifest) -> tuple[str, str]:
    # A changed ConfigMap has another name.
    name = re.sub(r"-[a-z0-9]{10}$", "", manifest["metadata"]["name"])
    return manifest["kind"], name


def next_release(overlay: str, folder: Path) -> dict[tuple[str, str], Manifest]:
    """Return the objects with another image, as a release has them."""
    digest = f"sha256:{'1' * 64}"
    image = (
        {"name": "chatlane", "newTag": "next"}
        if overlay == "local"
        else {"name": "registry.example.com/chatlane", "digest": digest}
    )
    release = folder / "release"
    release.mkdir()
    # kustomize reads nothing by an absolute path.
    resource = os.path.relpath(FOLDER / "overlays" / overlay, release.resolve())
    told: dict[str, Any] = {"resources": [resource], "images": [image]}
    (release / "kustomization.yaml").write_text(yaml.safe_dump(told))
    return {key_of(its): its for its in yaml.safe_load_all(kustomized(release))}


@each_installation
def test_the_waves_of_argo_cd_are_the_steps(overlay: str) -> None:
    for its in rendered(overlay):
        step = its["metadata"]["labels"]["chatlane/step"]
        assert int(annotations(its).get(WAVE, "0")) == WAVES[step], key_of(its)


@each_installation
def test_only_jobs_change_what_the_api_refuses_and_both_tools_replace_them(
    overlay: str, tmp_path: Path
) -> None:
    before = {key_of(its): its for its in rendered(overlay)}
    after = next_release(overlay, tmp_path)
    assert before.keys() == after.keys()
    changed = {key for key in before if before[key] != after[key]}
    assert {kind for kind, _ in changed} == {"CronJob", "Deployment", "Job"}
    refused = {
        key
        for key in changed
        for name in IMMUTABLE.get(key[0], ())
        if before[key]["spec"].get(name) != after[key]["spec"].get(name)
    }
    assert refused == {("Job", "chatlane-migrate"), ("Job", "chatlane-provision")}
    for key in refused:
        told = annotations(after[key])
        # A hook of the phase Sync takes part in its waves.
        assert told["argocd.argoproj.io/hook"] == "Sync"
        assert told["argocd.argoproj.io/hook-delete-policy"] == "BeforeHookCreation"
        assert told["kustomize.toolkit.fluxcd.io/force"] == "enabled"


@each_installation
def test_jobs_wait_for_servers_that_are_applied_at_the_same_time(overlay: str) -> None:
    jobs = {its["metadata"]["name"]: its for its in rendered(overlay) if its["kind"] == "Job"}
    pods = {name: its["spec"]["template"]["spec"] for name, its in jobs.items()}
    migrating = pods["chatlane-migrate"]["initContainers"][0]["args"]
    provisioning = pods["chatlane-provision"]["containers"][0]["args"]
    assert migrating == ["admin", "migrate", "--wait", "10m"]
    assert provisioning == ["admin", "apply", "--wait", "10m"]
