"""Images are named with their content, and `make bump-images` names the newest."""

import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.deploy.compose_stack import ran

ROOT: Final = Path(__file__).parents[2]
SCRIPT: Final = ROOT / "deploy/bump_images.py"
BUMP: Final[dict[str, Any]] = runpy.run_path(str(SCRIPT))
ZEROS: Final = "@sha256:" + "0" * 64
# Its digest is not known where no registry can be asked. The first `make bump-images` gives it
# one; then this is empty.
WITHOUT_DIGEST: Final = {"nats:2.15.1-alpine"}


def pins() -> list[tuple[str, str]]:
    """Return tag and digest of every image that the files of deploy/ name."""
    found = [match for path in BUMP["PINNING"] for match in BUMP["PIN"].finditer(path.read_text())]
    return [(its["tag"], its["digest"] or "") for its in found]


def test_every_image_is_pinned_to_one_content() -> None:
    assert {tag for tag, _ in pins()} >= {"python:3.11-slim", "postgres:18", *WITHOUT_DIGEST}
    assert {tag for tag, digest in pins() if not digest} == WITHOUT_DIGEST
    assert len(set(pins())) == len({tag for tag, _ in pins()})


def test_every_image_of_deploy_is_one_that_is_bumped() -> None:
    named = [
        line
        for path in BUMP["PINNING"]
        for line in path.read_text().splitlines()
        if re.match(r"\s*(image:|FROM )", line) and not re.search(r"CHATLANE_(ROUTER_)?IMAGE", line)
    ]
    assert named
    assert [its for its in named if not re.search(BUMP["PIN"], its)] == [
        "FROM ${PYTHON_IMAGE} AS build",
        "FROM ${PYTHON_IMAGE}",
    ]


class Docker:
    """A `docker` that answers as the real one does about images it has pulled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._digests: dict[str, str] = {}

    def knows(self, tag: str, digest: str) -> None:
        self._digests[tag] = digest

    async def bump(self, *files: Path) -> str:
        cases = "".join(
            f"    'pull --quiet {tag}') ;;\n"
            "    'image inspect --format {{json .RepoDigests}} "
            f'{tag}\') echo \'["elsewhere/x@sha256:{"e" * 64}","{tag.rpartition(":")[0]}@{its}"]\' ;;\n'
            for tag, its in self._digests.items()
        )
        program = self._folder / "docker"
        program.write_text(
            f'#!/bin/sh\ncase "$*" in\n{cases}    *) echo "not found" >&2; exit 1 ;;\nesac\n'
        )
        program.chmod(0o755)
        path = f"{self._folder}:{os.environ['PATH']}"
        return await ran(sys.executable, str(SCRIPT), *map(str, files), environment={"PATH": path})


@pytest.fixture
def docker(tmp_path: Path) -> Docker:
    folder = tmp_path / "bin"
    folder.mkdir()
    return Docker(folder)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    dockerfile, compose = tmp_path / "Dockerfile", tmp_path / "compose.yaml"
    dockerfile.write_text(f"# base\nARG PYTHON_IMAGE=python:3.11-slim{ZEROS}\nFROM x\n")
    compose.write_text(
        "image: ${CHATLANE_NATS_IMAGE:-127.0.0.1:5000/nats:2-alpine}\n"
        f"image: ${{CHATLANE_POSTGRES_IMAGE:-postgres:18{ZEROS}}}\n"
        "image: ${CHATLANE_IMAGE:-chatlane:dev}\n"
    )
    return dockerfile, compose


async def test_a_bump_writes_the_digest_of_each_tag(
    docker: Docker, files: tuple[Path, Path]
) -> None:
    a, b, c = (f"sha256:{letter * 64}" for letter in "abc")
    docker.knows("python:3.11-slim", a)
    docker.knows("127.0.0.1:5000/nats:2-alpine", b)
    docker.knows("postgres:18", c)
    assert await docker.bump(*files) == "Dockerfile: pinned anew\ncompose.yaml: pinned anew\n"
    dockerfile, compose = files
    assert dockerfile.read_text() == f"# base\nARG PYTHON_IMAGE=python:3.11-slim@{a}\nFROM x\n"
    assert compose.read_text() == (
        f"image: ${{CHATLANE_NATS_IMAGE:-127.0.0.1:5000/nats:2-alpine@{b}}}\n"
        f"image: ${{CHATLANE_POSTGRES_IMAGE:-postgres:18@{c}}}\n"
        "image: ${CHATLANE_IMAGE:-chatlane:dev}\n"
    )
    assert await docker.bump(*files) == (
        "Dockerfile: pins the newest already\ncompose.yaml: pins the newest already\n"
    )


async def test_nothing_is_written_when_one_image_cannot_be_asked_for(
    docker: Docker, files: tuple[Path, Path]
) -> None:
    docker.knows("python:3.11-slim", f"sha256:{'a' * 64}")
    before = [path.read_text() for path in files]
    words = r"exit 1\ndocker pull --quiet 127\.0\.0\.1:5000/nats:2-alpine: not found\n$"
    with pytest.raises(AssertionError, match=words):
        await docker.bump(*files)
    assert [path.read_text() for path in files] == before


@pytest.mark.containers
async def test_a_registry_is_asked_for_the_base_that_the_image_is_built_from(
    tmp_path: Path,
) -> None:
    (base,) = re.findall(
        r"^ARG PYTHON_IMAGE=(.+)$", (ROOT / "deploy/Dockerfile").read_text(), re.MULTILINE
    )
    used = os.environ.get("CHATLANE_PYTHON_IMAGE", base)
    tag, _, _ = used.partition("@")
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"ARG PYTHON_IMAGE={tag}{ZEROS}\n")
    await ran(sys.executable, str(SCRIPT), str(dockerfile))
    bumped = dockerfile.read_text().strip().removeprefix("ARG PYTHON_IMAGE=")
    assert re.fullmatch(re.escape(tag) + r"@sha256:[0-9a-f]{64}", bumped)
    assert ZEROS not in bumped
    await ran("docker", "pull", "--quiet", bumped)
