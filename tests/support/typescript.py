"""Build the TypeScript client, and install programs of Node.js, for tests that run them."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
_WITHIN_SECONDS: Final = 300
_OLDEST_NODE: Final = 20


def build_client(directory: Path) -> Path:
    """Build the package from its sources and its lock file alone, and return its directory.

    The build happens in a copy, so that it disturbs neither a developer nor another test. Only
    outside CI a test is skipped for the lack of Node.js.
    """
    _require_node()
    package = directory / "typescript"
    shutil.copytree(
        _ROOT / "typescript",
        package,
        ignore=shutil.ignore_patterns("node_modules", "dist", "contract.ts"),
    )
    shutil.copytree(_ROOT / "schemas" / "json", directory / "schemas" / "json")
    for command in (["npm", "ci", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
        subprocess.run(command, cwd=package, check=True, timeout=_WITHIN_SECONDS)  # noqa: S603
    return package


def install_client(name: str, directory: Path) -> Path:
    """Install a program from its lock file, and return its directory.

    Args:
        name: Its folder in the support of bridges.
        directory: Where it is copied to.

    Only outside CI a test is skipped for the lack of Node.js.
    """
    _require_node()
    package = directory / name
    shutil.copytree(_ROOT / "tests" / "support" / "bridges" / name, package)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    subprocess.run(command, cwd=package, check=True, timeout=_WITHIN_SECONDS)  # noqa: S603
    return package


def _require_node() -> None:
    """Fail without Node.js in CI; elsewhere skip the test."""
    if (reason := _lack()) is not None:
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def _lack() -> str | None:
    """Return what is missing to run npm; None if nothing is."""
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        return "there is no Node.js with npm; .ci/node installs it"
    found = subprocess.run([node, "--version"], check=True, capture_output=True, text=True)  # noqa: S603
    version = found.stdout.strip()
    if int(version.removeprefix("v").partition(".")[0]) < _OLDEST_NODE:
        return f"Node.js {version} is older than {_OLDEST_NODE}"
    return None
