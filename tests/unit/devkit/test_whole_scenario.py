"""The whole feed against a router that does everything right, told by a few lines of Python."""

import hashlib
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from chatlane_devkit.demo.sabotage import Sabotage, Saboteur
from chatlane_devkit.judge.command_checks import NEW_AFTER_SILENCE
from chatlane_devkit.judge.feed_checks import Cut, conversations
from chatlane_devkit.judge.history import (
    DeadLetter,
    History,
    LogEntry,
    Received,
    Row,
    Session,
)
from chatlane_devkit.judge.verdict import Run, judge
from chatlane_devkit.scenario.feed import Pause, Publication, Step, publications, read_feed
from chatlane_devkit.scenario.scenario_generator import SCENARIO_FILE

STEPS = read_feed(SCENARIO_FILE)
FEED = publications(STEPS)
IDLE = {"discord": timedelta(seconds=2)}
NOON = datetime(2026, 3, 12, 12, tzinfo=UTC)
STEP_LENGTH = timedelta(milliseconds=9)


def play(steps: tuple[Step, ...]) -> list[LogEntry]:
    """Store every envelope once; time passes with every line and with every pause."""
    now, log, stored = NOON, list[LogEntry](), set[str]()
    for step in steps:
        if isinstance(step, Pause):
            now += step.length
        elif isinstance(step, Publication) and step.nats_id not in stored:
            stored.add(step.nats_id)
            now += STEP_LENGTH
            place = step.address
            chat = f"{place.platform}.{place.account}.{place.chat or place.sender}"
            log.append(LogEntry(step.nats_id, len(log) + 1, now, chat))
    return log


def answered(log: list[LogEntry]) -> History:
    """Received each message by itself, in a session that ends by the rule of the verdict."""
    by_id = {its.nats_id: its for its in FEED if its.expect in {"accepted", "obeyed"}}
    expected = conversations(FEED, log, IDLE)
    rows, answers, sessions = list[Row](), list[Received](), dict[str, Session]()
    heard: dict[str, int] = defaultdict(int)
    heard_in_session: dict[str, int] = defaultdict(int)
    spoken: dict[str, int] = defaultdict(int)
    current: dict[str, str] = {}
    asked_for: set[str] = set()
    numbered: dict[str, int] = defaultdict(int)
    album = ""

    def speak(its: Publication, kind: str, cause: str, text: str) -> None:
        name = current[its.talk]
        spoken[name] += 1
        answers.append(
            Received(
                key="",
                session_id=name,
                out_seq=spoken[name],
                id=f"{name} {spoken[name]}",
                reply_to="",
                text=text,
                kind=kind,
                agent=its.agent or "main",
                address=its.address,
                cause=cause,
            )
        )

    for entry in log:
        its = by_id.get(entry.nats_id)
        if its is None:
            continue
        if its.expect == "obeyed":
            speak(its, "notice", f"message {its.message_id}", its.reply)
            asked_for |= {its.talk} if its.begins else set()
            continue
        told, count = heard[its.talk], heard_in_session[its.talk]
        is_cut = told and expected[its.talk].cuts[told] is not Cut.NO
        if is_cut:
            ended = current[its.talk]
            reason = "requested" if its.talk in asked_for else "idle"
            sessions[ended] = replace(sessions[ended], end_reason=reason)
            count = 0
        if not count:
            name = current[its.talk] = f"{its.talk} from {told}"
            key = f"agent:main:{its.platform}:{its.talk}"
            sessions[name] = Session(name, key, its.agent, started_at=entry.stored_at)
        if is_cut and its.talk not in asked_for:
            speak(its, "notice", f"message {its.message_id}", NEW_AFTER_SILENCE)
        asked_for.discard(its.talk)
        name = current[its.talk]
        heard[its.talk], heard_in_session[its.talk] = told + 1, count + 1
        is_more = its.album and album == its.album
        answer = rows.pop() if is_more else Row(name, numbered[name] + 1, "assistant", "")
        text = f"#{answer.seq} heard: {its.hears}"
        rows.append(Row(name, answer.seq, "user", its.text, its.message_id))
        if is_more:
            text = f"{answers[-1].text}\n{text}"
            answers[-1] = replace(answers[-1], text=text)
        else:
            speak(its, "answer", f"turn {its.number}", text)
        numbered[name], album = answer.seq + 1, its.album
        rows.append(Row(name, numbered[name], "assistant", text))
    letters = [
        DeadLetter(hashlib.sha256(its.body).hexdigest(), its.reason)
        for its in FEED
        if its.expect == "dead" and its.body is not None
    ]
    return History(
        log=log,
        received=answers,
        sessions=list(sessions.values()),
        rows=rows,
        dead_letters=letters,
        dead_notices=letters,
    )


HISTORY = answered(play(STEPS))


def test_a_day_without_fault_is_good() -> None:
    verdict = judge(Run(HISTORY, FEED, IDLE))
    assert [problem for check in verdict.checks for problem in check.problems] == []


def test_silence_ended_sessions_in_both_pauses() -> None:
    ended = [its for its in HISTORY.sessions if its.end_reason == "idle"]
    assert len(ended) >= 20


@pytest.mark.parametrize("number", [0, 700, 1500, -1])
def test_any_single_message_is_missed(number: int) -> None:
    answers = list(HISTORY.received)
    del answers[number]
    assert not judge(Run(replace(HISTORY, received=answers), FEED, IDLE)).is_good


@pytest.mark.parametrize(
    ("sabotage", "kind"),
    [(Sabotage.DROP, "gap: "), (Sabotage.REPEAT, "doubled: "), (Sabotage.SWAP, "inverted: ")],
)
def test_sabotage_of_one_answer_is_named(sabotage: Sabotage, kind: str) -> None:
    told: list[str] = []
    saboteur = Saboteur(sabotage, told.append)
    received = [given for answer in HISTORY.received for given in saboteur.deliver(answer)]
    verdict = judge(Run(replace(HISTORY, received=received), FEED, IDLE))
    assert not verdict.is_good
    assert any(problem.startswith(kind) for problem in verdict.problems)
    assert len(told) == 1


def test_an_album_that_was_answered_in_pieces_is_named() -> None:
    (place, whole) = next(
        (place, its)
        for place, its in enumerate(HISTORY.received)
        if len(list(its.heard_messages())) == 3
    )
    pieces = [replace(whole, text=line) for line in whole.text.split("\n")]
    answers = [*HISTORY.received[:place], *pieces, *HISTORY.received[place + 1 :]]
    verdict = judge(Run(replace(HISTORY, received=answers), FEED, IDLE))
    problems = [problem for check in verdict.checks for problem in check.problems]
    assert any("was not answered as one" in problem for problem in problems)


def test_a_command_that_is_not_obeyed_is_missed() -> None:
    answers = [its for its in HISTORY.received if its.kind != "notice"]
    assert not judge(Run(replace(HISTORY, received=answers), FEED, IDLE)).is_good


def test_a_conversation_that_goes_on_where_another_was_asked_for_is_named() -> None:
    talk = next(its.talk for its in FEED if its.begins)
    first, second = sorted(its.id for its in HISTORY.sessions if its.id.startswith(talk))
    rows = list[Row]()
    for its in HISTORY.rows:
        moved = its.session_id == second
        rows.append(replace(its, session_id=first, seq=its.seq + 2) if moved else its)
    sessions = [its for its in HISTORY.sessions if its.id != second]
    verdict = judge(Run(replace(HISTORY, rows=rows, sessions=sessions), FEED, IDLE))
    problems = [problem for check in verdict.checks for problem in check.problems]
    assert any("did not begin a new one" in problem for problem in problems)
