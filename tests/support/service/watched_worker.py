"""The echo worker of chatlane, with a line in an event log at the start and end of each turn.

Usage: `python watched_worker.py FILE NAME`, then as `python -m chatlane`.
"""

import sys
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from chatlane.cli import main
from chatlane_client.turn import Turn
from chatlane_devkit.judge.event_log import EventLog

# The previous release, which runs beside this one in tests, has the worker in another module.
_MODULES = ("chatlane.cli.echo_worker", "chatlane.dev.echo")


def watch(event_log: EventLog) -> None:
    """Record every turn that is worked on."""
    echo_worker = import_module(_MODULES[0] if find_spec(_MODULES[0]) else _MODULES[1])
    think_and_echo = echo_worker.think_and_echo

    async def watched(think: timedelta, turn: Turn) -> str:
        turn_id, attempt = str(turn.id), turn.attempt
        session_id = str(turn.session_id)
        event_log.note("turn_began", session_id=session_id, turn_id=turn_id, attempt=attempt)
        try:
            text: str = await think_and_echo(think, turn)
            return text
        finally:
            event_log.note("turn_ended", turn_id=turn_id, attempt=attempt)

    echo_worker.think_and_echo = watched  # type: ignore[attr-defined] # in both modules


if __name__ == "__main__":
    path, name = sys.argv[1:3]
    del sys.argv[1:3]
    watch(EventLog(Path(path), name))
    main()
