"""Checks: what every judged program must do, and how one after the other is run."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Generic, TypeVar

from chatlane_devkit.conform.report import Finding, Outcome

Tell = Callable[[Finding], None]


class FaultFoundError(Exception):
    """The judged program does not do what a check asks for."""


class Judged(ABC):
    """A judged program and what is around it."""

    @property
    @abstractmethod
    def lacks(self) -> Mapping[str, str]:
        """Why a check is skipped, by what it needs."""

    @abstractmethod
    async def begin(self) -> None:
        """Let the program run undisturbed, before each check."""

    @abstractmethod
    async def recover(self) -> None:
        """Remove what a failed check left behind."""


TrialT = TypeVar("TrialT", bound=Judged)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[TrialT]):
    """Something that every judged program must do.

    Attributes:
        name: Its name, as `--check` takes it.
        asks: What it asks for.
        advice: What to fix if it fails.
        judge: Raises `FaultFoundError` if the program does not do it.
        needs: What must be possible around the program.
    """

    name: str
    asks: str
    advice: str
    judge: Callable[[TrialT], Awaitable[None]]
    needs: tuple[str, ...] = ()


async def run_checks(
    checks: Sequence[Check[TrialT]], trial: TrialT, tell: Tell = lambda _: None
) -> list[Finding]:
    """Run checks, and return what was found, in their order.

    If the first check fails, the others are skipped.
    """
    findings: list[Finding] = []
    for check in checks:
        finding = await _run_check(check, trial, findings)
        findings.append(finding)
        tell(finding)
    return findings


async def _run_check(check: Check[TrialT], trial: TrialT, before: Sequence[Finding]) -> Finding:
    finding = partial(Finding, check=check.name, asks=check.asks)
    for need in check.needs:
        if need in trial.lacks:
            return finding(outcome=Outcome.SKIPPED, reason=trial.lacks[need])
    if before and before[0].outcome is Outcome.FAILED:
        return finding(outcome=Outcome.SKIPPED, reason=f"{before[0].check!r} failed")
    begin = monotonic()
    try:
        await trial.begin()
        await check.judge(trial)
    except FaultFoundError as error:
        # What the failed check left behind must not make another one fail.
        await trial.recover()
        found = finding(outcome=Outcome.FAILED, reason=str(error), advice=check.advice)
    else:
        found = finding(outcome=Outcome.PASSED)
    return replace(found, seconds=round(monotonic() - begin, 2))
