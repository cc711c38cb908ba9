"""Shows pieces of many turns, or reads them, as a process of its own.

Usage: `python pieces.py show NATS_URL TURNS PER_SECOND SECONDS [--seed SEED]`, as a worker, and
`python pieces.py read NATS_URL SECONDS [--seed SEED]`, as an adapter. The reader prints one line of
JSON: how many pieces came, how many did not, and how long they took. Both use one clock.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Final
from uuid import UUID, uuid4

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from chatlane_client.claims import Grant
from chatlane_client.live_output import LiveOutput
from chatlane_schemas import HistoryPointer, LivePiece, PieceKind, Source, TurnPiece, decode
from chatlane_schemas.topology import subjects
from tests.benchmarks.report.figures import percentiles
from tests.support.servers.nats_users import arguments_of

_PLATFORM, _ACCOUNT = "telegram", "bot"
_MOST_AT_ONCE: Final = 16
_TEXT: Final = "some words of an answer "


def _grant() -> Grant:
    session_id = uuid4()
    return Grant(
        turn_id=uuid4(),
        session_id=session_id,
        session_key="",
        attempt=1,
        token="token",  # noqa: S106 - of no turn
        asked_at=0.0,
        lease=timedelta(seconds=30),
        source=Source(platform=_PLATFORM, account=_ACCOUNT),
        audience="person",
        messages=(),
        history=HistoryPointer(session_id=session_id, before_seq=1),
        session_is_new=False,
        reset_reason=None,
    )


async def show(client: Client, turns: int, per_second: float, seconds: float) -> None:
    """Show pieces of all turns in rotation, at a steady pace, as turns of even phases would."""
    outputs = [LiveOutput(client, "main", _grant()) for _ in range(turns)]
    piece = LivePiece(kind=PieceKind.TEXT, text=_TEXT)
    begin, count = perf_counter(), int(per_second * seconds)
    for number in range(count):
        pause = begin + number / per_second - perf_counter()
        # Also if it is late: the connection sends nothing otherwise, and then all at once.
        if pause > 0 or number % _MOST_AT_ONCE == 0:
            await asyncio.sleep(max(0.0, pause))
        await outputs[number % turns].show(piece)
    await client.flush()
    took = perf_counter() - begin
    sys.stdout.write(f"{json.dumps({'shown': count, 'per_second': count / took})}\n")


async def read(client: Client, seconds: float) -> None:
    """Read all pieces of the account, and print how they came."""
    took_ms: list[float] = []
    newest: dict[UUID, int] = {}

    async def hear(message: Msg) -> None:
        now = datetime.now(UTC)
        piece = decode(TurnPiece, message.data)
        took_ms.append((now - piece.at).total_seconds() * 1000)
        newest[piece.turn_id] = piece.index

    path = subjects.LiveTurnPath(_PLATFORM, _ACCOUNT)
    await client.subscribe(path.of(subjects.PIECE), cb=hear)
    await client.flush()
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    await asyncio.sleep(seconds)
    missing = sum(index + 1 for index in newest.values()) - len(took_ms)
    report = {"count": len(took_ms), "missing": missing, "took_ms": percentiles(took_ms)}
    sys.stdout.write(f"{json.dumps(report)}\n")


async def main(words: list[str]) -> None:
    """Connect as the user whose seed is given, or as whoever has none."""
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("verb", choices=("show", "read"))
    arguments.add_argument("url")
    arguments.add_argument("numbers", type=float, nargs="+")
    arguments.add_argument("--seed", type=Path)
    asked = arguments.parse_args(words)
    client = await nats.connect(asked.url, **(arguments_of(asked.seed) if asked.seed else {}))
    if asked.verb == "show":
        turns, per_second, seconds = asked.numbers
        await show(client, int(turns), per_second, seconds)
    else:
        await read(client, *asked.numbers)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
