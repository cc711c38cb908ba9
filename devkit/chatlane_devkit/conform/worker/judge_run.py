"""Run the checks of workers: servers, routers, people, and the processes of the worker."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Final

from chatlane_devkit.conform.check import Check, Tell, run_checks
from chatlane_devkit.conform.judge_run import ACCOUNT, AGENT, Installation, open_declared
from chatlane_devkit.conform.judged_process import JudgedProcess
from chatlane_devkit.conform.report import Finding
from chatlane_devkit.conform.worker.checks import WORKER_CHECKS
from chatlane_devkit.conform.worker.people import PLATFORM, open_people
from chatlane_devkit.conform.worker.trial import STOPS_WITHIN, WorkerTrial

LEASE: Final = timedelta(seconds=4)


def open_worker_installation(directory: Path) -> AbstractAsyncContextManager[Installation]:
    """Run servers and routers with an agent that has no worker, as `open_declared`."""
    return open_declared(
        directory,
        f'[agents.{AGENT}]\nlease = "{LEASE.seconds}s"\nbusy = "steer"\n'
        f'retry_pause = "1s"\n\n[platforms.{PLATFORM}.accounts.{ACCOUNT}]\n',
    )


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
