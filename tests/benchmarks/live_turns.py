"""What live turns cost: pieces from a worker to an adapter, beside a router."""

import json
from contextlib import suppress
from typing import Any, Final

from chatlane_servers.conditions import until
from chatlane_servers.programs import Program
from tests.benchmarks.report.figures import LiveTurns, Percentiles
from tests.benchmarks.rig import ADAPTER, PATIENCE, Rig, cpu_seconds

# Pieces a second of all turns together: for the time that a piece takes, and for the costs.
RATES: Final = ((1000, 5000), (1000, 20_000))
_SECONDS: Final = 20
# Both programs start, and the reader reads what is on its way.
_MARGIN_SECONDS: Final = 8


async def measure_live_turns(rig: Rig, turns: int, per_second: int, portion: float) -> LiveTurns:
    """Return how pieces of so many turns arrive, and what servers and a router spend meanwhile."""
    seconds = max(_SECONDS * portion, 2)
    async with rig.routers(1) as routers:
        await rig.until_owned(routers[0].program)
        reader = rig.script(
            "pieces", "read", rig.nats.url, seconds + _MARGIN_SECONDS, *rig.speaking(ADAPTER)
        )
        # The worker is a process of the same program, and ends after the reader where it is slow.
        reader.log_path = rig.directory / "pieces-read.log"
        reader.log_path.unlink(missing_ok=True)
        reader.start()
        try:
            await until(lambda: _says(reader, b"reading\n"), PATIENCE)
            pids = {"router": routers[0].program.pid, "nats": rig.nats.pid}
            before = {name: cpu_seconds(pid) for name, pid in pids.items() if pid}
            worker = rig.speaking("main-worker")
            shown = await rig.run(
                "pieces", "show", rig.nats.url, turns, per_second, seconds, *worker
            )
            spent = {name: cpu_seconds(pids[name] or 0) - its for name, its in before.items()}
            await until(lambda: _has_ended(reader), PATIENCE)
        finally:
            await reader.stop()
    report = _last_report(reader)
    took = shown["shown"] / shown["per_second"]
    return LiveTurns(
        turns=turns,
        asked_per_second=per_second,
        per_second=shown["per_second"],
        missing=shown["shown"] - report["count"],
        took_ms=Percentiles.model_validate(report["took_ms"]),
        processors={name: its / took for name, its in spent.items()},
    )


async def _says(program: Program, words: bytes) -> bool:
    program.require_running()
    return words in program.log_path.read_bytes()


async def _has_ended(program: Program) -> bool:
    return not program.is_running


def _last_report(program: Program) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for line in program.log_path.read_text("utf-8").splitlines():
        with suppress(ValueError):
            found = json.loads(line)
    return found
