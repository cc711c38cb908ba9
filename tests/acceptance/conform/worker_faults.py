"""Faults of workers: what is changed in a copy of the example, and which check must find it."""

from collections.abc import Mapping
from typing import Final

from tests.acceptance.conform.planted_faults import PlantedFault

_STATE: Final = "was_away: set[str] = set()\n"
_KEEP: Final = """
import os

from chatlane_client.lease import Lease

keep = Lease.keep


async def keep_badly(self, renew):
    {}


Lease.keep = keep_badly
"""

FAULTS: Final[Mapping[str, PlantedFault]] = {
    "answers the last message only": PlantedFault(
        "for message in turn.messages:", "for message in turn.messages[-1:]:", "order"
    ),
    "forgets what was said": PlantedFault("await turn.history()", "()", "history"),
    "never renews": PlantedFault(
        _STATE, _STATE + _KEEP.format("await asyncio.Event().wait()"), "renewals"
    ),
    "ends when it has lost a turn": PlantedFault(
        _STATE,
        _STATE + _KEEP.format("await keep(self, renew)\n    os._exit(1)"),
        "late-result",
    ),
    "answers otherwise after a crash": PlantedFault(
        "    for _ in range(round(",
        '    if turn.attempt > 1:\n        return "sorry"\n    for _ in range(round(',
        "crash",
    ),
    "runs a step again": PlantedFault(
        'await turn.step(f"look up {word}", look_up)\n    await work',
        "await look_up()\n    await work",
        "steps",
    ),
    "goes on after /stop": PlantedFault(
        "        await asyncio.sleep(TICK)\n",
        "        with suppress(asyncio.CancelledError):\n            await asyncio.sleep(TICK)\n",
        "cancel",
    ),
    "takes nothing in": PlantedFault(
        "    message = await anext(turn.steered())\n",
        "    await asyncio.sleep(2)\n    message = turn.messages[0]\n",
        "steer",
    ),
    "asks without options": PlantedFault('["yes", "no"], timedelta', "[], timedelta", "question"),
    "shows nothing": PlantedFault('        await turn.delta("tick ")\n', "", "live-pieces"),
    "fails instead of waiting": PlantedFault(
        'raise AgentUnavailableError("away", again_in=timedelta(seconds=float(seconds)))',
        'raise ValueError("away")',
        "unavailable",
    ),
    "ends when a turn fails": PlantedFault(
        "        raise ValueError(word)\n", "        raise SystemExit(1)\n", "failure"
    ),
    "does not stop": PlantedFault(
        "add_signal_handler(number, worker.stop)", "add_signal_handler(number, print)", "stop"
    ),
}
