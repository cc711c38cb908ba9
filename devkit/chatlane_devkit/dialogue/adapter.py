"""An adapter of a platform that notes each call it takes, and that ends itself at a point.

Usage: `python adapter.py FILE`, with NATS_URL and PRINCIPAL in the environment, and NKEY_SEED_FILE where NATS
has users.
`CHATLANE_CRASH_AT=adapter.piece_taken:3` ends it by SIGKILL when the platform has the third piece and the
client does not know.
"""

import asyncio
import os
import re
import signal
import sys
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import uuid4

from chatlane_client import AdapterClient, Piece, TextLimit, open_connection
from chatlane_client.transport.retry import cancel_until_ended
from chatlane_devkit.dialogue.dialogue_config import ACCOUNT, PLATFORM
from chatlane_devkit.judge.event_log import EventLog
from chatlane_schemas import Source
from chatlane_schemas.live_turns import TurnStarted

LIMIT: Final = TextLimit(160, "utf16")
# As fast as a platform.
_CALL_SECONDS: Final = 0.005
_DRAFT_INTERVAL: Final = timedelta(milliseconds=50)
_TURN: Final = re.compile(r"\[([0-9a-f-]{36})\]")


class AdapterPoint(StrEnum):
    """Steps of the adapter at which it may end."""

    PIECE_TAKEN = "adapter.piece_taken"
    """The platform has a piece, and the client does not know."""
    LATER_PIECE_TAKEN = "adapter.later_piece_taken"
    """The same, with earlier pieces of the message."""
    DRAFT_TAKEN = "adapter.draft_taken"
    """The platform has a draft, and the service does not know."""
    DRAFT_EDITED = "adapter.draft_edited"
    """The service knows the draft."""


class _Bomb:
    """Ends this process when it passes its point for the nth time."""

    def __init__(self, armed: str) -> None:
        self._point, _, nth = armed.partition(":")
        self._left = int(nth or 0)

    def passed(self, point: AdapterPoint) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Platform:
    """Takes every call and notes it."""

    def __init__(self, log: EventLog, bomb: _Bomb) -> None:
        self._log = log
        self._bomb = bomb

    async def take(self, piece: Piece) -> str:
        """Take a piece of a message; it may replace the draft."""
        message = piece.message
        draft = message.draft if piece.number == 0 else None
        replaced = piece.edits or draft
        platform_id = replaced or uuid4().hex
        await asyncio.sleep(_CALL_SECONDS)
        self._log.note(
            "call",
            kind="edit" if replaced else "send",
            chat=_chat(message.target),
            platform_id=platform_id,
            text=piece.text or "",
            message_id=message.id,
            session_id=str(message.session_id),
            out_seq=message.out_seq,
            piece=piece.number,
            pieces=piece.count,
            buttons=[[button.label, button.value or ""] for button in piece.buttons],
        )
        self._bomb.passed(AdapterPoint.PIECE_TAKEN)
        if piece.number > 0:
            self._bomb.passed(AdapterPoint.LATER_PIECE_TAKEN)
        return platform_id

    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        """Take the first text of a draft."""
        del key, may_be_sent  # Each call is answered.
        await asyncio.sleep(_CALL_SECONDS)
        platform_id = uuid4().hex
        self._note_draft("send", target, platform_id, text)
        self._bomb.passed(AdapterPoint.DRAFT_TAKEN)
        return platform_id

    async def edit(self, target: Source, message_id: str, text: str) -> None:
        """Take a later text of a draft."""
        await asyncio.sleep(_CALL_SECONDS)
        self._note_draft("edit", target, message_id, text)
        self._bomb.passed(AdapterPoint.DRAFT_EDITED)

    async def delete(self, target: Source, message_id: str) -> None:
        """Delete a draft."""
        self._note_draft("delete", target, message_id, "")

    def _note_draft(self, kind: str, target: Source, platform_id: str, text: str) -> None:
        turn = _TURN.search(text)
        self._log.note(
            "call",
            kind=kind,
            chat=_chat(target),
            platform_id=platform_id,
            text=text,
            turn_id=turn[1] if turn else "",
        )


def _chat(target: Source) -> str:
    return (target.chat.id if target.chat else None) or ""


async def _watch(adapter: AdapterClient, log: EventLog) -> None:
    """Note the session of every turn that the account gets to know of."""
    async for update in adapter.watch():
        if isinstance(update, TurnStarted):
            log.note("knows", session_id=str(update.session_id), turn_id=str(update.turn_id))


async def main(path: Path) -> None:
    """Deliver until SIGTERM."""
    log = EventLog(path, "adapter")
    platform = Platform(log, _Bomb(os.environ.get("CHATLANE_CRASH_AT", "")))
    principal = os.environ["PRINCIPAL"]
    async with open_connection(
        os.environ["NATS_URL"],
        name=principal,
        principal=principal,
        nkey_seed_file=os.environ.get("NKEY_SEED_FILE"),
    ) as client:
        adapter = AdapterClient(client, platform=PLATFORM, account=ACCOUNT)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, adapter.stop)
        drafting = adapter.show_drafts(platform, interval=_DRAFT_INTERVAL)
        beside = [asyncio.create_task(work) for work in (drafting, _watch(adapter, log))]
        try:
            await adapter.deliver_pieces(platform.take, limit=LIMIT)
        finally:
            await cancel_until_ended(*beside)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
