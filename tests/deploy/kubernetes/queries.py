"""Answers of Prometheus to a query, from promtool."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import yaml

from tests.deploy.test_observability import promtool

_GOT: Final = re.compile(r"time: (\S+),\s+exp: nil\s+got: (?:nil|\{\} (\S+))")


def answers(
    query: str, series: Mapping[str, str], times: Sequence[int], *, interval: int, folder: Path
) -> list[float | None]:
    """Return the value of a query without labels at each time; None where it has no answer.

    promtool compares answers with expected ones and prints those that differ: it is given none.

    Args:
        query: The expression.
        series: Values of each series in the notation of promtool, one for each interval.
        times: Seconds since the first value.
        interval: Seconds between two values.
        folder: For the file that promtool reads.
    """
    path = folder / "query.yaml"
    asked = [{"expr": query, "eval_time": f"{time}s", "exp_samples": []} for time in times]
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": f"{interval}s", "input_series": given, "promql_expr_test": asked}
    path.write_text(yaml.safe_dump({"evaluation_interval": f"{interval}s", "tests": [test]}))
    done = subprocess.run(  # noqa: S603 # the tool we were given
        [promtool(), "test", "rules", path],
        check=False,
        capture_output=True,
        text=True,
        timeout=50,
    )
    said = done.stdout + done.stderr
    assert "error" not in said, said
    found = {_seconds(at): float(value) for at, value in _GOT.findall(said) if value}
    assert len(found) == said.count("got:"), said
    return [found.get(time) for time in times]


def _seconds(duration: str) -> int:
    parts = re.findall(r"(\d+)([hms])", duration)
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in parts)
