"""`make cluster`: the feed is played while routers are rolled, a node stops, a standby takes over."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.deploy.compose_stack import ran
from tests.support.eventually import eventually

pytestmark = [pytest.mark.containers, pytest.mark.timeout(600)]

ReportLine = Callable[[str], None]

ROOT: Final = Path(__file__).parents[2]
STARTED_WITHIN: Final = timedelta(seconds=180)
INTERRUPTED: Final = 130


@asynccontextmanager
async def started(output: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start it, collect what it prints, and end it at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "chatlane_devkit.cluster"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            text = line.decode()
            output.append(text)

    reading = asyncio.create_task(read())
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await process.wait()
        await reading


async def leftovers() -> list[str]:
    """Return every container, volume, network and image of any such cluster."""
    kinds = (("ps", "--all"), ("volume", "ls"), ("network", "ls"))
    named = [
        await ran("docker", *kind, "--format={{.Name}}" if "ls" in kind else "--format={{.Names}}")
        for kind in kinds
    ]
    images = await ran("docker", "image", "ls", "--format={{.Repository}}")
    found = [line for output in (*named, images) for line in output.splitlines()]
    return [its for its in found if its.startswith("chatlane-cluster-")]


async def test_every_promise_is_kept_through_all_three_disturbances(
    report_line: ReportLine,
) -> None:
    output: list[str] = []
    async with started(output) as process:
        code = await process.wait()
    text = "".join(output)
    assert code == 0, text
    for words in (
        "router-1 runs version 0.1.0+next",
        "router-2 runs version 0.1.0+next",
        "router-3 runs version 0.1.0+next",
        "killed worker-1 with SIGKILL",
        "with SIGKILL; it led INBOUND",
        "killed postgres-1 with SIGKILL",
        "promoted postgres-2",
        "longest gap without an answer:",
        "every accepted message was delivered exactly once and in order",
        "routers run version 0.1.0+next, postgres-2 is the primary",
    ):
        assert words in text
    report = json.loads((ROOT / "var" / "cluster-report.json").read_text("utf-8"))
    assert report["is_good"] is True
    assert all(check["is_kept"] for check in report["checks"])
    assert report["feed"]["accepted"] >= 2000
    gaps = {name: its for name, its in report["seconds"].items() if "gap" in name}
    assert gaps.keys() == {
        "longest gap",
        *(f"longest gap while: {cue}" for cue in ("router", "worker", "nats", "postgres")),
    }
    for name, seconds in report["seconds"].items():
        report_line(f"{name}: {seconds:.1f} s")
    assert await leftovers() == []


async def test_nothing_is_left_when_it_is_interrupted() -> None:
    output: list[str] = []
    async with started(output) as process:

        def has_servers() -> bool:
            return "three nats-servers have a leader" in "".join(output)

        await eventually(has_servers, STARTED_WITHIN)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == INTERRUPTED
    assert "interrupted; everything was removed" in "".join(output)
    assert "Traceback" not in "".join(output)
    assert await leftovers() == []
