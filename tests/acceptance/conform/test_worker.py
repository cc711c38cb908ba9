"""The conformance suite judges the example of a worker, and copies of it with faults."""

import asyncio
import json
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from chatlane_devkit.conform.judge_run import Installation
from chatlane_devkit.conform.report import Finding, Outcome, passes
from chatlane_devkit.conform.worker.checks import WORKER_CHECKS
from chatlane_devkit.conform.worker.judge_run import judge_worker, open_worker_installation
from chatlane_servers.binaries import server_directory
from tests.acceptance.conform.planted_faults import PlantedFault
from tests.acceptance.conform.worker_faults import FAULTS

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.untimed,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "conform_worker.py"
BY_NAME: Final = {check.name: check for check in WORKER_CHECKS}


@pytest.fixture(scope="module")
async def installation() -> AsyncIterator[Installation]:
    with server_directory() as directory:
        async with open_worker_installation(directory) as running:
            yield running


def command_of(program: Path) -> str:
    return shlex.join([sys.executable, str(program)])


async def judged(
    program: Path, installation: Installation, logs: Path, *names: str
) -> dict[str, Finding]:
    findings = await judge_worker(
        command_of(program),
        installation,
        logs,
        checks=[BY_NAME[name] for name in names or BY_NAME],
        patience=15 if names else 40,
    )
    return {finding.check: finding for finding in findings}


async def test_the_example_passes_every_check(installation: Installation, tmp_path: Path) -> None:
    found = await judged(EXAMPLE, installation, tmp_path)
    reasons = {name: it.reason for name, it in found.items() if it.outcome is not Outcome.PASSED}
    assert reasons == {}
    assert passes(list(found.values()))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_a_planted_fault_fails_its_check(
    installation: Installation, tmp_path: Path, fault: PlantedFault
) -> None:
    source = EXAMPLE.read_text("utf-8")
    assert source.count(fault.old) == 1
    program = tmp_path / "worker.py"
    program.write_text(source.replace(fault.old, fault.new), "utf-8")
    found = await judged(program, installation, tmp_path, "answers", fault.found_by)
    assert found["answers"].outcome is Outcome.PASSED
    assert found[fault.found_by].outcome is Outcome.FAILED
    assert found[fault.found_by].advice


async def test_the_command_judges_against_a_running_router(installation: Installation) -> None:
    command = [sys.executable, "-m", "chatlane", "conform", "worker", "--json"]
    command += ["--cmd", command_of(EXAMPLE), "--nats-url", installation.nats_url]
    command += ["--check", "answers", "--patience", "40"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    report = json.loads(output)
    assert [(it["check"], it["outcome"]) for it in report["checks"]] == [("answers", "passed")]
    assert process.returncode == 0


async def test_a_worker_of_other_words_is_named_as_such(
    installation: Installation, tmp_path: Path
) -> None:
    program = tmp_path / "worker.py"
    program.write_text(EXAMPLE.read_text("utf-8").replace('return f"heard {word}"', 'return "hi"'))
    finding = (await judged(program, installation, tmp_path, "answers"))["answers"]
    assert finding.outcome is Outcome.FAILED
    assert finding.reason.startswith("the worker answered 'echo word")
    assert "docs/writing-a-worker.md#judge-a-worker" in finding.advice


async def test_the_command_fails_with_a_worker_that_does_nothing(
    installation: Installation,
) -> None:
    command = [sys.executable, "-m", "chatlane", "conform", "worker", "--cmd", "sleep 60"]
    command += ["--nats-url", installation.nats_url, "--patience", "1"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert b"Fix: " in output
    assert f"1 failed, {len(WORKER_CHECKS) - 1} skipped".encode() in output
    assert process.returncode == 1
