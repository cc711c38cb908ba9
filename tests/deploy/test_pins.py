"""Images are named with their content, and Renovate finds each one that is to be updated."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
MANAGERS: Final = json.loads((ROOT / "renovate.json").read_text("utf-8"))["customManagers"]


def files_of(manager: Mapping[str, Any]) -> list[Path]:
    """Return the files that a manager of Renovate reads."""
    # A pattern between slashes is a regular expression.
    patterns = [pattern[1:-1] for pattern in manager["managerFilePatterns"]]
    return [
        path
        for path in sorted((ROOT / "deploy").rglob("*"))
        if any(re.search(its, path.relative_to(ROOT).as_posix()) for its in patterns)
    ]


def pattern_of(manager: Mapping[str, Any]) -> re.Pattern[str]:
    """Return the expression by which it finds images; JavaScript writes a group without the P."""
    (pattern,) = manager["matchStrings"]
    return re.compile(pattern.replace("(?<", "(?P<"))


FILES: Final = sorted({path for manager in MANAGERS for path in files_of(manager)})
PINS: Final = [pattern_of(manager) for manager in MANAGERS]
TEMPLATE: Final = "autoReplaceStringTemplate"
# The digest is not known where no registry can be asked; Renovate adds it.
WITHOUT_DIGEST: Final = {"nats:2.15.1-alpine"}


def pins() -> Iterator[tuple[str, str]]:
    """Yield tag and digest of every image that Renovate finds."""
    for manager in MANAGERS:
        for path in files_of(manager):
            for found in pattern_of(manager).finditer(path.read_text("utf-8")):
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


def test_an_update_replaces_what_renovate_found() -> None:
    """Renovate writes `autoReplaceStringTemplate` in the place of all that the expression matched."""
    for manager in MANAGERS:
        for path in files_of(manager):
            for found in pattern_of(manager).finditer(path.read_text("utf-8")):
                template = re.sub(r"{{#if newDigest}}(.*){{/if}}", r"\1", manager[TEMPLATE])
                values = {
                    "depName": found["depName"],
                    "newValue": found["currentValue"],
                    "newDigest": found["currentDigest"] or "",
                }
                for name, value in values.items():
                    template = template.replace(f"{{{{{{{name}}}}}}}", value)
                assert found[0] == template.removesuffix("@")


def test_no_file_of_deploy_names_an_image_that_renovate_does_not_read() -> None:
    image = re.compile(r"(?:nats|postgres|python):\d[\w.-]*@sha256:")
    others = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "deploy").rglob("*"))
        if path.is_file() and path not in FILES and image.search(path.read_text("utf-8"))
    ]
    assert others == []
