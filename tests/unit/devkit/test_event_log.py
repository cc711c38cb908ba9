"""The report that an event log yields, from lines made by hand."""

from pathlib import Path
from typing import Any

from chatlane_devkit.judge.event_log import EventLog, parse_events, read_event_log
from chatlane_devkit.judge.history import Spell, Wait


def line(at: float, op: str, actor: str = "worker-1", **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"at": at, "actor": actor, "op": op, **fields}


def began(at: float, turn_id: str, attempt: int = 1, actor: str = "worker-1") -> dict[str, Any]:
    return line(at, "turn_began", actor, session_id="s", turn_id=turn_id, attempt=attempt)


def ended(at: float, turn_id: str, attempt: int = 1, actor: str = "worker-1") -> dict[str, Any]:
    return line(at, "turn_ended", actor, turn_id=turn_id, attempt=attempt)


def received(at: float, text: str) -> dict[str, Any]:
    its = {"key": "k", "session_id": "s", "out_seq": 1, "id": "o", "reply_to": "", "text": text}
    return line(at, "received", "adapter", kind="answer", **its)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    event_log = EventLog(tmp_path / "run.jsonl", "nemesis")
    event_log.note("fault", kind="kill")
    EventLog(tmp_path / "run.jsonl", "worker-1").note("killed")
    assert read_event_log(tmp_path / "run.jsonl").faults == 1


def test_a_turn_is_worked_on_from_its_begin_to_its_end() -> None:
    lines = [ended(4, "a"), began(1, "a"), began(2, "b", actor="worker-2")]
    assert set(parse_events(lines).spells) == {Spell("s", "a", 1, 1, 4), Spell("s", "b", 1, 2, 4)}


def test_a_killed_and_a_frozen_worker_work_on_nothing() -> None:
    lines = [began(1, "a"), line(2, "killed"), began(3, "a", 2), line(4, "frozen")]
    lines += [ended(9, "a", 2), began(5, "c", actor="worker-2"), ended(6, "c", actor="worker-2")]
    assert sorted(parse_events(lines).spells, key=lambda its: its.begin) == [
        Spell("s", "a", 1, 1, 2),
        Spell("s", "a", 2, 3, 4),
        Spell("s", "c", 1, 5, 6),
    ]


def test_a_text_waits_until_it_is_first_mentioned() -> None:
    lines = [line(1, "saying", "users", text="hi"), line(2, "saying", "users", text="lost")]
    lines += [received(5, "#1 heard: hi"), received(7, "#1 heard: hi")]
    assert parse_events(lines).waits == (Wait("hi", 4),)


def test_a_worker_that_is_thawed_goes_on_with_what_it_had() -> None:
    lines = [began(1, "a"), began(1, "b"), line(2, "frozen"), line(4, "thawed"), ended(5, "a")]
    assert sorted(parse_events([*lines, line(6, "killed")]).spells, key=lambda its: its.end) == [
        Spell("s", "a", 1, 1, 2),
        Spell("s", "b", 1, 1, 2),
        Spell("s", "a", 1, 4.25, 5, is_resumed=True),
        Spell("s", "b", 1, 4.25, 6, is_resumed=True),
    ]


def test_a_worker_that_finds_out_at_once_has_gone_on_with_nothing() -> None:
    lines = [began(1, "a"), line(2, "frozen"), line(4, "thawed"), ended(4.1, "a")]
    assert parse_events(lines).spells == (
        Spell("s", "a", 1, 1, 2),
        Spell("s", "a", 1, 4.25, 4.25, is_resumed=True),
    )


def test_what_a_worker_ended_right_before_it_froze_is_over() -> None:
    lines = [began(1, "a"), line(2, "frozen"), ended(2.1, "a"), line(4, "thawed"), line(6, "x")]
    assert parse_events(lines).spells == (Spell("s", "a", 1, 1, 2),)
