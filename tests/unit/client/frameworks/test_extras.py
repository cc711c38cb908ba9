"""The extras of the client for frameworks: documented, resolved together, and tested as they are declared."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[4]
ROW = re.compile(r"^\| `([a-z-]+)` \| `\.\w+` \|", re.MULTILINE)
# It is about files.
OTHERS = {"media"}


def read(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text("utf-8"))


DECLARED = {
    extra: Requirement(requirement)
    for extra, [requirement] in (
        (extra, requirements)
        for extra, requirements in read("client/pyproject.toml")["project"][
            "optional-dependencies"
        ].items()
        if extra not in OTHERS
    )
}


def test_each_extra_of_a_framework_is_documented() -> None:
    document = (ROOT / "docs" / "writing-a-worker.md").read_text("utf-8")
    assert sorted(DECLARED) == sorted(ROW.findall(document))


@pytest.mark.parametrize("extra", DECLARED)
def test_tests_run_with_the_version_of_the_lock_file_and_the_oldest_that_is_declared(
    extra: str,
) -> None:
    """One lock file has one version of each, so the extras install together."""
    requirement = DECLARED[extra]
    [locked] = [
        it["version"] for it in read("uv.lock")["package"] if it["name"] == requirement.name
    ]
    assert version(requirement.name) == locked
    assert locked in requirement.specifier
    # An older one that nobody has tried is not promised.
    [oldest] = [it.version for it in requirement.specifier if it.operator == ">="]
    assert f"{locked}.".startswith(f"{oldest}.")
    assert any(it.operator == "<" for it in requirement.specifier)
