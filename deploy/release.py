"""Builds everything of a release into a directory, and prints where each part would be pushed.

    python deploy/release.py version 0.2.0    writes the number into all files that have it
    python deploy/release.py build            wheels, source packages, chart, image, checksums

Needs uv, and for the image Docker with buildx, which adds the bill of materials and the provenance
as attestations. Nothing is pushed.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PLATFORMS: Final = "linux/amd64,linux/arm64"
CHART: Final = Path("deploy/chart")
TYPESCRIPT: Final = Path("typescript")
# Each pattern has the number as its only group.
_IN_PROJECT: Final = (
    re.compile(r'(?m)^version = "([^"]+)"$'),
    re.compile(r'"chatlane(?:-[a-z]+)?(?:\[[^\]]+\])?==([^"]+)"'),
)
_IN_DOCKERFILE: Final = (re.compile(r"(?m)^ARG VERSION=(\S+)$"),)
_IN_CHART: Final = (re.compile(r"(?m)^(?:version|appVersion): (\S+)$"),)
_IN_NPM: Final = (re.compile(r'"name": "@chatlane/client",\n\s+"version": "([^"]+)"'),)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class ReleaseError(Exception):
    """The release cannot be built; the text says what to do."""


def projects(root: Path) -> list[Path]:
    """Return the pyproject.toml of each distribution."""
    workspace = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    members: list[str] = workspace["tool"]["uv"]["workspace"]["members"]
    return [root / member / "pyproject.toml" for member in members]


def places(root: Path) -> Iterator[tuple[Path, Sequence[re.Pattern[str]]]]:
    """Yield each file that has the number, and the patterns that find it there."""
    for path in projects(root):
        yield path, _IN_PROJECT
    yield root / "deploy" / "Dockerfile", _IN_DOCKERFILE
    yield root / CHART / "Chart.yaml", _IN_CHART
    yield root / TYPESCRIPT / "package.json", _IN_NPM
    yield root / TYPESCRIPT / "package-lock.json", _IN_NPM


def npm_version(version: str) -> str:
    """Return the number as npm wants it: 0.2.0rc1 is 0.2.0-rc.1."""
    return re.sub(r"(a|b|rc)(\d+)$", r"-\1.\2", version)


def python_version(version: str) -> str:
    """Return the number of npm as Python packages have it."""
    return re.sub(r"-(a|b|rc)\.(\d+)$", r"\1\2", version)


def versions(root: Path) -> dict[str, set[Path]]:
    """Return the numbers that the files have, with the files of each."""
    found: dict[str, set[Path]] = {}
    for path, patterns in places(root):
        text = path.read_text("utf-8")
        for pattern in patterns:
            for match in pattern.finditer(text):
                found.setdefault(python_version(match[1]), set()).add(path)
    return found


def version_of(root: Path) -> str:
    """Return the number of the release.

    Raises:
        ReleaseError: Files differ.
    """
    found = versions(root)
    if len(found) != 1:
        shown = "; ".join(
            f"{number} in {', '.join(sorted(str(path.relative_to(root)) for path in paths))}"
            for number, paths in sorted(found.items())
        )
        raise ReleaseError(f"the version differs between files: {shown}")
    return next(iter(found))


def write_version(root: Path, version: str) -> None:
    """Write the number into all files that have it.

    Raises:
        ReleaseError: It is no version.
    """
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is no version such as 0.2.0 or 0.2.0rc1")

    for path, patterns in places(root):
        number = npm_version(version) if patterns is _IN_NPM else version

        def replaced(match: re.Match[str], number: str = number) -> str:
            begin, end = match.start(1) - match.start(), match.end(1) - match.start()
            return match[0][:begin] + number + match[0][end:]

        text = path.read_text("utf-8")
        for pattern in patterns:
            text = pattern.sub(replaced, text)
        path.write_text(text, "utf-8")


def released_notes(root: Path, version: str) -> None:
    """Check that the changelog has a section of the version that is not marked as unreleased.

    Raises:
        ReleaseError: There is none.
    """
    headings = re.findall(r"(?m)^## (.+)$", (root / "CHANGELOG.md").read_text("utf-8"))
    if not any(re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", it) for it in headings):
        raise ReleaseError(
            f'CHANGELOG.md has no heading "## {version} (YYYY-MM-DD)"; a trial needs --trial'
        )


def pack_chart(root: Path, version: str, directory: Path, epoch: int) -> Path:
    """Write the chart as the archive that `helm push` takes; the same files give the same bytes."""
    target = directory / f"chatlane-{version}.tgz"
    # Some files are links to files and folders beside the chart.
    files = sorted(
        Path(folder) / name
        for folder, _, names in os.walk(root / CHART, followlinks=True)
        for name in names
    )
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in files:
            content = path.read_bytes()
            entry = tarfile.TarInfo(f"chatlane/{path.relative_to(root / CHART).as_posix()}")
            entry.size, entry.mtime, entry.mode = len(content), epoch, 0o644
            archive.addfile(entry, io.BytesIO(content))
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=epoch) as packed:
        packed.write(buffer.getvalue())
    return target


def image_command(version: str, revision: str, target: Path) -> list[str]:
    """Return the command that builds the image of all platforms, with its attestations."""
    return [
        *("docker", "buildx", "build", "--file", "deploy/Dockerfile"),
        *("--platform", PLATFORMS, "--sbom=true", "--provenance=mode=max"),
        *("--build-arg", f"VERSION={version}", "--build-arg", f"REVISION={revision}"),
        *("--output", f"type=oci,dest={target}", "."),
    ]


def write_checksums(directory: Path) -> None:
    """Write SHA256SUMS of all files of the directory, as `sha256sum --check` reads it."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(directory)}\n"
        for path in files
    ]
    (directory / "SHA256SUMS").write_text("".join(sums), "utf-8")


def build(root: Path, directory: Path, *, registry: str, is_trial: bool, has_image: bool) -> str:
    """Build all parts, and return how they would be pushed.

    Args:
        root: The checkout.
        directory: Where the parts go; what an earlier run left there is deleted.
        registry: Where image and chart would go, such as `ghcr.io/chatlane`.
        is_trial: Whether an open changelog and changed files are no errors.
        has_image: Whether to build the image, too.

    Raises:
        ReleaseError: Something is missing.
    """
    version = version_of(root)
    if not is_trial:
        released_notes(root, version)
        if _printed(root, "git", "status", "--porcelain").strip():
            raise ReleaseError("there are changes that are not committed; a trial needs --trial")
    if has_image and _fails(root, "docker", "buildx", "version"):
        raise ReleaseError("no Docker with buildx here; --no-image leaves the image out")
    revision = _printed(root, "git", "rev-parse", "HEAD").strip()
    epoch = int(_printed(root, "git", "log", "-1", "--format=%ct").strip())
    shutil.rmtree(directory, ignore_errors=True)
    packages = directory / "packages"
    packages.mkdir(parents=True)
    # Archives get the time of the commit, so that two builds give the same bytes.
    variables = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    uv = str(root / ".venv-tools" / "bin" / "uv")
    command = (uv, "build", "--quiet", "--all-packages", "--out-dir", str(packages))
    subprocess.run(command, cwd=root, check=True, env=variables)
    (packages / ".gitignore").unlink(missing_ok=True)
    chart = pack_chart(root, version, directory, epoch)
    pushes = [
        f"uv publish {_shown(packages)}/*",
        f"helm push {_shown(chart)} oci://{registry}/charts",
    ]
    if has_image:
        image = directory / f"chatlane-image-{version}.tar"
        subprocess.run(image_command(version, revision, image), cwd=root, check=True)
        pushes.append(
            f"skopeo copy --all oci-archive:{_shown(image)} docker://{registry}/chatlane:{version}"
        )
    write_checksums(directory)
    return "".join(f"  {push}\n" for push in pushes)


def _shown(path: Path) -> str:
    """Return a path as a command of this directory names it."""
    return os.path.relpath(path)


def _printed(root: Path, *command: str) -> str:
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def _fails(root: Path, *command: str) -> bool:
    try:
        return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode != 0
    except FileNotFoundError:
        return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return the exit code."""
    parser = argparse.ArgumentParser(description="Build a release.")
    commands = parser.add_subparsers(dest="command", required=True)
    version = commands.add_parser("version", help="write the number into all files that have it")
    version.add_argument("number")
    builder = commands.add_parser("build", help="build all parts; push nothing")
    builder.add_argument("--out", type=Path, default=ROOT / "dist" / "release")
    builder.add_argument("--registry", default="REGISTRY")
    builder.add_argument("--trial", action="store_true", help="allow an open changelog and changes")
    builder.add_argument("--no-image", action="store_true")
    given = parser.parse_args(arguments)
    try:
        if given.command == "version":
            write_version(ROOT, given.number)
            sys.stdout.write(f"now {version_of(ROOT)}; run uv lock, and head the changelog\n")
            return 0
        pushes = build(
            ROOT,
            given.out.resolve(),
            registry=given.registry,
            is_trial=given.trial,
            has_image=not given.no_image,
        )
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"built in {given.out}; nothing was pushed. To push it:\n{pushes}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
