"""How long a message takes at a steady rate: alone, and while somebody reads."""

import asyncio
from typing import Any, Final, LiteralString

from chatlane_servers.conditions import until
from tests.benchmarks.programs import library
from tests.benchmarks.report.figures import Latency, Percentiles, Reading
from tests.benchmarks.rig import PATIENCE, Rig, Router

RATES: Final = (300, 1000)
_SECONDS: Final = 20
_WARM_UP_SECONDS: Final = 3
# The bare loop goes on until all of it is published, and then some.
_MARGIN_SECONDS: Final = 7
_READS_PER_SECOND: Final = 20
_READING_RATE: Final = 300

SESSIONS_SQL: Final[LiteralString] = """
-- bench: how many sessions there are
SELECT count(*) FROM sessions
"""


async def measure_latency(rig: Rig, per_second: int, portion: float) -> Latency:
    """Return the time to the notification of a turn, and that of the bare loop."""
    await rig.reset()
    seconds = max(_SECONDS * portion, 1)
    bare = await _bare_flow(rig, per_second, seconds)
    async with rig.routers(1) as routers:
        # What was there for the bare loop first; and nothing is left for who comes next.
        await _until_read(rig, routers[0], _messages(per_second, seconds))
        turn = await _flow(rig, per_second, seconds)
        await _until_read(rig, routers[0], 2 * _messages(per_second, seconds))
    return Latency(
        per_second=per_second,
        turn_ms=_percentiles(turn),
        bare_ms=_percentiles(bare),
        missing=turn["missing"],
    )


async def _bare_flow(rig: Rig, per_second: int, seconds: float) -> dict[str, Any]:
    following = _WARM_UP_SECONDS + seconds + _MARGIN_SECONDS
    loop = rig.script("bare_loop", rig.nats.url, "follow", following)
    loop.log_path.unlink(missing_ok=True)
    async with rig.running(loop):

        async def follows() -> bool:
            loop.require_running()
            return b"following" in loop.log_path.read_bytes()

        await until(follows, PATIENCE)
        return await _flow(rig, per_second, seconds, "--bare")


async def _flow(rig: Rig, per_second: int, seconds: float, *more: str) -> dict[str, Any]:
    flow = ("generator", "flow", rig.nats.url, per_second, seconds, _WARM_UP_SECONDS)
    return await rig.run(*flow, *rig.speaking(), *more)


def _messages(per_second: int, seconds: float) -> int:
    return int(per_second * (seconds + _WARM_UP_SECONDS))


async def _until_read(rig: Rig, router: Router, sessions: int) -> None:
    """Wait until there are so many sessions: each message of a flow opens one."""
    await rig.until(router.program, lambda: rig.value(SESSIONS_SQL), sessions)


def _percentiles(report: dict[str, Any]) -> Percentiles:
    return Percentiles.model_validate(report["from_acknowledgement_ms"])


async def measure_reading(rig: Rig, portion: float) -> Reading:
    """Return how long pages and searches take while messages are routed, and what these lose.

    Messages come at a steady rate twice, to conversations besides those that are read: while
    nobody reads, and while somebody does.
    """
    await rig.reset()
    await library.fill(rig.database)
    seconds = max(_SECONDS * portion, 1)
    async with rig.routers(1) as routers:
        await rig.until_owned(routers[0].program)
        alone = await _flow(rig, _READING_RATE, seconds)
        reads, beside = await asyncio.gather(
            rig.run("reader", rig.nats.url, _READS_PER_SECOND, seconds),
            _flow(rig, _READING_RATE, seconds),
        )
        there = library.SESSIONS + 2 * _messages(_READING_RATE, seconds)
        await _until_read(rig, routers[0], there)
    return Reading(
        reads_ms={name: Percentiles.model_validate(its) for name, its in reads.items()},
        alone_ms=_percentiles(alone),
        beside_ms=_percentiles(beside),
    )
