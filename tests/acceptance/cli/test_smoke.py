"""The smoke test of an installation, on real servers and as a user of NATS."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from chatlane_servers.embedded import free_port
from tests.support.eventually import eventually
from tests.support.servers.secured_nats import open_secured_nats
from tests.support.service.installation import CONFIG, Installation

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

STEPS = ["connected to NATS", "stored in INBOUND", "routed, and claimed by a worker"]
OWN = ("--account", "terminal/local")


def told_steps(out: str) -> list[str]:
    """Return the steps that have a time."""
    return [found.strip() for found in re.findall(r"^(.+?) +\d+\.\d{3} s$", out, re.MULTILINE)]


async def test_it_tells_the_time_of_each_step(serving: Installation) -> None:
    for _ in range(2):
        ended = await serving.run("smoke", *OWN)

        assert (ended.code, ended.err) == (0, "")
        assert told_steps(ended.out) == [*STEPS, "answered by agent main"]


async def test_without_a_worker_it_fails_and_names_the_last_step(installed: Installation) -> None:
    async with installed.running("router"):
        await eventually(installed.is_ready, timedelta(seconds=60))
        ended = await installed.run("smoke", *OWN, "--wait", "2s")

    assert ended.code == 5
    assert "no answer within 2s after the step 'stored in INBOUND'" in ended.err


async def test_an_account_that_is_not_declared_is_a_wrong_setting(installed: Installation) -> None:
    ended = await installed.run("smoke", "--account", "smoke/other")

    assert ended.code == 2
    assert "[platforms.smoke.accounts.other]" in ended.err


@pytest.fixture
async def secured(
    tmp_path: Path, database_url: str
) -> AsyncIterator[tuple[Installation, list[str]]]:
    """An adapter's commands on servers with users, and what the servers refused."""
    refused: list[str] = []
    (tmp_path / "chatlane.toml").write_text(CONFIG + "[platforms.telegram.accounts.assistant]\n")
    async with open_secured_nats() as nats:

        def of(user: str) -> Installation:
            environment = nats.environment(f"production/{user}")
            return Installation(tmp_path, nats.url, database_url, free_port(), environment)

        await of("provisioner").done("admin", "apply")
        router, worker = of("router"), of("main-worker")
        async with router.running("router"), worker.running("echo-worker"):
            await eventually(router.is_ready, timedelta(seconds=60))
            yield of("telegram-assistant"), refused
        log = nats.server.log_path.read_text("utf-8")
        refused += [line for line in log.splitlines() if "Violation" in line]
        assert refused == []


async def test_an_adapters_user_may_do_all_of_it(
    secured: tuple[Installation, list[str]],
) -> None:
    adapter, _ = secured

    ended = await adapter.run("smoke", "--account", "telegram/assistant")

    assert (ended.code, ended.err) == (0, "")
    assert told_steps(ended.out) == [*STEPS, "answered by agent main"]
