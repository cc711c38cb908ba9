"""Two copies of examples/subscriber.py, one of them killed while it holds a message."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import monotonic

import pytest

from tests.acceptance.conftest import Tell
from tests.support.crowd import people
from tests.support.scene import Scene, open_scene
from tests.support.service import STREAM_AGENT, Process

pytestmark = pytest.mark.acceptance

PER_SECOND = 120


@dataclass(frozen=True, slots=True)
class Note:
    """What a subscriber did with a routed message; `at` is the machine's monotonic time."""

    what: str
    at: float
    pid: int
    id: str
    session_id: str
    seq: int


async def test_a_killed_subscriber_loses_no_message_and_no_order(
    nats_url: str, database_url: str, tmp_path: Path, tell: Tell
) -> None:
    members = people(20, [STREAM_AGENT])
    async with open_scene(tmp_path, nats_url, database_url, members) as scene:
        await scene.start(routers=1, workers=0, subscribers=2)
        async with scene.crowd.talking(PER_SECOND):
            await scene.until_answers_flow()
            killed_at, held = await _kill_one_that_holds_something(scene)
            await scene.until_answers_flow(200)
        await scene.verify()
        notes = _notes(scene)
        assert list(_overlaps(notes)) == []
        routed = {raw["id"] for raw in await _routed(scene)}
        assert {note.id for note in notes if note.what == "given"} == routed
        assert {note.id for note in notes if note.what == "acknowledged"} == routed
        again = [note for note in notes if note.id == held.id and note.what == "given"]
        assert len(again) == 2
        tell(
            f"its message was given to the other after {again[1].at - killed_at:.1f} s, "
            f"{scene.recovery(killed_at)}"
        )


async def _kill_one_that_holds_something(scene: Scene) -> tuple[float, Note]:
    process = scene.process("subscriber 1")
    while True:
        pid = process.pid
        killed_at = monotonic()
        await process.kill()
        held = list(_held(_notes(scene), pid))
        if held:
            return killed_at, held[0]
        await _start_again(scene, process)


async def _start_again(scene: Scene, process: Process) -> None:
    process.start()
    before = len(_notes_of(scene, process))
    while len(_notes_of(scene, process)) == before:
        await scene.until_answers_flow(1)


def _notes(scene: Scene) -> list[Note]:
    lines = (scene.service.directory / "handed-over.jsonl").read_text("utf-8").splitlines()
    return [Note(**json.loads(line)) for line in lines]


def _notes_of(scene: Scene, process: Process) -> list[Note]:
    return [note for note in _notes(scene) if note.pid == process.pid]


def _held(notes: list[Note], pid: int | None) -> Iterator[Note]:
    """Yield what a process was given and never acknowledged."""
    acknowledged = {note.id for note in notes if note.what == "acknowledged"}
    for note in notes:
        if note.pid == pid and note.what == "given" and note.id not in acknowledged:
            yield note


def _overlaps(notes: list[Note]) -> Iterator[str]:
    """Yield every message that was given before the one before it was acknowledged."""
    given: dict[str, dict[int, float]] = defaultdict(dict)
    acknowledged: dict[tuple[str, int], float] = {}
    for note in sorted(notes, key=lambda its: its.at):
        if note.what == "given":
            given[note.session_id].setdefault(note.seq, note.at)
        else:
            acknowledged.setdefault((note.session_id, note.seq), note.at)
    for session_id, times in given.items():
        for earlier, later in pairwise(sorted(times)):
            done_at = acknowledged.get((session_id, earlier))
            if done_at is None or done_at > times[later]:
                yield f"{later} of {session_id} was given before {earlier} was acknowledged"


async def _routed(scene: Scene) -> list[dict[str, str]]:
    return [json.loads(raw.data) for raw in await scene.witness.stream("ROUTED")]


def test_an_overlap_is_noticed() -> None:
    def note(what: str, at: float, seq: int) -> Note:
        return Note(what, at, 1, str(seq), "s", seq)

    fine = [note("given", 1, 1), note("acknowledged", 2, 1), note("given", 3, 3)]
    assert list(_overlaps(fine)) == []
    early = [note("given", 1, 1), note("given", 2, 3), note("acknowledged", 3, 1)]
    assert list(_overlaps(early)) == ["3 of s was given before 1 was acknowledged"]
    assert list(_overlaps(early[:2])) == ["3 of s was given before 1 was acknowledged"]
