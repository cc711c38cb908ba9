"""Runs a FastStream program and notes, for each message it is given, when, and when it acknowledges.

Usage: `python watched_subscriber.py PROGRAM FILE`. The program is run as it is; what is watched
is nats-py below it. Monotonic time is that of the machine, so notes of several processes compare.
A note is one append of one line, and is written before the program goes on: what a killed process
has noted, it has done, and what it acknowledged, it has noted. `CHATLANE_CRASH_AT=subscriber.given:3`
ends it by SIGKILL with the third message in its hands.
"""

import json
import os
import runpy
import signal
import sys
from time import monotonic
from typing import Any, Final

from nats.aio.msg import Msg
from nats.js.client import JetStreamContext

# As the product's own; it is not imported, for the program may belong to another release.
_CRASH_AT: Final = "CHATLANE_CRASH_AT"
GIVEN: Final = "subscriber.given"
_ROUTED = "chat.v1.routed."


class Notes:
    """Appends to a file that several processes write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, what: str, message: Msg) -> None:
        """Write one line."""
        its = json.loads(message.data)
        noted = {
            "what": what,
            "at": monotonic(),
            "pid": os.getpid(),
            "id": its["id"],
            "session_id": its["session_id"],
            "seq": its["seq"],
        }
        os.write(self._file, f"{json.dumps(noted)}\n".encode())


class Bomb:
    """Kills this process when it is given its nth message, if it is told to."""

    def __init__(self, armed: str) -> None:
        point, _, nth = armed.partition(":")
        self._left = int(nth) if point == GIVEN else 0

    def given(self) -> None:
        """Count one."""
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def watch(notes: Notes, bomb: Bomb) -> None:
    """Note every routed message that is fetched and every one that is acknowledged."""
    fetch, ack = JetStreamContext.PullSubscription.fetch, Msg.ack

    async def watched_fetch(self: Any, *args: Any, **kwargs: Any) -> list[Msg]:  # noqa: ANN401
        messages = await fetch(self, *args, **kwargs)
        for message in messages:
            notes.note("given", message)
            bomb.given()
        return messages

    async def watched_ack(self: Msg) -> None:
        if self.subject.startswith(_ROUTED):
            notes.note("acknowledged", self)
        await ack(self)

    JetStreamContext.PullSubscription.fetch = watched_fetch  # type: ignore[method-assign]
    Msg.ack = watched_ack  # type: ignore[method-assign]


def main(program: str, path: str) -> None:
    """Run the program."""
    watch(Notes(path), Bomb(os.environ.get(_CRASH_AT, "")))
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
