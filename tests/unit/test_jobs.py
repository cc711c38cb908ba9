"""Jobs run again and again, and none of them harms another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

from structlog.testing import capture_logs

from chatlane.errors import StoreUnavailableError
from chatlane.jobs import Job
from chatlane.maintenance import MaintenanceLoop, TableMaintenance
from tests.support.eventually import eventually

SOON = timedelta(milliseconds=1)


class Counted:
    """A job that counts its runs, and may fail or hang in each."""

    def __init__(self, run: Callable[[], Awaitable[object]] | None = None) -> None:
        self.runs = 0
        self._run = run

    async def __call__(self) -> None:
        self.runs += 1
        if self._run:
            await self._run()


@asynccontextmanager
async def sweeping(*jobs: Job) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(MaintenanceLoop(jobs, Random(1)).run())  # noqa: S311
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_job_runs_again_and_again() -> None:
    job = Counted()
    async with sweeping(Job("one", SOON, job)):
        await eventually(lambda: job.runs >= 3)


async def test_a_job_that_fails_runs_again_and_is_logged() -> None:
    async def unavailable() -> None:
        raise StoreUnavailableError

    async def broken() -> None:
        raise ZeroDivisionError

    transient, bug = Counted(unavailable), Counted(broken)
    with capture_logs() as logs:
        async with sweeping(Job("transient", SOON, transient), Job("bug", SOON, bug)) as task:
            await eventually(lambda: min(transient.runs, bug.runs) >= 3)
            assert not task.done()
    levels = {(entry["event"], entry["task"], entry["log_level"]) for entry in logs}
    assert levels == {
        ("sweep_postponed", "transient", "warning"),
        ("sweep_failed", "bug", "error"),
    }


async def test_a_job_that_hangs_holds_up_no_other() -> None:
    stuck, free = Counted(asyncio.Event().wait), Counted()
    async with sweeping(Job("stuck", SOON, stuck), Job("free", SOON, free)):
        await eventually(lambda: stuck.runs == 1 and free.runs >= 5)


async def test_it_stops_in_the_middle_of_a_job_and_of_a_pause() -> None:
    stuck, never = Counted(asyncio.Event().wait), Counted()
    jobs = (Job("stuck", SOON, stuck), Job("never", timedelta(hours=1), never))
    async with sweeping(*jobs) as task:
        await eventually(lambda: stuck.runs == 1)
        async with asyncio.timeout(1):
            task.cancel()
            await asyncio.wait({task})
    assert never.runs == 0


async def test_pauses_differ() -> None:
    """Two sweepers with chance of their own do not fall into step."""
    pauses = {Random(seed).uniform(0.5, 1.5) for seed in range(20)}  # noqa: S311
    assert len(pauses) == 20


async def test_the_jobs_of_the_tables_have_different_names() -> None:
    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        yield

    jobs = TableMaintenance(transaction).jobs()  # type: ignore[arg-type] # never opened
    names = [job.name for job in jobs]
    assert len(names) == len(set(names)) == 11
