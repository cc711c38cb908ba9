"""The echo worker of chatlane, with a line in an event log at the start and end of each turn.

Usage: `python watched_worker.py FILE NAME`, then as `python -m chatlane`.
"""

import sys
from datetime import timedelta
from pathlib import Path

from chatlane.cli import echo_worker, main
from chatlane_client.turn import Turn
from tests.support.service.event_log import EventLog


def watch(event_log: EventLog) -> None:
    """Tell of every turn that is worked on."""
    think_and_echo = echo_worker.think_and_echo

    async def watched(think: timedelta, turn: Turn) -> str:
        turn_id, attempt = str(turn.id), turn.attempt
        session_id = str(turn.session_id)
        event_log.note("turn_began", session_id=session_id, turn_id=turn_id, attempt=attempt)
        try:
            return await think_and_echo(think, turn)
        finally:
            event_log.note("turn_ended", turn_id=turn_id, attempt=attempt)

    echo_worker.think_and_echo = watched


if __name__ == "__main__":
    path, name = sys.argv[1:3]
    del sys.argv[1:3]
    watch(EventLog(Path(path), name))
    main()
