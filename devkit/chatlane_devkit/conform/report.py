"""Report the findings for people and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of a check.

    Attributes:
        check: Name of the check.
        asks: What it asks for.
        outcome: How it ended.
        reason: What was seen instead, or why it was skipped; empty if it passed.
        advice: What to fix; empty unless it failed.
        seconds: How long it took.
    """

    check: str
    asks: str
    outcome: Outcome
    reason: str = ""
    advice: str = ""
    seconds: float = 0.0


def passes(findings: Sequence[Finding]) -> bool:
    """Return whether no check failed, and at least one passed."""
    outcomes = {finding.outcome for finding in findings}
    return Outcome.FAILED not in outcomes and Outcome.PASSED in outcomes


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON object."""
    report = {"passed": passes(findings), "checks": [asdict(finding) for finding in findings]}
    return json.dumps(report, ensure_ascii=False, indent=2)


def as_lines(finding: Finding) -> list[str]:
    """Return a finding as lines of text."""
    report_lines = [f"{finding.outcome:<8} {finding.check:<22} {finding.asks}"]
    if finding.reason:
        report_lines.append(f"{'':<8} {'':<22} {finding.reason}")
    if finding.advice:
        report_lines.append(f"{'':<8} {'':<22} Fix: {finding.advice}")
    return report_lines


def summary(findings: Sequence[Finding]) -> str:
    """Return how many checks ended in each way."""
    counts = {it: sum(found.outcome is it for found in findings) for it in Outcome}
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
