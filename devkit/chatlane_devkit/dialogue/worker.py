"""A turn worker that asks, shows drafts, answers at length and speaks before its answer.

Usage: `python worker.py FILE NAME`, with NATS_URL and PRINCIPAL in the environment, and NKEY_SEED_FILE where
NATS has users. The first word of a message says what it does; see `Helper`.
"""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from chatlane.cli.echo_worker import echo
from chatlane.config.settings import read_failpoint
from chatlane.failpoints import enable
from chatlane_client import Reply, Turn, TurnWorker, open_connection
from chatlane_devkit.dialogue.dialogue_config import AGENT
from chatlane_devkit.judge.event_log import EventLog
from chatlane_schemas import Button, Part

_SLOTS: Final = 16
_LONG_WAIT: Final = timedelta(seconds=60)
_SHORT_WAIT: Final = timedelta(milliseconds=700)
# The time between the parts of a draft, and how many parts a slow answer has.
_PART_SECONDS: Final = 0.08
_SLOW_PARTS: Final = 60
_LINES: Final = 14


class Helper:
    """Answers each message as its first word says, and lists all messages that it got."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def answer(self, turn: Turn) -> str | Reply:
        """Answer a turn; its begin and end are noted."""
        turn_id, attempt = str(turn.id), turn.attempt
        session_id = str(turn.session_id)
        self._log.note("turn_began", session_id=session_id, turn_id=turn_id, attempt=attempt)
        try:
            return await self._answer(turn)
        finally:
            self._log.note("turn_ended", turn_id=turn_id, attempt=attempt)

    async def _answer(self, turn: Turn) -> str | Reply:
        answer = echo(turn.messages)
        for message in turn.messages:
            if message.reply_to:
                replied = message.replied.text if message.replied else None
                self._log.note("quoted", text=replied, reply=message.text)
        kind, _, name = (turn.messages[-1].text or "").partition(" ")
        match kind:
            case "choose" | "free" | "default":
                await self._ask(turn, kind)
            case "say":
                await turn.say(f"said {name}", key=name)
            case "draft" | "long":
                await self._draft(turn, 4)
            case "slow":
                await self._draft(turn, _SLOW_PARTS)
            case "buttons":
                button = Button(label=f"Take {name}", value=f"take:{name}")
                return Reply(parts=[Part(text=answer, buttons=(button,))])
            case _:
                pass
        if kind == "long":
            return "\n".join([answer, *(f"Line {n} of the long {name}." for n in range(_LINES))])
        return answer

    async def _ask(self, turn: Turn, kind: str) -> None:
        """Ask; options and default name the question, which is another one in each attempt."""
        name = uuid4().hex[:12]
        options = [
            Button(label=f"{label} {name}", value=f"{name}:{label.lower()}")
            for label in ("Yes", "No")
        ]
        self._log.note(
            "asked",
            name=name,
            chat=turn.source.chat.id if turn.source.chat else "",
            session_id=str(turn.session_id),
            turn_id=str(turn.id),
            attempt=turn.attempt,
        )
        answer = await turn.ask(
            f"question {name} {kind}",
            () if kind == "free" else options,
            within=_SHORT_WAIT if kind == "default" else _LONG_WAIT,
            default=f"{name}:default",
        )
        self._log.note("got", name=name, value=answer.value or "", is_default=answer.is_default)

    async def _draft(self, turn: Turn, parts: int) -> None:
        await turn.delta(f"[{turn.id}] ")
        for number in range(parts):
            await asyncio.sleep(_PART_SECONDS)
            await turn.delta(f"{number} ")


async def main(path: Path, name: str) -> None:
    """Serve until SIGTERM."""
    if found := read_failpoint(os.environ, is_allowed=True):
        enable(*found)
    helper = Helper(EventLog(path, name))
    principal = os.environ["PRINCIPAL"]
    async with open_connection(
        os.environ["NATS_URL"],
        name=name,
        principal=principal,
        nkey_seed_file=os.environ.get("NKEY_SEED_FILE"),
    ) as client:
        worker = TurnWorker(
            client,
            AGENT,
            helper.answer,
            slots=_SLOTS,
            principal=principal,
            name=name,
            hand_back_after=timedelta(seconds=1),
        )
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
