"""The home of a real gateway, made once and copied for each test."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.old_gateway.environment import run_old_gateway


@dataclass(frozen=True)
class OldHome:
    """Where the gateway kept its files, and what it calls each conversation."""

    path: Path
    held: dict[str, dict[str, str]]

    def id(self, name: str) -> str:
        return self.held[name]["id"]

    def key(self, name: str) -> str:
        return self.held[name]["key"]


@pytest.fixture(scope="session")
def made_home(tmp_path_factory: pytest.TempPathFactory) -> OldHome:
    path = tmp_path_factory.mktemp("home")
    return OldHome(path, run_old_gateway("make_home.py", path))


@pytest.fixture
def home(made_home: OldHome, tmp_path: Path) -> OldHome:
    copied = tmp_path / "home"
    shutil.copytree(made_home.path, copied)
    return OldHome(copied, made_home.held)
