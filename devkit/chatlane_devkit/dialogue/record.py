"""The record of dialogues, from the logs of their processes, the database and the streams."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, LiteralString

from nats.aio.msg import Msg

from chatlane_devkit.dialogue.dialogue_config import ACCOUNT, AGENT, PLATFORM
from chatlane_devkit.dialogue.people import call_of
from chatlane_devkit.judge.dialogue import (
    DeliveryState,
    Dialogue,
    OutboundText,
    Outcome,
    Question,
    Quoted,
    Reply,
    SentAlone,
)
from chatlane_devkit.judge.event_log import Line
from chatlane_devkit.judge.history import History, Published, Result, Sent, Turn

_TURNS: Final[LiteralString] = """
SELECT id::text, session_id::text, state, attempt, coalesce(token, ''), coalesce(result_id, '')
FROM turns
"""
_LATE: Final[LiteralString] = "SELECT id FROM late_results"
_DELIVERIES: Final[LiteralString] = """
SELECT message_id::text, session_id::text, state, sent, coalesce(pieces, 0), platform_message_ids::text
FROM deliveries
"""
_QUESTIONS_KEPT: Final[LiteralString] = """
SELECT count(*) FROM turns WHERE question IS NOT NULL AND state NOT IN ('ready', 'claimed')
"""
_BESIDE: Final = {"at", "actor", "op"}


@dataclass(frozen=True, slots=True)
class Records:
    """The database rows and stream messages of a run.

    Attributes:
        fetch: Returns the rows of a query of the database.
        stored: Yields the messages of a stream, oldest first.
    """

    fetch: Callable[[LiteralString], Awaitable[list[Any]]]
    stored: Callable[[str], AsyncIterator[Msg]]

    async def turns(self) -> list[Turn]:
        """Return all turns."""
        return [Turn(*row) for row in await self.fetch(_TURNS)]

    async def results(self) -> list[Result]:
        """Return all results of turns; those that hand a turn back end nothing and are left out."""
        return [result async for raw in self.stored("RESULTS") if (result := _result(raw))]

    async def outbound(self) -> list[Published]:
        """Return all outbound messages."""
        return [published(raw, "out_seq") async for raw in self.stored("OUTBOUND")]

    async def late(self) -> frozenset[str]:
        """Return the ids of the results that came too late and were kept without effect."""
        return frozenset(row[0] for row in await self.fetch(_LATE))


def published(raw: Msg, number: str) -> Published:
    """Return a message of a stream; `number` is the field with its number in its session."""
    body = json.loads(raw.data)
    text = body.get("text") or ""
    return Published(body["session_id"], body[number], body["id"], raw.subject, text)


def _result(raw: Msg) -> Result | None:
    """Return the result of a turn; None if it hands the turn back, or no worker wrote it."""
    try:
        body = json.loads(raw.data)
        if body.get("hand_back") is not None:
            return None
        return Result(body["id"], body["turn_id"], body["attempt"], body["token"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def parted(history: History) -> tuple[History, History]:
    """Return a history without dialogues, and that of the dialogues alone."""
    sessions = {record.id for record in history.sessions if record.agent == AGENT}
    turns = {record.id for record in history.turns if record.session_id in sessions}
    outbound = {record.id for record in history.outbound if record.session_id in sessions}

    def part(*, of_dialogues: bool) -> History:
        return replace(
            history,
            sessions=[
                record for record in history.sessions if (record.id in sessions) == of_dialogues
            ],
            rows=[
                record for record in history.rows if (record.session_id in sessions) == of_dialogues
            ],
            turns=[record for record in history.turns if (record.id in turns) == of_dialogues],
            results=[
                record for record in history.results if (record.turn_id in turns) == of_dialogues
            ],
            outbound=[
                record for record in history.outbound if (record.id in outbound) == of_dialogues
            ],
            spells=[
                record for record in history.spells if (record.turn_id in turns) == of_dialogues
            ],
            started=[record for record in history.started if (record in sessions) == of_dialogues],
            receipts=[
                record
                for record in history.receipts
                if (record.message_id in outbound) == of_dialogues
            ],
        )

    others, dialogues = part(of_dialogues=False), part(of_dialogues=True)
    late = history.late
    if late is not None:
        of_dialogues = late & {record.id for record in dialogues.results}
        others = replace(others, late=late - of_dialogues)
        dialogues = replace(dialogues, late=of_dialogues)
    return others, replace(dialogues, sent=(), received=(), routed=(), log=())


async def dialogue_of(
    records: Records,
    history: History,
    chats: Mapping[str, str],
    *,
    event_log: Path,
    platform_log: Path,
) -> Dialogue:
    """Return the record of all dialogues.

    Args:
        records: The database and the streams.
        history: Of the dialogues alone.
        chats: Session keys by chat.
        event_log: What people, workers and the nemesis noted.
        platform_log: What the adapter noted.
    """
    lines_of_op = _by_op(event_log)
    noted = _by_op(platform_log)
    # Other accounts may publish what cannot be read.
    place = f".{PLATFORM}.{ACCOUNT}."
    inbound = [_read(raw) async for raw in records.stored("INBOUND") if place in raw.subject]
    outbound = [_read(raw) async for raw in records.stored("OUTBOUND")]
    ends: dict[str, list[float]] = defaultdict(list)
    for line in lines_of_op["killed"]:
        ends[line["actor"]].append(line["at"])
    sessions = {record.id for record in history.sessions}
    sent = [Sent(**_fields(line)) for line in lines_of_op["wrote"]]
    of_dialogues = [(at, body) for at, body in outbound if body["session_id"] in sessions]
    reported = _reported(inbound)
    knows = {line["turn_id"]: line["session_id"] for line in noted["knows"]}
    return Dialogue(
        history=replace(history, sent=sent),
        chats=chats,
        calls=[call_of(line) for line in noted["call"]],
        questions=[Question(**_with_time(line)) for line in lines_of_op["asked"]],
        outcomes=[Outcome(**_with_time(line)) for line in lines_of_op["got"]],
        replies=[Reply(**_with_time(line)) for line in lines_of_op["replied"]],
        sends=[SentAlone(**_with_time(line)) for line in lines_of_op["sent alone"]],
        quotes=_quotes(lines_of_op, inbound, reported),
        reactions=[line["text"] for line in lines_of_op["reacted"]],
        outbound=[
            OutboundText(
                id=body["id"],
                session_id=body["session_id"],
                turn_id=body.get("turn_id") or "",
                text=body.get("text") or "",
            )
            for _, body in of_dialogues
        ],
        deliveries=[
            DeliveryState(
                message_id=row[0],
                state=row[2],
                sent=row[3],
                pieces=row[4],
                platform_ids=json.loads(row[5]),
            )
            for row in await records.fetch(_DELIVERIES)
            if row[1] in sessions
        ],
        ends=ends,
        reported={name: at.timestamp() for name, (_, at) in reported.items()},
        stored={body["id"]: at.timestamp() for at, body in of_dialogues},
        foreign=[turn_id for turn_id, session_id in knows.items() if session_id not in sessions],
        questions_kept=(await records.fetch(_QUESTIONS_KEPT))[0][0],
    )


def _by_op(path: Path) -> Mapping[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for text in path.read_text("utf-8").splitlines():
        line = json.loads(text)
        found[line["op"]].append(line)
    return found


def _fields(line: Line) -> Line:
    return {name: value for name, value in line.items() if name not in _BESIDE}


def _with_time(line: Line) -> Line:
    return {name: value for name, value in line.items() if name not in {"actor", "op"}}


def _read(raw: Msg) -> tuple[datetime, dict[str, Any]]:
    body: dict[str, Any] = json.loads(raw.data)
    return raw.metadata.timestamp, body


def _reported(
    inbound: Sequence[tuple[datetime, Mapping[str, Any]]],
) -> dict[str, tuple[int, datetime]]:
    """Return place in the log and time of the first report of each platform id."""
    found: dict[str, tuple[int, datetime]] = {}
    for place, (at, body) in enumerate(inbound):
        if body.get("kind") == "receipt":
            ids = [body.get("message_id"), *((body.get("receipt") or {}).get("message_ids") or ())]
            for name in ids:
                if name:
                    found.setdefault(name, (place, at))
    return found


def _quotes(
    lines: Mapping[str, list[Line]],
    inbound: Iterable[tuple[datetime, Mapping[str, Any]]],
    reported: Mapping[str, tuple[int, datetime]],
) -> list[Quoted]:
    """Return the replies to messages whose report was stored before."""
    places = {body["id"]: place for place, (_, body) in enumerate(inbound)}
    got = {line["reply"]: line["text"] for line in lines["quoted"]}
    return [
        Quoted(platform_id=line["platform_id"], text=got[line["text"]])
        for line in lines["quoting"]
        if line["text"] in got
        and line["platform_id"] in reported
        and reported[line["platform_id"]][0] < places[line["envelope_id"]]
    ]
