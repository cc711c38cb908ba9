"""Run the checks of workers: servers, routers, people, and the processes of the worker."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_devkit.conform.check import Check, Tell, run_checks
from chatlane_devkit.conform.judge_run import Installation
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.report import Finding
from chatlane_devkit.conform.worker.checks import WORKER_CHECKS
from chatlane_devkit.conform.worker.people import PLATFORM, open_people
from chatlane_devkit.conform.worker.trial import STOPS_WITHIN, WorkerTrial
from chatlane_devkit.demo.stack import open_stack

LEASE: Final = timedelta(seconds=4)


@asynccontextmanager
async def open_worker_installation(directory: Path) -> AsyncIterator[Installation]:
    """Run servers and routers with an agent that has no worker, for the length of the block.

    Raises:
        ServerStartError: A process ended by itself or did not start.
    """
    installation = Installation(nats_url="")
    declared = directory / "declared.toml"
    declared.write_text(
        f'[agents.{installation.agent}]\nlease = "{LEASE.seconds}s"\nbusy = "steer"\n'
        f'retry_pause = "1s"\n\n[platforms.{PLATFORM}.accounts.{installation.account}]\n',
        "utf-8",
    )
    async with open_stack(
        directory,
        lambda _: None,
        think=timedelta(),
        user_config=declared,
        has_workers=False,
    ) as stack:
        yield Installation(nats_url=stack.nats.url)


async def judge_worker(
    command: str,
    installation: Installation,
    directory: Path,
    *,
    checks: Sequence[Check[WorkerTrial]] = WORKER_CHECKS,
    patience: float = 20.0,
    tell: Tell = lambda _: None,
) -> list[Finding]:
    """Judge a worker and return what was found, in the order of the checks.

    Args:
        command: Command line that starts the worker.
        installation: A running router; the agent has no other worker.
        directory: For the output of the worker.
        checks: What is checked. If the first check fails, the others are skipped.
        patience: How long a check waits for something that should happen, in seconds.
        tell: Called with each finding.
    """
    variables = {"NATS_URL": installation.nats_url, "AGENT": installation.agent, "SLOTS": "4"}
    first, second = (
        JudgedProcess(command, variables, directory / f"{name}.log")
        for name in ("worker", "second-worker")
    )
    account, agent = installation.account, installation.agent
    async with open_people(installation.nats_url, account, agent) as people:
        trial = WorkerTrial(
            people=people, worker=first, second=second, lease=LEASE, patience=patience
        )
        try:
            return await run_checks(checks, trial, tell)
        finally:
            for process in (first, second):
                process.thaw()
                await process.stop(STOPS_WITHIN)
