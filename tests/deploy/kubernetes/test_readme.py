"""The operators' manuals say what is there: alarms, Secrets, steps, and what was not run."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.deploy.kubernetes.manifests import (
    FOLDER,
    INSTALLATIONS,
    RENDERED,
    ROOT,
    rendered,
    workloads,
)

README: Final = (FOLDER / "README.md").read_text()
RUNBOOK: Final = (FOLDER / "runbook.md").read_text()
LOCAL: Final = (FOLDER / "overlays/local/README.md").read_text()
ALERTS: Final = [
    rule["alert"]
    for name in ("alerts.yaml", "kubernetes_alerts.yaml")
    for group in yaml.safe_load((ROOT / "deploy/observability" / name).read_text())["groups"]
    for rule in group["rules"]
]
MANUALS: Final = f"{README}\n{RUNBOOK}\n{LOCAL}"
SHELL: Final = re.findall(r"^```sh\n(.*?)^```$", MANUALS, re.DOTALL | re.MULTILINE)
STEPS: Final = ["ground", "servers", "migrate", "provision", "serve"]


def section(manual: str, heading: str) -> str:
    """Return what is under a heading, down to the next one of any kind."""
    _, _, rest = manual.partition(f"\n{heading}\n")
    assert rest, heading
    return re.split(r"^#+ ", rest, maxsplit=1, flags=re.MULTILINE)[0].strip()


def test_every_alarm_has_a_section_in_their_order_and_says_what_to_do() -> None:
    assert re.findall(r"^### (Chatlane\w+)$", RUNBOOK, re.MULTILINE) == ALERTS
    for alert in ALERTS:
        assert re.search(r"\*(Now|Then)\*", section(RUNBOOK, f"### {alert}")), alert


def test_every_alarm_names_its_section() -> None:
    rules = [
        rule
        for name in ("alerts.yaml", "kubernetes_alerts.yaml")
        for group in yaml.safe_load((ROOT / "deploy/observability" / name).read_text())["groups"]
        for rule in group["rules"]
    ]
    urls = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules}
    assert urls == {name: f"deploy/kubernetes/runbook.md#{name.lower()}" for name in ALERTS}


def secrets_table() -> dict[tuple[str, str], set[str]]:
    """Return the keys of each Secret that operators bring, by namespace and name."""
    rows = re.findall(r"^\| `(chatlane-[a-z-]+)` \| ([a-z-]+) \| (.+?) \|", README, re.MULTILINE)
    namespaces = {"both": ["chatlane", "chatlane-agent-main"]}
    return {
        (namespace, name): set(re.findall(r"`([^`]+)`", keys))
        for name, place, keys in rows
        for namespace in namespaces.get(place, [place])
    }


def mounted_secrets() -> dict[tuple[str, str], set[str]]:
    """Return the keys of each Secret that some pod of ours, or of the chart of NATS, mounts."""
    found: dict[tuple[str, str], set[str]] = {}
    for overlay in RENDERED:
        for its in workloads(overlay):
            namespace = its.manifest["metadata"]["namespace"]
            for volume in its.pod["volumes"]:
                for source in volume.get("projected", {}).get("sources", ()):
                    if secret := source.get("secret"):
                        keys = {item["key"] for item in secret["items"]}
                        found.setdefault((namespace, secret["name"]), set()).update(keys)
                if secret := volume.get("secret"):
                    found.setdefault((namespace, secret["secretName"]), set())
    return found


def test_every_secret_that_is_mounted_is_one_that_operators_bring() -> None:
    brought, mounted = secrets_table(), mounted_secrets()
    assert brought.keys() == mounted.keys()
    for place, keys in mounted.items():
        assert keys <= brought[place], place


def test_what_cloudnativepg_and_nats_are_told_to_use_is_brought_too() -> None:
    (cluster,) = [its for its in rendered("production") if its["kind"] == "Cluster"]
    roles = cluster["spec"]["managed"]["roles"]
    named = {its["passwordSecret"]["name"] for its in roles if "passwordSecret" in its}
    named.add(cluster["spec"]["bootstrap"]["initdb"]["secret"]["name"])
    named |= set(
        re.findall(r"secretName: (chatlane-[a-z-]+)", (FOLDER / "nats/values.yaml").read_text())
    )
    assert {("chatlane", name) for name in named} <= secrets_table().keys()


def test_roll_outs_apply_all_steps_in_their_order_and_wait_for_the_jobs() -> None:
    rolled = [block for block in SHELL if "chatlane/step=" in block]
    assert len(rolled) == 2
    for block in rolled:
        assert re.findall(r"chatlane/step=(\w+)", block) == STEPS
        for step in ("migrate", "provision"):
            waited = block.index(f"wait job/chatlane-{step} --for=condition=Complete")
            assert block.index(f"chatlane/step={step}") < waited
            assert waited < block.index(f"chatlane/step={STEPS[STEPS.index(step) + 1]}\n")


@pytest.mark.parametrize("overlay", INSTALLATIONS)
def test_the_steps_are_those_of_the_manifests(overlay: str) -> None:
    used = {its["metadata"]["labels"]["chatlane/step"] for its in rendered(overlay)}
    assert used <= set(STEPS)
    assert used >= set(STEPS) - {"servers"}


def test_objects_that_commands_name_are_rendered() -> None:
    named = set(
        re.findall(r"\b(deployment|cronjob|cluster|statefulset|scaledobject)/([a-z-]+)", MANUALS)
    )
    known = {
        (its["kind"].lower(), its["metadata"]["name"])
        for overlay in RENDERED
        for its in rendered(overlay)
    }
    assert named - known == set()


def test_folders_are_all_told_of() -> None:
    shown = set(re.findall(r"^\| `([a-z-]+(?:/[a-z-]+)?)/` \|", README, re.MULTILINE))
    there = {
        str(path.parent.relative_to(FOLDER))
        for path in FOLDER.rglob("kustomization.yaml")
        if path.parent.parent.name != "components"
    }
    assert shown == there | {"components", "nats"}


def test_certificates_of_a_local_cluster_are_good_for_those_who_look_closely(
    tmp_path: Path,
) -> None:
    """As Python does from 3.13 on, where whoever uses them may be written in it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is missing")
    (block,) = [its for its in SHELL if "openssl req" in its]
    made = re.findall(
        r"^(?:openssl (?:req|x509)|printf).*?(?<![\\|])\n", block, re.DOTALL | re.MULTILINE
    )
    subprocess.run(["/bin/sh", "-ec", "".join(made)], cwd=tmp_path, check=True, capture_output=True)  # noqa: S603 # what the README says
    for name in ("nats.chatlane.svc", "postgres.chatlane.svc"):
        subprocess.run(  # noqa: S603
            [
                *("openssl", "verify", "-x509_strict", "-purpose", "sslserver"),
                *("-CAfile", "ca.crt", "-verify_hostname", name, "tls.crt"),
            ],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )


def test_a_new_operator_reads_150_lines_at_most() -> None:
    assert len(README.splitlines()) <= 150


def test_what_was_not_run_is_one_list() -> None:
    said = section((FOLDER / "checks.md").read_text(), "## What was not run")
    for name in ("A real cluster", "KEDA", "CloudNativePG", "Argo CD", "chart of NATS"):
        assert name in said
