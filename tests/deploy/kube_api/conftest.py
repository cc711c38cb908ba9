"""A cluster for all tests of this folder, and a clean one for each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.deploy.kube_api.cluster import Cluster, open_cluster
from tests.deploy.kube_api.control_plane import missing_programs


@pytest.fixture(scope="session")
async def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """The cluster of the run."""
    if missing := missing_programs():
        pytest.skip(f"not on PATH: {', '.join(missing)}; `make kube-api` says how")
    async with open_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
async def cluster(running_cluster: Cluster, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The cluster without an installation, and a new copy of `deploy` with a release."""
    running_cluster.take_checkout(tmp_path / "checkout")
    running_cluster.set_release("1")
    yield running_cluster
    await running_cluster.clear()
