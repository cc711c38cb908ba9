"""A checker that finds nothing proves nothing: every kind of damage, made by hand, is named."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from chatlane_devkit.judge.history import (
    DeadLetter,
    Handed,
    History,
    LogEntry,
    Published,
    Received,
    Result,
    Row,
    Sent,
    Session,
    Spell,
    Turn,
    Wait,
    shown,
)
from chatlane_devkit.judge.stream_checks import overlaps
from chatlane_devkit.judge.verdict import Run, judge, unwatched

ANN, DESK = "agent:main:test:bot:dm:ann", "agent:desk:test:bot:dm:bob"


def good() -> History:
    """Return a run of two chats: one answered by turns, the other by a stream agent."""
    return History(
        sent=(
            Sent(ANN, 1, "a1", "e1", "ann 1", "main"),
            Sent(DESK, 1, "b1", "e2", "bob 1", "desk"),
            Sent(ANN, 2, "a2", "e3", "ann 2", "main"),
            Sent(ANN, 1, "a1", "e4", "ann 1", "main"),
            Sent(ANN, 3, "a3", "e5", "ann 3", "main"),
            Sent(DESK, 2, "b2", "e6", "bob 2", "desk"),
        ),
        log=[LogEntry(f"e{number}") for number in range(1, 7)],
        sessions=(
            Session("s1", ANN, "main", next_seq=6, next_out_seq=3),
            Session("s2", DESK, "desk", next_seq=5, next_out_seq=3),
        ),
        rows=(
            Row("s1", 1, "user", "ann 1", "a1", id="m1", turn_id="t1"),
            Row("s1", 2, "user", "ann 2", "a2", id="m2", turn_id="t1"),
            Row("s1", 3, "assistant", "#1 heard: ann 1\n#2 heard: ann 2", turn_id="t1"),
            Row("s1", 4, "user", "ann 3", "a3", id="m3", turn_id="t2"),
            Row("s1", 5, "assistant", "#4 heard: ann 3", turn_id="t2"),
            Row("s2", 1, "user", "bob 1", "b1", id="m4"),
            Row("s2", 2, "user", "bob 2", "b2", id="m5"),
            Row("s2", 3, "assistant", "#1 heard: bob 1", reply_to="m4"),
            Row("s2", 4, "assistant", "#2 heard: bob 2", reply_to="m5"),
        ),
        turns=(
            Turn("t1", "s1", "done", 1, "x", "r1"),
            Turn("t2", "s1", "done", 2, "z", "r3"),
        ),
        results=(
            Result("r1", "t1", 1, "x"),
            Result("r2", "t2", 1, "y"),
            Result("r3", "t2", 2, "z"),
        ),
        late=frozenset({"r2"}),
        started=("s1", "s2"),
        routed=(
            Published("s2", 1, "m4", "routed.desk.1.s2", "bob 1"),
            Published("s2", 2, "m5", "routed.desk.1.s2", "bob 2"),
        ),
        handed=(
            Handed("given", 1, 1, "m4", "s2", 1),
            Handed("acknowledged", 2, 1, "m4", "s2", 1),
            Handed("given", 3, 2, "m5", "s2", 2),
            Handed("given", 4, 1, "m5", "s2", 2),
            Handed("acknowledged", 5, 1, "m5", "s2", 2),
        ),
        outbound=(
            Published("s1", 1, "o1", text="#1 heard: ann 1\n#2 heard: ann 2"),
            Published("s2", 1, "o2", text="#1 heard: bob 1"),
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
    "acknowledged and not stored": (without("log", 2), "lost: e3 was acknowledged"),
    "stored twice": (with_more("log", LogEntry("e3")), "doubled: e3 is in the log 2 times"),
    "stored in another order": (swapped("log", 0, 2), "inverted: the log has the messages"),
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
    "an answer that was never published": (
        changed("received", 1, id="o9"),
        "made up: agent:desk:test:bot:dm:bob received o9, which was never published",
    ),
    "an answer received as another one": (
        swapped_numbers("received", "id", 0, 2),
        "misrouted: o3 is 2 of s1, and was received as 1 of s1",
    ),
    "an answer that changed on its way": (
        changed("outbound", 1, text="#1 heard: bob I"),
        "changed: the text of o2 on its way to agent:desk:test:bot:dm:bob",
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
    "an unexpected dead letter": (
        with_more("dead_letters", DeadLetter("", "invalid")),
        "lost: a dead letter invalid",
    ),
    "a session with another agent": (
        changed("sessions", 1, agent="main"),
        "misrouted: agent:desk:test:bot:dm:bob is with agent main",
    ),
    "a session that ended": (
        changed("sessions", 0, end_reason="idle"),
        "lost: the session of agent:main:test:bot:dm:ann ended (idle)",
    ),
    "a beginning that nobody was told of": (
        without("started", 0),
        "doubled or lost: the beginning of agent:main:test:bot:dm:ann was told 0 times",
    ),
    "a beginning told twice": (
        with_more("started", "s2"),
        "doubled or lost: the beginning of agent:desk:test:bot:dm:bob was told 2 times",
    ),
    "rows that the session did not count": (
        changed("sessions", 0, next_seq=7),
        "counted: agent:main:test:bot:dm:ann has 5 rows, the next is 7",
    ),
    "answers that the session did not count": (
        changed("sessions", 1, next_out_seq=2),
        "counted: agent:desk:test:bot:dm:bob was told 2 times, next 2",
    ),
    "a message taken back": (changed("rows", 0, state="undone"), "changed: a1 is undone"),
    "a turn of nobody": (changed("turns", 0, session_id="s9"), "made up: turn t1 is of no session"),
    "a turn with rows of another session": (
        changed("turns", 0, session_id="s2"),
        "misrouted: turn t1 of s2 has rows elsewhere",
    ),
    "an answer to another question": (
        changed("rows", 4, text="#4 heard: ann 1"),
        "changed: turn t2 was asked ['ann 3'] and answers '#4 heard: ann 1'",
    ),
    "an answer to half of a turn": (
        changed("rows", 2, text="#1 heard: ann 1"),
        "changed: turn t1 was asked ['ann 1', 'ann 2'] and answers",
    ),
    "an answer before its question": (
        swapped_numbers("rows", "seq", 3, 4),
        "inverted: turn t2 of s1 was answered before it was asked",
    ),
    "a turn inside another": (
        swapped_numbers("rows", "seq", 2, 3),
        "inverted: the rows of turn t1 are in 2 places of s1",
    ),
    "a turn ended by the attempt before": (
        changed("turns", 1, result_id="r2"),
        "late: attempt 1 ended turn t2, in its 2.",
    ),
    "a turn ended with the token of another": (
        changed("results", 2, token="y"),  # noqa: S106 # of a test
        "late: attempt 2 ended turn t2 with another token",
    ),
    "a turn ended by the result of another": (
        changed("turns", 1, result_id="r1"),
        "misrouted: turn t2 was ended by a result of t1",
    ),
    "a result that nobody wanted and nobody kept": (
        lambda history: replace(history, late=frozenset()),
        "lost: result r2 ended no turn, and is not kept as late",
    ),
    "a result that counted and came too late": (
        lambda history: replace(history, late=frozenset({"r2", "r3"})),
        "late: r3 ended a turn and is kept as late",
    ),
    "a stream answer to nothing": (
        changed("rows", 8, reply_to="m9"),
        "misrouted: an answer in s2 to m9",
    ),
    "a stream answer before its question": (
        swapped_numbers("rows", "seq", 5, 7),
        "inverted: b1 was answered before it was asked",
    ),
    "a stream answer to another question": (
        changed("rows", 8, text="#2 heard: bob 1"),
        "changed: 'bob 2' is answered by '#2 heard: bob 1'",
    ),
    "routed to several slots": (
        changed("routed", 1, subject="routed.desk.2.s2"),
        "split: routed of s2 is on several subjects",
    ),
    "routed with another number": (
        changed("routed", 1, number=5),
        "misrouted: m5 is 5 of s2, its row 2",
    ),
    "routed with another text": (
        changed("routed", 1, text="bob II"),
        "changed: the text of m5 on routed",
    ),
    "never given to a subscriber": (
        lambda history: having(history, "handed", [*history.handed[:2]]),
        "lost: m5 was never given to a subscriber",
    ),
    "given before the last one was done": (
        changed("handed", 2, at=1.5),
        "two at once: 2 of s2 was given before 1 was done",
    ),
    "an answer that the chat never saw": (
        with_more("rows", Row("s1", 6, "assistant", "#4 heard: ann 3", turn_id="t2")),
        "told otherwise: answer 3 of s1 is ['#4 heard: ann 3'], its chat was told []",
    ),
    "an answer that is in no transcript": (
        without("rows", 2),
        "told otherwise: answer 1 of s1 is ['#4 heard: ann 3']",
    ),
    "an answer that says something else": (
        changed("received", 2, text="#4 heard: ann 3 or so"),
        "told otherwise: answer 2 of s1",
    ),
    "an answer to somebody else's message": (
        changed("received", 2, reply_to="b1"),
        "misrouted: o3 replies to 'b1', which agent:main:test:bot:dm:ann never wrote",
    ),
    "an attempt that two workers had": (
        with_more("spells", Spell("s1", "t1", 1, 20.0, 21.0)),
        "doubled: attempt 1 of turn t1 was begun 2 times",
    ),
    "a turn that nobody worked on": (
        without("spells", 2),
        "made up: nobody worked on attempt 2 of turn t2",
    ),
    "work on a turn that there is not": (
        changed("spells", 1, turn_id="t9"),
        "made up: somebody worked on turn t9, which there is not",
    ),
    "work on a turn of another session": (
        changed("spells", 0, session_id="s2"),
        "misrouted: turn t1 was worked on as one of s2",
    ),
    "an attempt that was not counted": (
        changed("turns", 1, attempt=1, token="y", result_id="r2"),  # noqa: S106 # of a test
        "counted: turn t2 had an attempt 2, and counts 1",
    ),
    "a long turn behind a short one": (
        lambda history: replace(
            history,
            spells=(
                *history.spells,
                Spell("s1", "t3", 1, 20.0, 30.0),
                Spell("s1", "t4", 1, 21.0, 21.1),
                Spell("s1", "t5", 1, 22.0, 23.0),
            ),
        ),
        "two at once: turns t3 (1) and t5 (1) of s1 for 1.0 s",
    ),
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
    assert judge(Run(good())).problems == []


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(name: str) -> None:
    damage, line = DAMAGE[name]
    found = judge(Run(damage(good()))).problems
    assert any(it.startswith(line) for it in found), found


def test_a_dead_letter_that_had_to_come_is_missed() -> None:
    assert judge(Run(good(), dead=["not_json"])).problems == ["lost: no dead letter not_json"]


def test_nothing_at_all_is_a_loss_of_everything() -> None:
    found = judge(Run(History(sent=good().sent))).problems
    assert {line.split(":")[0] for line in found} == {"lost", "unanswered"}


def test_what_a_frozen_worker_goes_on_with_is_no_second_begin() -> None:
    spell = Spell("s1", "t2", 2, 15.0, 15.5, is_resumed=True)
    assert judge(Run(with_more("spells", spell)(good()))).problems == []


def test_a_run_without_watchers_has_no_problem() -> None:
    unwatched = replace(good(), spells=(), handed=(), started=(), results=())
    assert judge(Run(unwatched)).problems == []


@pytest.mark.parametrize(
    "field",
    [
        "sent",
        "log",
        "routed",
        "outbound",
        "received",
        "spells",
        "handed",
        "results",
        "started",
        "waits",
    ],
)
def test_what_nobody_tells_of_is_named(field: str) -> None:
    assert unwatched(good()) == []
    [line] = unwatched(having(good(), field, ()))
    assert line.startswith("unwatched: nobody tells what")


def test_a_message_that_is_given_again_is_no_overlap() -> None:
    assert list(overlaps(good().handed)) == []


def test_of_a_long_list_the_place_that_is_wrong_is_shown() -> None:
    numbers = [*range(1, 500), 600, *range(500, 1000)]
    assert shown([1, 3]) == "[1, 3]"
    assert "498, 499, 600, 500, 501" in shown(numbers)
    assert len(shown(numbers)) < 200
