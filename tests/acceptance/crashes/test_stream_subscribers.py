"""Two copies of examples/subscriber.py, one of them killed while it holds a message."""

import json
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from chatlane_devkit.judge.event_log import read_handed
from chatlane_devkit.judge.history import Handed
from chatlane_devkit.judge.stream_checks import overlaps
from tests.acceptance.conftest import ReportLine
from tests.support.service.load_users import people
from tests.support.service.processes import STREAM_AGENT, Process
from tests.support.service.scene import Scene, open_scene

pytestmark = pytest.mark.acceptance

PER_SECOND = 120


async def test_a_killed_subscriber_loses_no_message_and_no_order(
    nats_url: str, database_url: str, tmp_path: Path, report_line: ReportLine
) -> None:
    members = people(20, [STREAM_AGENT])
    async with open_scene(tmp_path, nats_url, database_url, members) as scene:
        await scene.start(routers=1, workers=0, subscribers=2)
        async with scene.users.talking(PER_SECOND):
            await scene.until_answers_flow()
            killed_at, held = await _kill_one_that_holds_something(scene)
            await scene.until_answers_flow(200)
        await scene.verify()
        notes = _notes(scene)
        assert list(overlaps(notes)) == []
        routed = {raw["id"] for raw in await _routed(scene)}
        assert {note.id for note in notes if note.what == "given"} == routed
        assert {note.id for note in notes if note.what == "acknowledged"} == routed
        again = [note for note in notes if note.id == held.id and note.what == "given"]
        assert len(again) == 2
        report_line(
            f"its message was given to the other after {again[1].at - killed_at:.1f} s, "
            f"{scene.recovery(killed_at)}"
        )


async def _kill_one_that_holds_something(scene: Scene) -> tuple[float, Handed]:
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


def _notes(scene: Scene) -> list[Handed]:
    return read_handed(scene.service.handed_over)


def _notes_of(scene: Scene, process: Process) -> list[Handed]:
    return [note for note in _notes(scene) if note.pid == process.pid]


def _held(notes: list[Handed], pid: int | None) -> Iterator[Handed]:
    """Yield what a process was given and never acknowledged."""
    acknowledged = {note.id for note in notes if note.what == "acknowledged"}
    for note in notes:
        if note.pid == pid and note.what == "given" and note.id not in acknowledged:
            yield note


async def _routed(scene: Scene) -> list[dict[str, str]]:
    return [json.loads(raw.data) for raw in await scene.recorder.stream("ROUTED")]
