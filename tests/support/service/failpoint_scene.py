"""What tests have in common that end or freeze processes at crash points, under short leases."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from chatlane.failpoints import RouterPoint
from tests.support.eventually import eventually
from tests.support.service.load_users import people
from tests.support.service.processes import Process
from tests.support.service.scene import Scene, open_scene

_LEASE: Final = timedelta(seconds=1)
# A turn may be with one worker after another that is about to end.
_ATTEMPTS: Final = 20
REACHED_WITHIN: Final = timedelta(seconds=40)
"""How long a process may take to get to its point."""
# Leases of a second are short on a busy machine.
_PATIENCE: Final = timedelta(seconds=90)

# These follow from the death of others.
AFTER_DEATHS: Final = (RouterPoint.ADOPTED, RouterPoint.LEASES_ENDED)
# These come when a router stops, or is given less; amid traffic a batch deletes what the relay would.
WHEN_STOPPED: Final = (
    RouterPoint.PARTITIONS_RELEASED,
    RouterPoint.PARTITIONS_HANDED_BACK,
    RouterPoint.DELETED,
)
# A life passes these once; the others often.
ONCE: Final = (*AFTER_DEATHS, *WHEN_STOPPED, RouterPoint.PARTITIONS_CLAIMED)


async def until_dead(process: Process, point: str) -> None:
    """Wait until a process has ended itself, and require that it did so at the point.

    A router that is stopped with no row left to delete ends in order.
    """
    await eventually(lambda: process.exit_code is not None, REACHED_WITHIN)
    reached = [told["point"] for told in process.events("library_logged") if "point" in told]
    if point == RouterPoint.DELETED and not reached:
        # A batch may have deleted the last rows before the stop.
        assert process.exit_code == 0
        return
    assert (process.exit_code, reached) == (-signal.SIGKILL, [point])


@asynccontextmanager
async def open_short_leased_scene(
    directory: Path,
    nats_url: str,
    dsn: str,
    members: int,
    **config: Any,  # noqa: ANN401 # as `config_text` has them
) -> AsyncIterator[Scene]:
    """Set a stage where all leases end soon, and turns are tried often.

    Args:
        directory: For configuration and logs.
        nats_url: A server without streams.
        dsn: A migrated database.
        members: How many people write.
        config: What else `config_text` is told.
    """
    async with open_scene(
        directory,
        nats_url,
        dsn,
        people(members),
        lease=_LEASE,
        turn_lease=_LEASE,
        max_attempts=_ATTEMPTS,
        **config,
    ) as scene:
        scene.patience = _PATIENCE
        yield scene
