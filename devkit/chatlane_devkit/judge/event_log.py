"""Write and read the event log of a run: one JSON object a line, appended by each process.

Times are the machine's monotonic clock, so lines of several processes compare. A line is one
append and is written before its process goes on, so a killed process did what it logged.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any, Final

from chatlane_devkit.judge.history import Handed, Received, Sent, Spell, Wait

# How long a worker that was frozen may take to find out that its lease is over.
_AWAKE_AFTER: Final = 0.25

Line = dict[str, Any]


class EventLog:
    """Appends to a file that several processes write."""

    def __init__(self, path: Path, actor: str) -> None:
        self.path = path
        self._actor = actor
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, op: str, actor: str = "", **fields: object) -> None:
        """Write one line, by default about this actor."""
        line = {"at": monotonic(), "actor": actor or self._actor, "op": op, **fields}
        os.write(self._file, f"{json.dumps(line)}\n".encode())


@dataclass(frozen=True, slots=True)
class LoggedEvents:
    """The events of a log, as the judge reads them.

    Attributes:
        faults: How many were made.
    """

    sent: tuple[Sent, ...]
    received: tuple[Received, ...]
    spells: tuple[Spell, ...]
    waits: tuple[Wait, ...]
    faults: int


def read_handed(path: Path) -> list[Handed]:
    """Read the messages that stream subscribers noted, if there is a file."""
    recorded = path.read_text("utf-8").splitlines() if path.exists() else []
    return [Handed(**json.loads(line)) for line in recorded]


def read_event_log(path: Path) -> LoggedEvents:
    """Read a whole event log."""
    return parse_events([json.loads(line) for line in path.read_text("utf-8").splitlines()])


def parse_events(lines: Iterable[Line]) -> LoggedEvents:
    """Return the events of lines, in any order of the lines."""
    ordered = sorted(lines, key=lambda line: float(line["at"]))
    by_op: dict[str, list[Line]] = defaultdict(list)
    for line in ordered:
        by_op[line["op"]].append(line)
    received = tuple(Received(**_fields(line)) for line in by_op["received"])
    return LoggedEvents(
        sent=tuple(Sent(**_fields(line)) for line in by_op["sent"]),
        received=received,
        spells=tuple(_spells(ordered)),
        waits=tuple(_waits(by_op["saying"], zip(by_op["received"], received, strict=True))),
        faults=len(by_op["fault"]),
    )


def _fields(line: Line) -> Line:
    return {name: value for name, value in line.items() if name not in {"at", "actor", "op"}}


def _spells(lines: Iterable[Line]) -> Iterable[Spell]:
    """Yield every piece of work on a turn; a kill of its process ends it, a freeze interrupts it."""
    begun: dict[str, dict[str, Spell]] = defaultdict(dict)
    frozen: dict[str, dict[str, Spell]] = defaultdict(dict)
    last = 0.0
    for line in lines:
        last, actor, open_spells = line["at"], line["actor"], begun[line["actor"]]
        if line["op"] == "turn_began":
            open_spells[_piece(line)] = _begun(line)
        elif line["op"] == "turn_ended":
            frozen[actor].pop(_piece(line), None)
            if spell := open_spells.pop(_piece(line), None):
                yield _ended(spell, last)
        elif line["op"] in {"killed", "frozen"}:
            yield from (_ended(spell, last) for spell in open_spells.values())
            frozen[actor] = open_spells.copy() if line["op"] == "frozen" else {}
            open_spells.clear()
        elif line["op"] == "thawed":
            open_spells |= {
                name: _resumed(spell, last) for name, spell in frozen.pop(actor, {}).items()
            }
    for open_spells in begun.values():
        yield from (_ended(spell, last) for spell in open_spells.values())


def _piece(line: Line) -> str:
    return f"{line['turn_id']} {line['attempt']}"


def _begun(line: Line) -> Spell:
    return Spell(line["session_id"], line["turn_id"], line["attempt"], line["at"], line["at"])


def _ended(spell: Spell, at: float) -> Spell:
    """Return a spell up to a moment; one that was over before it counted has no length."""
    return replace(spell, end=max(spell.begin, at))


def _resumed(spell: Spell, at: float) -> Spell:
    return replace(spell, begin=at + _AWAKE_AFTER, end=at + _AWAKE_AFTER, is_resumed=True)


def _waits(said: Iterable[Line], answers: Iterable[tuple[Line, Received]]) -> Iterable[Wait]:
    """Yield how long each text waited for the answer that mentions it; unanswered ones are lost."""
    answered_at: dict[str, float] = {}
    for line, answer in answers:
        for text in answer.heard:
            answered_at.setdefault(text, line["at"])
    for line in said:
        if (at := answered_at.get(line["text"])) is not None:
            yield Wait(line["text"], at - line["at"])
