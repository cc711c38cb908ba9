"""A checker that finds nothing proves nothing: every kind of damage, made by hand, is named."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.checker import (
    History,
    Published,
    Received,
    Row,
    Sent,
    Session,
    Spell,
    Turn,
    Wait,
    problems,
)

ANN, DESK = "agent:main:test:bot:dm:ann", "agent:desk:test:bot:dm:bob"


def good() -> History:
    """Return a run of two chats: one answered by turns, the other by a stream agent."""
    return History(
        sent=(
            Sent(ANN, 1, "a1", "e1", "ann 1"),
            Sent(DESK, 1, "b1", "e2", "bob 1"),
            Sent(ANN, 2, "a2", "e3", "ann 2"),
            Sent(ANN, 1, "a1", "e4", "ann 1"),
            Sent(ANN, 3, "a3", "e5", "ann 3"),
            Sent(DESK, 2, "b2", "e6", "bob 2"),
        ),
        inbound=("e1", "e2", "e3", "e4", "e5", "e6"),
        sessions=(Session("s1", ANN, "main"), Session("s2", DESK, "desk")),
        rows=(
            Row("s1", 1, "user", "ann 1", "a1", id="m1", turn_id="t1"),
            Row("s1", 2, "user", "ann 2", "a2", id="m2", turn_id="t1"),
            Row("s1", 3, "assistant", "...", turn_id="t1"),
            Row("s1", 4, "user", "ann 3", "a3", id="m3", turn_id="t2"),
            Row("s1", 5, "assistant", "...", turn_id="t2"),
            Row("s2", 1, "user", "bob 1", "b1", id="m4"),
            Row("s2", 2, "user", "bob 2", "b2", id="m5"),
            Row("s2", 3, "assistant", "...", reply_to="m4"),
            Row("s2", 4, "assistant", "...", reply_to="m5"),
        ),
        turns=(Turn("t1", "s1", "done"), Turn("t2", "s1", "done", attempt=2)),
        routed=(Published("s2", 1, "m4"), Published("s2", 2, "m5")),
        outbound=(
            Published("s1", 1, "o1"),
            Published("s2", 1, "o2"),
            Published("s1", 2, "o3"),
            Published("s2", 2, "o4"),
        ),
        received=(
            Received(ANN, "s1", 1, "o1", "a2", "#1 heard: ann 1\n#2 heard: ann 2"),
            Received(DESK, "s2", 1, "o2", "b1", "#1 heard: bob 1"),
            Received(ANN, "s1", 2, "o3", "a3", "#4 heard: ann 3"),
            Received(DESK, "s2", 2, "o4", "b2", "#2 heard: bob 2"),
        ),
        stream_agents=frozenset({"desk"}),
        spells=(
            Spell("s1", "t1", 1, 10.0, 11.0),
            Spell("s1", "t2", 1, 11.0, 12.0),
            Spell("s2", "t9", 1, 10.0, 12.0),
            Spell("s1", "t2", 2, 13.0, 14.0),
        ),
        waits=(Wait("ann 1", 1.0), Wait("ann 3", 16.0)),
        left_over={"outbox": 0},
    )


def having(history: History, field: str, items: Iterable[object]) -> History:
    values: dict[str, Any] = {field: tuple(items)}
    return replace(history, **values)


def without(field: str, place: int) -> Callable[[History], History]:
    def change(history: History) -> History:
        kept = [it for n, it in enumerate(getattr(history, field)) if n != place]
        return having(history, field, kept)

    return change


def with_more(field: str, *items: object) -> Callable[[History], History]:
    return lambda history: having(history, field, [*getattr(history, field), *items])


def changed(field: str, place: int, **values: object) -> Callable[[History], History]:
    def change(history: History) -> History:
        items = list(getattr(history, field))
        items[place] = replace(items[place], **values)
        return having(history, field, items)

    return change


def swapped(field: str, one: int, other: int) -> Callable[[History], History]:
    def change(history: History) -> History:
        items = list(getattr(history, field))
        items[one], items[other] = items[other], items[one]
        return having(history, field, items)

    return change


def swapped_numbers(field: str, name: str, one: int, other: int) -> Callable[[History], History]:
    def change(history: History) -> History:
        items = list(getattr(history, field))
        numbers = getattr(items[one], name), getattr(items[other], name)
        items[one] = replace(items[one], **{name: numbers[1]})
        items[other] = replace(items[other], **{name: numbers[0]})
        return having(history, field, items)

    return change


DAMAGE = {
    "acknowledged and not stored": (without("inbound", 2), "lost: a2 was acknowledged"),
    "stored twice": (with_more("inbound", "e3"), "doubled: e3 is in the log 2 times"),
    "stored in another order": (swapped("inbound", 0, 2), "inverted: the log has the messages"),
    "without a session": (without("sessions", 0), "lost: no session for"),
    "two sessions": (with_more("sessions", Session("s3", ANN, "main")), "split: 2 sessions"),
    "a session of nobody": (
        with_more("sessions", Session("s3", "agent:main:test:bot:dm:eve", "main")),
        "misrouted: a session for agent:main:test:bot:dm:eve",
    ),
    "in no transcript": (without("rows", 3), "lost: a3 is in no transcript"),
    "in a transcript twice": (
        with_more("rows", Row("s1", 6, "user", "ann 1", "a1", id="m9", turn_id="t2")),
        "doubled: a1 is in transcripts 2 times",
    ),
    "in the wrong transcript": (changed("rows", 1, session_id="s2"), "misrouted: a2 is in"),
    "another text": (changed("rows", 1, text="ann II"), "changed: the text of a2"),
    "a message of nobody": (changed("rows", 1, message_id="z"), "made up: z"),
    "a number left out": (changed("rows", 4, seq=6), "gap: agent:main:test:bot:dm:ann is numbered"),
    "a number given twice": (changed("rows", 4, seq=4), "gap: agent:main:test:bot:dm:ann"),
    "a transcript in another order": (
        swapped_numbers("rows", "seq", 0, 1),
        "inverted: the transcript of",
    ),
    "a turn that failed": (changed("turns", 1, state="failed"), "unanswered: turn t2 is failed"),
    "a turn that still runs": (changed("turns", 1, state="claimed"), "unanswered: turn t2"),
    "a turn without an answer": (without("rows", 4), "answered twice: turn t2 left 0 answers"),
    "a turn with two answers": (
        with_more("rows", Row("s1", 6, "assistant", "...", turn_id="t2")),
        "answered twice: turn t2 left 2 answers",
    ),
    "a turn about nothing": (
        with_more("turns", Turn("t3", "s1", "done")),
        "answered twice: turn t3 left 0",
    ),
    "rows of no turn": (without("turns", 1), "made up: rows of turn t2"),
    "a message in no turn": (changed("rows", 3, turn_id=""), "unanswered: a3 is in no turn"),
    "a stream message without an answer": (without("rows", 8), "unanswered: b2 has no answer"),
    "a stream message answered twice": (
        with_more("rows", Row("s2", 5, "assistant", "...", reply_to="m5")),
        "answered twice: part 0 of the answer to m5",
    ),
    "never routed": (without("routed", 1), "lost: m5 was never published"),
    "routed twice": (with_more("routed", Published("s2", 2, "m5")), "doubled: m5 is 2 times"),
    "routed in another order": (swapped("routed", 0, 1), "inverted: routed of s2"),
    "routed from nowhere": (with_more("routed", Published("s2", 3, "m9")), "made up: m9 on routed"),
    "answers published twice": (
        with_more("outbound", Published("s1", 2, "o3")),
        "doubled: o3 is 2 times on outbound",
    ),
    "answers published in another order": (swapped("outbound", 0, 2), "inverted: outbound of s1"),
    "an answer never published": (without("outbound", 0), "gap: outbound of s1 has [2]"),
    "an answer never received": (without("received", 0), "gap: agent:main:test:bot:dm:ann never"),
    "the last answer never received": (without("received", 3), "lost: o4 never reached its chat"),
    "an answer received twice": (
        with_more("received", Received(DESK, "s2", 2, "o4", "b2", "#2 heard: bob 2")),
        "doubled: agent:desk:test:bot:dm:bob received [1, 2, 2]",
    ),
    "answers received in another order": (
        swapped("received", 0, 2),
        "inverted: agent:main:test:bot:dm:ann received [2, 1]",
    ),
    "an answer to another chat": (changed("received", 1, key=ANN), "misrouted: o2 of"),
    "a notice": (changed("received", 2, kind="notice"), "unanswered: agent:main:test:bot:dm:ann"),
    "never heard": (changed("received", 2, text="#4 heard: "), "unanswered: nobody heard 'ann 3'"),
    "heard twice": (
        changed("received", 2, text="#4 heard: ann 3\n#1 heard: ann 1"),
        "answered twice: agent:main:test:bot:dm:ann was told of 'ann 1'",
    ),
    "heard by a stranger": (
        changed("received", 2, text="#4 heard: ann 3\n#1 heard: bob 1"),
        "misrouted: agent:main:test:bot:dm:ann was told of 'bob 1'",
    ),
    "heard in another order": (
        changed("received", 0, text="#2 heard: ann 2\n#1 heard: ann 1"),
        "inverted: agent:main:test:bot:dm:ann was heard as",
    ),
    "an unexpected dead letter": (with_more("dead", "invalid"), "lost: a dead letter invalid"),
    "two turns at once": (
        changed("spells", 0, end=11.5),
        "two at once: turns t1 (1) and t2 (1) of s1 for 0.5 s",
    ),
    "two attempts at once": (changed("spells", 1, end=13.6), "two at once: turns t2 (1) and t2"),
    "an answer after too long": (
        changed("waits", 1, seconds=51.0),
        "stall: 'ann 3' was answered after 51.0 s",
    ),
    "transactions that waited for each other": (
        lambda history: replace(history, deadlocks=2),
        "deadlocks: 2",
    ),
    "something left to do": (
        lambda history: replace(history, left_over={"outbox": 2}),
        "left over: 2 outbox",
    ),
}


def test_a_good_run_has_no_problem() -> None:
    assert problems(good()) == []


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str) -> None:
    damage, line = DAMAGE[name]
    found = problems(damage(good()))
    assert any(it.startswith(line) for it in found), found


def test_a_dead_letter_that_had_to_come_is_missed() -> None:
    assert problems(good(), dead=["not_json"]) == ["lost: no dead letter not_json"]


def test_nothing_at_all_is_a_loss_of_everything() -> None:
    found = problems(History(sent=good().sent))
    assert {line.split(":")[0] for line in found} == {"lost", "unanswered"}
