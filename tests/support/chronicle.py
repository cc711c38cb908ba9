"""What happened in a run, one JSON object a line, appended by every process that takes part.

Times are the machine's monotonic clock, so lines of several processes compare. A line is one
append and is written before its process goes on: what a killed process has told, it has done.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.support.checker import Received, Sent, Spell, Wait

# What ends the work of a process, or suspends it.
_CUTS: Final = frozenset({"killed", "frozen"})

Line = dict[str, Any]


class Chronicle:
    """Appends to a file that several processes write."""

    def __init__(self, path: Path, actor: str) -> None:
        self.path = path
        self._actor = actor
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(self, op: str, actor: str = "", **fields: object) -> None:
        """Write one line, about ourselves unless somebody else is named."""
        line = {"at": monotonic(), "actor": actor or self._actor, "op": op, **fields}
        os.write(self._file, f"{json.dumps(line)}\n".encode())


@dataclass(frozen=True, slots=True)
class Told:
    """What a chronicle tells a checker.

    Attributes:
        faults: How many were made.
    """

    sent: tuple[Sent, ...]
    received: tuple[Received, ...]
    spells: tuple[Spell, ...]
    waits: tuple[Wait, ...]
    faults: int


def read_chronicle(path: Path) -> Told:
    """Read a whole chronicle."""
    return told([json.loads(line) for line in path.read_text("utf-8").splitlines()])


def told(lines: Iterable[Line]) -> Told:
    """Return what lines say, whatever order their processes wrote them in."""
    ordered = sorted(lines, key=lambda line: float(line["at"]))
    by_op: dict[str, list[Line]] = defaultdict(list)
    for line in ordered:
        by_op[line["op"]].append(line)
    received = tuple(Received(**_fields(line)) for line in by_op["received"])
    return Told(
        sent=tuple(Sent(**_fields(line)) for line in by_op["sent"]),
        received=received,
        spells=tuple(_spells(ordered)),
        waits=tuple(_waits(by_op["saying"], zip(by_op["received"], received, strict=True))),
        faults=len(by_op["fault"]),
    )


def _fields(line: Line) -> Line:
    return {name: value for name, value in line.items() if name not in {"at", "actor", "op"}}


def _spells(lines: Iterable[Line]) -> Iterable[Spell]:
    """Yield every piece of work on a turn; a kill or a freeze of its process is its end."""
    begun: dict[str, dict[str, Line]] = defaultdict(dict)
    last = 0.0
    for line in lines:
        last = line["at"]
        its = begun[line["actor"]]
        if line["op"] == "turn_began":
            its[f"{line['turn_id']} {line['attempt']}"] = line
        elif line["op"] == "turn_ended":
            if begin := its.pop(f"{line['turn_id']} {line['attempt']}", None):
                yield _spell(begin, line["at"])
        elif line["op"] in _CUTS:
            for begin in its.values():
                yield _spell(begin, line["at"])
            its.clear()
    for its in begun.values():
        for begin in its.values():
            yield _spell(begin, last)


def _spell(begin: Line, end: float) -> Spell:
    return Spell(begin["session_id"], begin["turn_id"], begin["attempt"], begin["at"], end)


def _waits(said: Iterable[Line], answers: Iterable[tuple[Line, Received]]) -> Iterable[Wait]:
    """Yield how long each text waited for the answer that mentions it; unanswered ones are lost."""
    heard: dict[str, float] = {}
    for line, its in answers:
        for text in its.heard:
            heard.setdefault(text, line["at"])
    for line in said:
        if (at := heard.get(line["text"])) is not None:
            yield Wait(line["text"], at - line["at"])
