"""The conformance suite judges the example, and copies of it with faults."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.conform.judge_run import (
    CHECKS,
    Installation,
    judge_adapter,
    open_installation,
)
from chatlane_devkit.conform.report import Finding, Outcome, passes
from chatlane_devkit.conform.scenes.scripted import open_scripted_scene
from chatlane_servers.binaries import server_directory
from tests.acceptance.conform.planted_faults import FAULTS, PlantedFault

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(180),
]

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
BY_NAME: Final = {check.name: check for check in CHECKS}


@pytest.fixture(scope="module")
async def installation() -> AsyncIterator[Installation]:
    with server_directory() as directory:
        async with (
            open_scripted_scene() as scene,
            open_installation(directory, scene) as running,
        ):
            yield running


def command_of(program: Path) -> str:
    return shlex.join([sys.executable, str(program)])


async def judged(
    program: Path, installation: Installation, logs: Path, *names: str
) -> dict[str, Finding]:
    async with open_scripted_scene() as scene:
        findings = await judge_adapter(
            command_of(program),
            installation,
            scene,
            logs,
            checks=[BY_NAME[name] for name in names or BY_NAME],
            patience=10 if names else 40,
        )
    return {finding.check: finding for finding in findings}


async def test_the_example_passes_every_check(installation: Installation, tmp_path: Path) -> None:
    found = await judged(EXAMPLES / "chat_adapter.py", installation, tmp_path)
    reasons = {name: it.reason for name, it in found.items() if it.outcome is not Outcome.PASSED}
    assert reasons == {}
    assert passes(list(found.values()))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_planted_fault_fails_its_check(
    installation: Installation, tmp_path: Path, fault: PlantedFault
) -> None:
    source = (EXAMPLES / "chat_adapter.py").read_text("utf-8")
    assert source.count(fault.old) == 1
    (tmp_path / "chat_platform.py").write_text((EXAMPLES / "chat_platform.py").read_text("utf-8"))
    program = tmp_path / "chat_adapter.py"
    program.write_text(source.replace(fault.old, fault.new), "utf-8")
    found = await judged(program, installation, tmp_path, "answers", fault.found_by)
    assert found["answers"].outcome is Outcome.PASSED
    assert found[fault.found_by].outcome is Outcome.FAILED
    assert found[fault.found_by].advice


async def test_the_command_judges_against_a_running_router(installation: Installation) -> None:
    example = command_of(EXAMPLES / "chat_adapter.py")
    command = [sys.executable, "-m", "chatlane", "conform", "adapter", "--cmd", example, "--json"]
    command += ["--nats-url", installation.nats_url, "--check", "answers", "--patience", "40"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    report = json.loads(output)
    assert [(it["check"], it["outcome"]) for it in report["checks"]] == [("answers", "passed")]
    assert process.returncode == 0


async def test_the_command_fails_with_an_adapter_that_does_nothing(
    installation: Installation,
) -> None:
    command = [sys.executable, "-m", "chatlane", "conform", "adapter", "--cmd", "sleep 60"]
    command += ["--nats-url", installation.nats_url, "--patience", "1"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert b"Fix: " in output
    assert b"1 failed, 16 skipped" in output
    assert process.returncode == 1
