"""The verdict must accept a faultless run and name whatever is wrong with any other."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from chatlane_devkit.judge.command_checks import NEW_AFTER_SILENCE
from chatlane_devkit.judge.feed_checks import HeardMessage, is_interleaving
from chatlane_devkit.judge.history import (
    DeadLetter,
    Heard,
    History,
    LogEntry,
    ReceiptEntry,
    Received,
    Row,
    Session,
)
from chatlane_devkit.judge.verdict import Run, Verdict, judge
from chatlane_devkit.scenario.feed import Address, Publication, parse_step

NOON: Final = datetime(2026, 3, 12, 12, tzinfo=UTC)
IDLE: Final = {"discord": timedelta(seconds=2)}
BROKEN: Final = b"hello?"
BROKEN_DIGEST: Final = hashlib.sha256(BROKEN).hexdigest()


def said(
    number: int,
    text: str,
    *,
    talk: str = "telegram/ann",
    chat: str = "1",
    settles: int = 0,
    **more: object,
) -> Publication:
    event = {
        "id": f"e{number}",
        "message_id": number,
        "platform": talk.split("/", maxsplit=1)[0],
        "account": "a",
        "chat": {"id": chat},
        "sender": {"id": "u"},
        "text": text,
    }
    line = {"event": event | more, "expect": "accepted", "talk": talk, "agent": "main"}
    step = parse_step(number, line, settles)
    assert isinstance(step, Publication)
    return step


def broken(number: int) -> Publication:
    line = {"subject": "s", "body": BROKEN.decode(), "expect": "dead:not_json"}
    step = parse_step(number, line)
    assert isinstance(step, Publication)
    return step


def logged(feed: Sequence[Publication], seconds: Sequence[float] = ()) -> list[LogEntry]:
    """Store the feed, one a second or at the given seconds."""
    return [
        LogEntry(
            sequence=number + 1,
            stored_at=NOON + timedelta(seconds=seconds[number] if seconds else number),
            chat=its.address.chat,
            nats_id=its.nats_id,
            digest="",
        )
        for number, its in enumerate(feed)
    ]


def session(name: str, *, number: int = 0, end_reason: str = "") -> Session:
    started_at = NOON + timedelta(seconds=number)
    return Session(name, f"key of {name}", "main", end_reason, started_at=started_at)


def received(
    name: str, number: int, address: Address, text: str, *, kind: str, cause: str
) -> Received:
    return Received(
        key="",
        session_id=name,
        out_seq=number,
        id=f"{name} {number}",
        reply_to="",
        text=text,
        kind=kind,
        agent="main",
        address=address,
        cause=cause,
    )


def talked(
    name: str, *turns: Sequence[Publication], address: Address | None = None
) -> tuple[list[Row], list[Received]]:
    """Return what a session looks like in which each turn was heard and answered."""
    rows: list[Row] = []
    answers: list[Received] = []
    for turn in turns:
        heard = []
        for its in turn:
            rows.append(Row(name, len(rows) + 1, "user", its.text, its.message_id))
            heard.append(f"#{len(rows)} heard: {its.hears}")
        text = "\n".join(heard)
        rows.append(Row(name, len(rows) + 1, "assistant", text))
        place = address or turn[-1].address
        number = len(answers) + 1
        answers.append(received(name, number, place, text, kind="answer", cause=f"turn {number}"))
    return rows, answers


ONE, TWO, THREE = said(1, "one"), said(2, "two"), said(3, "three\nand a half")
OTHER = said(4, "hello", talk="telegram/ben", chat="2")
FEED = (ONE, TWO, THREE, OTHER, broken(5))


def faultless() -> History:
    rows, answers = talked("s1", [ONE], [TWO, THREE])
    other_rows, other_answers = talked("s2", [OTHER])
    letter = DeadLetter(BROKEN_DIGEST, "not_json")
    return History(
        log=logged(FEED),
        received=[*answers, *other_answers],
        sessions=[session("s1"), session("s2")],
        rows=[*rows, *other_rows],
        dead_letters=[letter],
        dead_notices=[letter],
    )


def problems(verdict: Verdict) -> str:
    return "\n".join(verdict.problems)


def test_a_faultless_run_is_good() -> None:
    verdict = judge(Run(faultless(), FEED, IDLE))
    assert problems(verdict) == ""
    assert verdict.is_good
    assert [check.counted for check in verdict.checks] == [5, 4, 4, 2, 7, 3, 0, 0, 1, 1]


def test_receipts_of_the_answers_are_good() -> None:
    history = faultless()
    receipts = [
        receipt_of(answer.id, f"r{number}") for number, answer in enumerate(history.received)
    ]
    assert judge(Run(replace(history, receipts=receipts), FEED, IDLE)).is_good


def test_an_answer_says_what_was_heard_over_several_lines() -> None:
    _, answers = talked("s1", [ONE], [TWO, THREE])
    assert [list(answer.heard_messages()) for answer in answers] == [
        [Heard(1, "one")],
        [Heard(3, "two"), Heard(4, "three\nand a half")],
    ]


Spoil = Callable[[History], History]


def without_row(history: History) -> History:
    """The message never reached the transcript; its number is heard all the same."""
    rows = [row for row in history.rows if row.text != "two"]
    return replace(history, rows=rows)


def lost(history: History) -> History:
    """As if TWO had never been: everything is consistent but for the feed."""
    rows, answers = talked("s1", [ONE], [THREE])
    return replace(
        history,
        rows=[*rows, *(row for row in history.rows if row.session_id == "s2")],
        received=[*answers, *(its for its in history.received if its.session_id == "s2")],
    )


def told_as(*turns: Sequence[Publication]) -> Spoil:
    def spoil(history: History) -> History:
        rows, answers = talked("s1", *turns)
        return replace(
            history,
            rows=[*rows, *(row for row in history.rows if row.session_id == "s2")],
            received=[*answers, *(its for its in history.received if its.session_id == "s2")],
        )

    return spoil


def in_the_other_session(history: History) -> History:
    rows, answers = talked("s1", [ONE], [TWO])
    other_rows, other_answers = talked("s2", [OTHER], [THREE], address=OTHER.address)
    return replace(history, rows=[*rows, *other_rows], received=[*answers, *other_answers])


def split(history: History) -> History:
    rows, answers = talked("s1", [ONE])
    more_rows, more_answers = talked("s3", [TWO, THREE])
    rest = [row for row in history.rows if row.session_id == "s2"]
    rest_answers = [its for its in history.received if its.session_id == "s2"]
    return replace(
        history,
        rows=[*rows, *more_rows, *rest],
        received=[*answers, *more_answers, *rest_answers],
        sessions=[*history.sessions, session("s3", number=9)],
    )


def unheard(history: History) -> History:
    answers = [replace(its, text=its.text.split("\n", 1)[-1]) for its in history.received]
    rows = [
        replace(row, text=row.text.split("\n", 1)[-1]) if row.role == "assistant" else row
        for row in history.rows
    ]
    return replace(history, received=answers, rows=rows)


def answered_twice(history: History) -> History:
    first = history.received[0]
    return replace(history, received=[first, replace(first, out_seq=2), *history.received[2:]])


def answers_swapped(history: History) -> History:
    first, second, *rest = history.received
    return replace(history, received=[second, first, *rest])


def answer_missing(history: History) -> History:
    return replace(history, received=history.received[1:])


def elsewhere(history: History) -> History:
    first, *rest = history.received
    return replace(history, received=[replace(first, address=OTHER.address), *rest])


def nowhere(history: History) -> History:
    first, *rest = history.received
    away = replace(first.address, chat="99")
    return replace(history, received=[replace(first, address=away), *rest])


def by_another_agent(history: History) -> History:
    first, *rest = history.sessions
    return replace(history, sessions=[replace(first, agent="notes"), *rest])


def misheard(history: History) -> History:
    first, *rest = history.received
    first = replace(first, text="#1 heard: once")
    rows = [
        replace(row, text="#1 heard: once") if (row.seq, row.session_id) == (2, "s1") else row
        for row in history.rows
    ]
    return replace(history, received=[first, *rest], rows=rows)


def notice_came(history: History) -> History:
    first, *rest = history.received
    return replace(history, received=[replace(first, kind="notice"), *rest])


def gap_in_the_numbers(history: History) -> History:
    rows = [
        replace(row, seq=row.seq + 1) if row.role == "assistant" else row for row in history.rows
    ]
    return replace(history, rows=rows)


def ended(history: History) -> History:
    first, *rest = history.sessions
    return replace(history, sessions=[replace(first, end_reason="daily"), *rest])


def silent(history: History) -> History:
    sessions = [replace(session, end_reason="idle") for session in history.sessions]
    return replace(history, sessions=sessions)


def no_dead_letter(history: History) -> History:
    return replace(history, dead_letters=[])


def no_dead_notice(history: History) -> History:
    return replace(history, dead_notices=[])


def another_reason(history: History) -> History:
    return replace(history, dead_letters=[DeadLetter(BROKEN_DIGEST, "invalid", detail="v: no")])


def a_dead_letter_too_many(history: History) -> History:
    letters = [*history.dead_letters, DeadLetter("f" * 64, "turn_failed")]
    return replace(history, dead_letters=letters)


def something_left(history: History) -> History:
    return replace(history, left_over={"outbox rows": 1, "live turns": 3})


def never_stored(history: History) -> History:
    return replace(history, log=history.log[1:])


def stored_twice(history: History) -> History:
    return replace(history, log=[*history.log, replace(history.log[0], sequence=99)])


def stored_out_of_order(history: History) -> History:
    first, second, *rest = history.log
    swapped = [replace(first, sequence=2), replace(second, sequence=1)]
    return replace(history, log=[*swapped, *rest])


def foreign(history: History) -> History:
    return replace(history, log=[*history.log, replace(history.log[0], nats_id="x", sequence=99)])


def receipt_of(message_id: str, nats_id: str) -> ReceiptEntry:
    return ReceiptEntry(nats_id, message_id, "delivered")


def receipt_of_nothing(history: History) -> History:
    return replace(history, receipts=[receipt_of("unknown", "r1")])


def receipt_stored_twice(history: History) -> History:
    return replace(history, receipts=[receipt_of(history.received[0].id, "r1")] * 2)


def delivery_reported_twice(history: History) -> History:
    message_id = history.received[0].id
    return replace(history, receipts=[receipt_of(message_id, "r1"), receipt_of(message_id, "r2")])


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lost, "telegram/ann: lost: 2 'two'"),
        (without_row, "telegram/ann: lost: 2 'two'"),
        (told_as([ONE], [TWO], [TWO, THREE]), "telegram/ann: doubled: 2 'two'"),
        (told_as([TWO], [ONE, THREE]), "telegram/ann: out of order: 2 'two' came where 1 'one'"),
        (told_as([ONE, THREE], [TWO]), "telegram/ann: out of order: 3 'three and a half' came"),
        (in_the_other_session, "telegram/ben: does not belong here: 3 'three and a half'"),
        (in_the_other_session, "telegram/ann: lost: 3 'three and a half'"),
        (split, "telegram/ann: in the wrong session: 2 'two' began a new one"),
        (unheard, "session s1: number 3 was never heard"),
        (answered_twice, "session s1: number 1 was heard too often"),
        (answered_twice, "session s1: part 0 of turn 1 came 2 times"),
        (answers_swapped, "session s1: heard out of order: [3, 4, 1]"),
        (answers_swapped, "inverted: s1 received [2, 1]"),
        (answer_missing, "told otherwise: answer 1 of s1 is"),
        (elsewhere, "session s1 is shared by telegram/ann, telegram/ben"),
        (nowhere, "session s1 belongs to no conversation of the feed"),
        (by_another_agent, "telegram/ann was answered by notes, not main"),
        (misheard, "session s1: 'one' was heard as 'once'"),
        (notice_came, "1 times told for nothing: '#1 heard: one' to turn 1"),
        (gap_in_the_numbers, "gap: s1 is numbered [1, 3, 3, 4, 6]"),
        (ended, "0 sessions were followed by another; ended were: {'daily': 1}"),
        (no_dead_letter, f"no row for {BROKEN_DIGEST[:12]}, which is not_json"),
        (no_dead_notice, f"no notice for {BROKEN_DIGEST[:12]}, which is not_json"),
        (another_reason, f"a row too many: {BROKEN_DIGEST[:12]}, invalid (v: no)"),
        (a_dead_letter_too_many, "a row too many: ffffffffffff, turn_failed"),
        (something_left, "left over: 1 outbox rows\nleft over: 3 live turns"),
        (never_stored, "lost: e1 was acknowledged and is not in the log"),
        (stored_twice, "doubled: e1 is in the log 2 times"),
        (stored_out_of_order, "line 1 was stored after line 2 of the same chat"),
        (foreign, "made up: x is not of the feed"),
        (receipt_of_nothing, "made up: receipt r1 names unknown, not of the run"),
        (receipt_stored_twice, "doubled: receipt r1 is in the log 2 times"),
        (delivery_reported_twice, "doubled: message s1 1 was reported as delivered 2 times"),
    ],
)
def test_a_fault_is_found_and_named(spoil: Spoil, words: str) -> None:
    verdict = judge(Run(spoil(faultless()), FEED, IDLE))
    assert not verdict.is_good
    assert words in problems(verdict)


EVENING = (
    said(1, "hi", talk="discord/kim"),
    said(2, "you there?", talk="discord/kim"),
    said(3, "good evening", talk="discord/kim", settles=1),
)


def told_of_silence(name: str, first: Publication) -> Received:
    cause = f"message {first.message_id}"
    return received(name, 2, first.address, NEW_AFTER_SILENCE, kind="notice", cause=cause)


def evening(seconds: Sequence[float], *chapters: Sequence[Publication]) -> History:
    rows: list[Row] = []
    answers: list[Received] = []
    sessions: list[Session] = []
    for number, chapter in enumerate(chapters):
        name = f"s{number}"
        more_rows, more_answers = talked(name, chapter)
        rows, answers = [*rows, *more_rows], [*answers, *more_answers]
        if number:
            answers.append(told_of_silence(name, chapter[0]))
        reason = "idle" if number < len(chapters) - 1 else ""
        sessions.append(session(name, number=number, end_reason=reason))
    log = logged(EVENING, seconds)
    return History(log=log, received=answers, sessions=sessions, rows=rows)


def test_silence_begins_a_new_session_with_the_message_that_ends_it() -> None:
    history = evening((0, 1, 3.001), EVENING[:2], EVENING[2:])
    assert problems(judge(Run(history, EVENING, IDLE))) == ""


def test_silence_of_exactly_the_limit_does_not() -> None:
    history = evening((0, 2, 4), EVENING)
    assert problems(judge(Run(history, EVENING, IDLE))) == ""


def test_a_session_that_ended_too_early_is_found() -> None:
    history = evening((0, 1, 2), EVENING[:2], EVENING[2:])
    found = problems(judge(Run(history, EVENING, IDLE)))
    assert "discord/kim: in the wrong session: 3 'good evening' began a new one" in found


def test_a_session_that_should_have_ended_is_found() -> None:
    history = evening((0, 1, 9), EVENING)
    found = problems(judge(Run(history, EVENING, IDLE)))
    assert "discord/kim: in the wrong session: 3 'good evening' did not begin a new one" in found


def test_a_session_that_is_followed_by_another_must_have_ended() -> None:
    history = evening((0, 1, 9), EVENING[:2], EVENING[2:])
    sessions = [replace(its, end_reason="") for its in history.sessions]
    found = problems(judge(Run(replace(history, sessions=sessions), EVENING, IDLE)))
    assert "1 sessions were followed by another; ended were: {}" in found


@pytest.mark.parametrize("cut", [1, 2])
def test_silence_during_which_a_turn_may_have_run_decides_nothing(cut: int) -> None:
    feed = tuple(replace(its, settles=0) for its in EVENING)
    history = evening((0, 5, 10), *((feed,) if cut == 1 else (feed[:cut], feed[cut:])))
    assert problems(judge(Run(history, feed, IDLE))) == ""


def test_a_timer_is_not_a_sign_of_life() -> None:
    timer = said(2, "Timer", talk="discord/kim", kind="system", settles=1)
    feed = (EVENING[0], timer, replace(EVENING[2], settles=2))
    rows, answers = talked("s1", feed[:2])
    more_rows, more_answers = talked("s2", feed[2:])
    history = History(
        log=logged(feed, (0, 1.5, 3)),
        received=[*answers, *more_answers, told_of_silence("s2", feed[2])],
        sessions=[session("s1", end_reason="idle"), session("s2", number=1)],
        rows=[*rows, *more_rows],
        dead_letters=[],
        dead_notices=[],
    )
    assert problems(judge(Run(history, feed, IDLE))) == ""


OLD = (said(1, "we move", chat="-1"), said(2, "see you there", chat="-1"))
NEW = (said(3, "here we are", chat="-100"),)


def moved(*turns: Sequence[Publication]) -> History:
    rows, answers = talked("s1", *turns)
    log = logged((*OLD, *NEW))
    return History(log=log, received=answers, sessions=[session("s1")], rows=rows)


def test_two_addresses_of_one_conversation_may_interleave() -> None:
    history = moved([OLD[0]], [NEW[0], OLD[1]])
    assert problems(judge(Run(history, (*OLD, *NEW), IDLE))) == ""


def test_within_an_address_order_is_still_due() -> None:
    found = problems(judge(Run(moved([OLD[1], OLD[0], NEW[0]]), (*OLD, *NEW), IDLE)))
    assert "telegram/ann: out of order" in found


def test_two_addresses_of_one_conversation_share_a_session() -> None:
    rows, answers = talked("s1", OLD)
    more_rows, more_answers = talked("s2", NEW)
    history = History(
        log=logged((*OLD, *NEW)),
        received=[*answers, *more_answers],
        sessions=[session("s1"), session("s2", number=1)],
        rows=[*rows, *more_rows],
        dead_letters=[],
        dead_notices=[],
    )
    found = problems(judge(Run(history, (*OLD, *NEW), IDLE)))
    assert "telegram/ann: split into 2 sessions" in found


def test_threads_that_are_none_are_the_same_place() -> None:
    first, second = said(1, "a", thread_id="0"), said(2, "b")
    rows, answers = talked("s1", [first], [second], address=second.address)
    history = History(
        log=logged((first, second)), received=answers, sessions=[session("s1")], rows=rows
    )
    assert problems(judge(Run(history, (first, second), IDLE))) == ""


def test_an_interleaving_may_need_a_look_ahead() -> None:
    a, b, c = (its for its in (_said("a"), _said("b"), _said("c")))
    assert is_interleaving((a, b, a, c), ((a, c), (a, b)))
    assert not is_interleaving((c, a, a, b), ((a, c), (a, b)))
    assert not is_interleaving((a,), ((a, c),))


def _said(text: str) -> HeardMessage:
    return HeardMessage("", text)


def commanded(text: str, reply: str, *, begins: bool = False) -> Publication:
    line = {
        "event": dict(ONE.event) | {"id": "c", "message_id": 9, "text": text},
        "expect": "obeyed",
        "talk": ONE.talk,
        "reply": reply,
        "begins": begins,
    }
    step = parse_step(9, line)
    assert isinstance(step, Publication)
    return step


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([("9", "done", "u")], ""),
        ([], "1 times not told: 'done' to 9"),
        ([("9", "other", "u")], "1 times told for nothing: 'other' to 9"),
        ([("9", "done", "u"), ("9", "done", "u")], "1 times told for nothing: 'done' to 9"),
        ([("9", "done", "v")], "told in the wrong place: 'done'"),
    ],
)
def test_commands_are_answered_once_and_where_they_came_from(
    told: Sequence[tuple[str, str, str]], words: str
) -> None:
    command = commanded("/title done", "done")
    rows, answers = talked("s1", [ONE])
    for replied_to, text, sender in told:
        place = replace(command.address, sender=sender)
        number = len(answers) + 1
        cause = f"message {replied_to}"
        answers.append(received("s1", number, place, text, kind="notice", cause=cause))
    feed = (ONE, command)
    history = History(log=logged(feed), received=answers, sessions=[session("s1")], rows=rows)
    found = problems(judge(Run(history, feed, IDLE)))
    assert words in found if words else found == ""


def test_a_conversation_may_end_by_silence_without_another() -> None:
    assert judge(Run(silent(faultless()), FEED, IDLE)).is_good
