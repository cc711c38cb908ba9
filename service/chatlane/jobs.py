"""Periodic jobs, which the maintenance loop runs in every router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.errors import TransientError
from chatlane.observability.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

_log = get_logger("jobs")


@dataclass(frozen=True, slots=True)
class Job:
    """A job that runs at intervals.

    Attributes:
        name: Name in the logs.
        every: Pause between the end of one run and the start of the next, varied by up to half.
        run: Must be safe to run in several routers at once.
    """

    name: str
    every: timedelta
    run: Callable[[], Awaitable[object]]


async def attempt(job: Job) -> None:
    """Run a job once and log its failure."""
    try:
        await job.run()
    except TransientError as error:
        _log.warning("sweep_postponed", task=job.name, reason=str(error))
    except Exception:  # noqa: BLE001 - other jobs continue, and this one runs again later
        _log.exception("sweep_failed", task=job.name)
