"""`make release`: one number everywhere, and artefacts that another build repeats byte for byte."""

import hashlib
import runpy
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]


# A single file in no package; imported, it would leave compiled code beside it.
release: Final = SimpleNamespace(**runpy.run_path(str(ROOT / "deploy" / "release.py")))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a repository with the files of ours that have the number, the chart and a changelog."""
    root = tmp_path / "checkout"
    for path in (ROOT / "pyproject.toml", *(path for path, _ in release.places(ROOT))):
        target = root / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copytree(ROOT / release.CHART, root / release.CHART, dirs_exist_ok=True)
    (root / "CHANGELOG.md").write_text("# Changes\n\n## 0.1.0 (unreleased)\n", "utf-8")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "change")


def test_all_files_have_the_same_version() -> None:
    assert release.version_of(ROOT) == "0.1.0"


def test_a_version_is_written_everywhere(checkout: Path) -> None:
    release.write_version(checkout, "0.2.0rc1")
    assert release.versions(checkout).keys() == {"0.2.0rc1"}
    texts = [path.read_text("utf-8") for path, _ in release.places(checkout)]
    assert not [text for text in texts if "0.1.0" in text]


@pytest.mark.parametrize("version", ["", "1", "v0.2.0", "0.2.0 ", "0.2.0-dev"])
def test_what_is_no_version_is_refused(checkout: Path, version: str) -> None:
    with pytest.raises(release.ReleaseError, match="is no version"):
        release.write_version(checkout, version)
    assert release.version_of(checkout) == "0.1.0"


def test_a_file_with_another_version_is_named(checkout: Path) -> None:
    chart = checkout / release.CHART / "Chart.yaml"
    chart.write_text(chart.read_text("utf-8").replace("appVersion: 0.1.0", "appVersion: 0.0.9"))
    with pytest.raises(release.ReleaseError, match=r"0\.0\.9 in deploy/chart/Chart\.yaml"):
        release.version_of(checkout)


def test_the_chart_is_packed_the_same_each_time(checkout: Path, tmp_path: Path) -> None:
    archives = []
    for name in ("first", "second"):
        directory = tmp_path / name
        directory.mkdir()
        archives.append(release.pack_chart(checkout, "0.1.0", directory, 1_700_000_000))
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as archive:
        names = archive.getnames()
        chart = archive.extractfile("chatlane/Chart.yaml")
        assert chart is not None
        assert yaml.safe_load(chart)["version"] == "0.1.0"
    assert {"chatlane/values.yaml", "chatlane/values.schema.json"} <= set(names)
    assert any(name.startswith("chatlane/templates/") for name in names)


def test_a_release_needs_its_changelog_and_a_clean_tree(checkout: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def build() -> None:
        release.build(checkout, out, registry="r", is_trial=False, has_image=False)

    with pytest.raises(release.ReleaseError, match=r'no heading "## 0\.1\.0 \(YYYY-MM-DD\)"'):
        build()
    (checkout / "CHANGELOG.md").write_text("## 0.1.0 (2026-01-31)\n", "utf-8")
    with pytest.raises(release.ReleaseError, match="not committed"):
        build()
    assert not out.exists()


def test_without_buildx_the_image_is_not_left_out_in_silence(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git_alone = tmp_path / "bin"
    git_alone.mkdir()
    found = shutil.which("git")
    assert found is not None
    (git_alone / "git").symlink_to(found)
    monkeypatch.setenv("PATH", str(git_alone))
    with pytest.raises(release.ReleaseError, match="buildx"):
        release.build(checkout, tmp_path / "out", registry="r", is_trial=True, has_image=True)


@pytest.mark.slow
def test_a_release_has_all_packages_the_chart_and_their_checksums(tmp_path: Path) -> None:
    out = tmp_path / "release"
    command = [sys.executable, "deploy/release.py", "build", "--trial", "--no-image"]
    command += ["--out", str(out), "--registry", "registry.example"]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert "/release/chatlane-0.1.0.tgz oci://registry.example/charts" in printed
    built = {path.name for path in (out / "packages").iterdir()}
    for project in release.projects(ROOT):
        package = next((project.parent).glob("chatlane*")).name
        assert {f"{package}-0.1.0.tar.gz", f"{package}-0.1.0-py3-none-any.whl"} <= built
    sums = (out / "SHA256SUMS").read_text("utf-8").splitlines()
    assert len(sums) == len(built) + 1
    for entry in sums:
        digest, name = entry.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
