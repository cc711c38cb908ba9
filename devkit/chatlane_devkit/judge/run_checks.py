"""Compare a run with the messages that its users sent: input, database, turns and workers.

It knows the guarantees and none of the router's rules. Every problem is one line that begins with
the kind of damage, so that a test can show that each kind is detected.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby

from chatlane_devkit.judge.delivery_checks import (
    log_problems,
)
from chatlane_devkit.judge.history import (
    History,
    Result,
    Row,
    Sent,
    Spell,
    Turn,
    Wait,
    firsts,
    grouped,
    shown,
    stream_sessions,
    users,
)

# A worker whose lease has expired stops as soon as its event loop runs.
_TOLD_LATE_SECONDS = 0.25


def sent_log_problems(history: History) -> Iterator[str]:
    """Require each acknowledged message once in the log, in the order of its chat."""
    place = {envelope_id: n for n, envelope_id in enumerate(history.stored_ids)}
    yield from log_problems(history.log, (sent.envelope_id for sent in history.sent))
    for key, of_chat in grouped(firsts(history.sent), lambda sent: sent.key).items():
        places = [place.get(sent.envelope_id, -1) for sent in of_chat]
        if places != sorted(places):
            yield f"inverted: the log has the messages of {key} in another order"


def session_problems(history: History) -> Iterator[str]:
    """Require one open session per chat, with the right agent, announced once."""
    agents = {sent.key: sent.agent for sent in history.sent}
    found = Counter(session.key for session in history.sessions)
    yield from (f"lost: no session for {key}" for key in sorted(agents.keys() - found.keys()))
    yield from (f"split: {count} sessions for {key}" for key, count in found.items() if count > 1)
    yield from (f"misrouted: a session for {key}" for key in sorted(found.keys() - agents.keys()))
    for it in history.sessions:
        if (agent := agents.get(it.key)) and it.agent != agent:
            yield f"misrouted: {it.key} is with agent {it.agent}"
        if it.end_reason:
            yield f"lost: the session of {it.key} ended ({it.end_reason})"
    announced = Counter(history.started)
    for it in history.sessions if announced else ():
        if announced[it.id] != 1:
            yield f"doubled or lost: the beginning of {it.key} was told {announced[it.id]} times"


def counter_problems(history: History) -> Iterator[str]:
    """Compare the counters of sessions with the rows."""
    rows = Counter(row.session_id for row in history.rows)
    received = Counter(it.session_id for it in history.received)
    for it in history.sessions:
        if it.next_seq and it.next_seq != rows[it.id] + 1:
            yield f"counted: {it.key} has {rows[it.id]} rows, the next is {it.next_seq}"
        if it.next_out_seq and it.next_out_seq != received[it.id] + 1:
            yield f"counted: {it.key} was told {received[it.id]} times, next {it.next_out_seq}"


def transcript_problems(history: History) -> Iterator[str]:
    """Require each message once in the transcript of its session, in order."""
    keys = {session.id: session.key for session in history.sessions}
    by_session = grouped(history.rows, lambda row: row.session_id)
    placed = grouped(users(history.rows), lambda row: row.message_id)
    messages = {sent.message_id: sent for sent in history.sent}
    for message_id, sent in messages.items():
        yield from _placing_problems(sent, placed.get(message_id, []), keys)
    yield from (f"made up: {it}" for it in placed.keys() - messages.keys())
    for session_id, rows in by_session.items():
        order = [messages[it.message_id].number for it in users(rows) if it.message_id in messages]
        if order != sorted(order):
            yield f"inverted: the transcript of {keys.get(session_id, session_id)} has {shown(order)}"


def _placing_problems(sent: Sent, rows: Sequence[Row], keys: Mapping[str, str]) -> Iterator[str]:
    if not rows:
        yield f"lost: {sent.message_id} is in no transcript"
    if len(rows) > 1:
        yield f"doubled: {sent.message_id} is in transcripts {len(rows)} times"
    for row in rows:
        if keys.get(row.session_id) != sent.key:
            yield f"misrouted: {sent.message_id} is in {keys.get(row.session_id)}"
        if row.text != sent.text:
            yield f"changed: the text of {sent.message_id}"
        if row.state:
            yield f"changed: {sent.message_id} is {row.state}"


def turn_problems(history: History) -> Iterator[str]:
    """Require that each turn is done, with one answer to its messages."""
    by_turn = _by_turn(history)
    for turn in history.turns:
        rows = by_turn.get(turn.id, [])
        answers = sum(row.role == "assistant" for row in rows)
        if turn.state != "done":
            yield f"unanswered: turn {turn.id} is {turn.state} after {turn.attempt} attempts"
        elif answers != 1:
            yield f"answered twice: turn {turn.id} left {answers} answers"
        if turn.state == "done" and not any(row.role == "user" for row in rows):
            yield f"made up: turn {turn.id} answers nothing"
        elif turn.state == "done":
            yield from _answer_problems(turn, rows)
    known = {turn.id for turn in history.turns}
    sessions = {session.id for session in history.sessions}
    for turn in history.turns:
        if turn.session_id not in sessions:
            yield f"made up: turn {turn.id} is of no session"
    yield from (f"made up: rows of turn {turn_id}" for turn_id in by_turn.keys() - known)
    stream = stream_sessions(history)
    for row in users(history.rows):
        if not row.turn_id and row.session_id not in stream:
            yield f"unanswered: {row.message_id} is in no turn"


def _by_turn(history: History) -> dict[str, list[Row]]:
    ordered = sorted(history.rows, key=lambda row: (row.session_id, row.seq))
    return grouped((row for row in ordered if row.turn_id), lambda row: row.turn_id)


def _answer_problems(turn: Turn, rows: Sequence[Row]) -> Iterator[str]:
    """Compare the answer of each turn with the messages of the turn."""
    if any(row.session_id != turn.session_id for row in rows):
        yield f"misrouted: turn {turn.id} of {turn.session_id} has rows elsewhere"
    user_texts = [row.text for row in rows if row.role == "user"]
    for row in rows:
        if row.role == "assistant" and row.heard != user_texts:
            yield f"changed: turn {turn.id} was asked {user_texts} and answers {row.text!r}"


def result_problems(history: History) -> Iterator[str]:
    """Find turns that a worker ended after it had lost them."""
    results = {it.id: it for it in history.results}
    for turn in history.turns:
        ended_by = results.get(turn.result_id)
        if turn.state != "done" or ended_by is None:
            continue
        if ended_by.turn_id != turn.id:
            yield f"misrouted: turn {turn.id} was ended by a result of {ended_by.turn_id}"
        if ended_by.attempt != turn.attempt:
            yield f"late: attempt {ended_by.attempt} ended turn {turn.id}, in its {turn.attempt}."
        elif ended_by.token != turn.token:
            yield f"late: attempt {ended_by.attempt} ended turn {turn.id} with another token"
    if history.late is not None:
        yield from _late_problems(history.turns, results, history.late)


def _late_problems(
    turns: Sequence[Turn], results: Mapping[str, Result], late: frozenset[str]
) -> Iterator[str]:
    """Require that each result either ended its turn or was kept as a late result."""
    ended_by = {turn.result_id for turn in turns}
    for result_id in results.keys() - ended_by - late:
        yield f"lost: result {result_id} ended no turn, and is not kept as late"
    yield from (f"late: {it} ended a turn and is kept as late" for it in sorted(late & ended_by))


def turn_order_problems(history: History) -> Iterator[str]:
    """Require u1 u2 a1, u3 a2: the rows of a turn are together, and its answer comes last."""
    stream = stream_sessions(history)
    for session_id, rows in grouped(history.rows, lambda row: row.session_id).items():
        if session_id in stream:
            continue
        ordered = sorted(rows, key=lambda row: row.seq)
        runs = [
            (turn, list(turn_rows)) for turn, turn_rows in groupby(ordered, lambda row: row.turn_id)
        ]
        for turn, count in Counter(turn for turn, _ in runs).items():
            if count > 1:
                yield f"inverted: the rows of turn {turn} are in {count} places of {session_id}"
        for turn, turn_rows in runs:
            if "user" in [row.role for row in turn_rows[_first_answer(turn_rows) :]]:
                yield f"inverted: turn {turn} of {session_id} was answered before it was asked"


def _first_answer(rows: Sequence[Row]) -> int:
    return next((n for n, row in enumerate(rows) if row.role == "assistant"), len(rows))


def stream_answer_problems(history: History) -> Iterator[str]:
    """Require one answer per routed message, after it and with its text."""
    stream = stream_sessions(history)
    user_rows = {row.id: row for row in users(history.rows)}
    answers = Counter((row.reply_to, row.part) for row in history.rows if row.reply_to)
    for (reply_to, part), count in answers.items():
        if count > 1:
            yield f"answered twice: part {part} of the answer to {reply_to}"
    for row in users(history.rows):
        if row.session_id in stream and not answers[row.id, 0]:
            yield f"unanswered: {row.message_id} has no answer in its transcript"
    for row in history.rows:
        question = user_rows.get(row.reply_to)
        if row.session_id not in stream or row.role != "assistant":
            continue
        if question is None or question.session_id != row.session_id:
            yield f"misrouted: an answer in {row.session_id} to {row.reply_to or 'nothing'}"
        elif question.seq > row.seq:
            yield f"inverted: {question.message_id} was answered before it was asked"
        elif row.heard != [question.text]:
            yield f"changed: {question.text!r} is answered by {row.text!r}"


def dead_problems(history: History, dead: Iterable[str]) -> Iterator[str]:
    """Compare the dead letters with the expected reasons."""
    expected, found = Counter(dead), Counter(letter.reason for letter in history.dead_letters)
    yield from (f"lost: no dead letter {reason}" for reason in expected - found)
    yield from (f"lost: a dead letter {reason} too many" for reason in found - expected)


def spell_problems(spells: Sequence[Spell]) -> Iterator[str]:
    """Find concurrent work on two turns of a session, or on two attempts of a turn."""
    for session_id, session_spells in grouped(spells, lambda it: it.session_id).items():
        in_order = sorted(session_spells, key=lambda it: it.begin)
        for earlier, later in zip(accumulate(in_order, _longer), in_order[1:], strict=False):
            together = min(earlier.end, later.end) - later.begin
            if together > _TOLD_LATE_SECONDS:
                yield (
                    f"two at once: turns {earlier.turn_id} ({earlier.attempt}) and "
                    f"{later.turn_id} ({later.attempt}) of {session_id} for {together:.1f} s"
                )


def _longer(one: Spell, other: Spell) -> Spell:
    return one if one.end >= other.end else other


def work_problems(history: History) -> Iterator[str]:
    """Find attempts that two workers had, and answers without an attempt."""
    begun = Counter((it.turn_id, it.attempt) for it in history.spells if not it.is_resumed)
    for (turn_id, attempt), count in begun.items():
        if count > 1:
            yield f"doubled: attempt {attempt} of turn {turn_id} was begun {count} times"
    for turn in history.turns if begun else ():
        if turn.state == "done" and not begun[turn.id, turn.attempt]:
            yield f"made up: nobody worked on attempt {turn.attempt} of turn {turn.id}"
    turns = {turn.id: turn for turn in history.turns}
    for it in history.spells:
        of = turns.get(it.turn_id)
        if of is None:
            yield f"made up: somebody worked on turn {it.turn_id}, which there is not"
        elif of.session_id != it.session_id:
            yield f"misrouted: turn {of.id} was worked on as one of {it.session_id}"
        elif it.attempt > of.attempt:
            yield f"counted: turn {of.id} had an attempt {it.attempt}, and counts {of.attempt}"


def wait_problems(waits: Sequence[Wait], longest_seconds: float) -> Iterator[str]:
    """Require that each message was answered in time."""
    yield from (
        f"stall: {it.text!r} was answered after {it.seconds:.1f} s"
        for it in waits
        if it.seconds > longest_seconds
    )
