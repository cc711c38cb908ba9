"""Images are named with their content, and Renovate finds each one that is to be updated."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
(MANAGER,) = json.loads((ROOT / "renovate.json").read_text("utf-8"))["customManagers"]
FILES: Final = sorted(
    path
    for path in (ROOT / "deploy").rglob("*")
    if any(
        re.search(pattern.strip("/"), path.relative_to(ROOT).as_posix())
        for pattern in MANAGER["managerFilePatterns"]
    )
)
# JavaScript writes a named group without the P.
PINS: Final = [re.compile(pattern.replace("(?<", "(?P<")) for pattern in MANAGER["matchStrings"]]
# The digest is not known where no registry can be asked; Renovate adds it.
WITHOUT_DIGEST: Final = {"nats:2.15.1-alpine"}


def pins() -> Iterator[tuple[str, str]]:
    """Yield tag and digest of every image that Renovate finds."""
    for path in FILES:
        for pattern in PINS:
            for found in pattern.finditer(path.read_text("utf-8")):
                yield f"{found['depName']}:{found['currentValue']}", found["currentDigest"] or ""


def test_every_image_is_pinned_to_one_content() -> None:
    found = set(pins())
    assert {tag for tag, _ in found} >= {"python:3.11-slim", "postgres:18", *WITHOUT_DIGEST}
    assert {tag for tag, digest in found if not digest} == WITHOUT_DIGEST
    assert len(found) == len({tag for tag, _ in found})


def test_renovate_finds_every_image_of_deploy() -> None:
    named = [
        line
        for path in FILES
        for line in path.read_text("utf-8").splitlines()
        if re.match(r"\s*(image:|FROM )", line) and not re.search(r"CHATLANE_(ROUTER_)?IMAGE", line)
    ]
    assert named
    assert [line for line in named if not any(pin.search(line) for pin in PINS)] == [
        "FROM ${PYTHON_IMAGE} AS build",
        "FROM ${PYTHON_IMAGE}",
    ]


def test_no_file_of_deploy_names_an_image_that_renovate_does_not_read() -> None:
    image = re.compile(r"(?:nats|postgres|python):\d[\w.-]*@sha256:")
    others = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "deploy").rglob("*"))
        if path.is_file() and path not in FILES and image.search(path.read_text("utf-8"))
    ]
    assert others == []
