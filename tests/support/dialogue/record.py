"""The record of dialogues, from the logs of their processes, the database and the streams."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, LiteralString

from nats.aio.msg import Msg

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
from chatlane_devkit.judge.history import History, Sent
from tests.support.dialogue.people import call_of
from tests.support.dialogue.setting import AGENT
from tests.support.service.event_log import Line
from tests.support.service.event_recorder import EventRecorder

_DELIVERIES: Final[LiteralString] = """
SELECT message_id::text, session_id::text, state, sent, coalesce(pieces, 0), platform_message_ids::text
FROM deliveries
"""
_QUESTIONS_KEPT: Final[LiteralString] = """
SELECT count(*) FROM turns WHERE question IS NOT NULL AND state NOT IN ('ready', 'claimed')
"""
_BESIDE: Final = {"at", "actor", "op"}


def parted(history: History) -> tuple[History, History]:
    """Return a history without dialogues, and that of the dialogues alone."""
    sessions = {it.id for it in history.sessions if it.agent == AGENT}
    turns = {it.id for it in history.turns if it.session_id in sessions}
    outbound = {it.id for it in history.outbound if it.session_id in sessions}

    def part(*, of_dialogues: bool) -> History:
        return replace(
            history,
            sessions=[it for it in history.sessions if (it.id in sessions) == of_dialogues],
            rows=[it for it in history.rows if (it.session_id in sessions) == of_dialogues],
            turns=[it for it in history.turns if (it.id in turns) == of_dialogues],
            results=[it for it in history.results if (it.turn_id in turns) == of_dialogues],
            outbound=[it for it in history.outbound if (it.id in outbound) == of_dialogues],
            spells=[it for it in history.spells if (it.turn_id in turns) == of_dialogues],
            started=[it for it in history.started if (it in sessions) == of_dialogues],
            receipts=[it for it in history.receipts if (it.message_id in outbound) == of_dialogues],
        )

    others, dialogues = part(of_dialogues=False), part(of_dialogues=True)
    late = history.late
    if late is not None:
        of_dialogues = late & {it.id for it in dialogues.results}
        others = replace(others, late=late - of_dialogues)
        dialogues = replace(dialogues, late=of_dialogues)
    return others, replace(dialogues, sent=(), received=(), routed=(), log=())


async def dialogue_of(
    recorder: EventRecorder,
    history: History,
    chats: Mapping[str, str],
    *,
    event_log: Path,
    platform_log: Path,
) -> Dialogue:
    """Return the record of all dialogues.

    Args:
        recorder: Looks at the database and the streams.
        history: Of the dialogues alone.
        chats: Session keys by chat.
        event_log: What people, workers and the nemesis noted.
        platform_log: What the adapter noted.
    """
    lines = _by_op(event_log)
    noted = _by_op(platform_log)
    inbound = [_read(raw) async for raw in recorder.stored("INBOUND")]
    outbound = [_read(raw) async for raw in recorder.stored("OUTBOUND")]
    ends: dict[str, list[float]] = defaultdict(list)
    for line in lines["killed"]:
        ends[line["actor"]].append(line["at"])
    sessions = {it.id for it in history.sessions}
    sent = [Sent(**_fields(line)) for line in lines["wrote"]]
    of_dialogues = [(at, body) for at, body in outbound if body["session_id"] in sessions]
    reported = _reported(inbound)
    knows = {line["turn_id"]: line["session_id"] for line in noted["knows"]}
    return Dialogue(
        history=replace(history, sent=sent),
        chats=chats,
        calls=[call_of(line) for line in noted["call"]],
        questions=[Question(**_with_time(line)) for line in lines["asked"]],
        outcomes=[Outcome(**_with_time(line)) for line in lines["got"]],
        replies=[Reply(**_with_time(line)) for line in lines["replied"]],
        sends=[SentAlone(**_with_time(line)) for line in lines["sent alone"]],
        quotes=_quotes(lines, inbound, reported),
        reactions=[line["text"] for line in lines["reacted"]],
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
            for row in await recorder.fetch(_DELIVERIES)
            if row[1] in sessions
        ],
        ends=ends,
        reported={name: at.timestamp() for name, (_, at) in reported.items()},
        stored={body["id"]: at.timestamp() for at, body in of_dialogues},
        foreign=[turn_id for turn_id, session_id in knows.items() if session_id not in sessions],
        questions_kept=await recorder.value(_QUESTIONS_KEPT),
    )


def _by_op(path: Path) -> Mapping[str, list[Line]]:
    found: dict[str, list[Line]] = defaultdict(list)
    for text in path.read_text("utf-8").splitlines():
        line = json.loads(text)
        found[line["op"]].append(line)
    return found


def _fields(line: Line) -> Line:
    return {name: its for name, its in line.items() if name not in _BESIDE}


def _with_time(line: Line) -> Line:
    return {name: its for name, its in line.items() if name not in {"actor", "op"}}


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
