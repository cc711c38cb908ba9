"""Judges a run from outside: what went in, the database, the streams, what chats received.

It knows what the guarantees promise and none of the router's rules. Every finding is one line
that begins with the kind of damage, so that a test can show that each kind is noticed.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

# A worker whose lease is over stops as soon as its event loop tells it so.
_TOLD_LATE_SECONDS = 0.25
# A notification is repeated after 3 s, another 10 s, and another 30 s when those got lost, too.
_LONGEST_WAIT_SECONDS = 50.0
# What the echo worker and examples/subscriber.py say, one line for each message they heard.
_HEARD = re.compile(r"^#\d+ heard: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sent:
    """A publish that was acknowledged; the platform may send a message more than once.

    Attributes:
        key: Of the session it belongs to.
        number: Place of the message in its chat; the same for a repeat.
        message_id: The platform's id, different in all chats; the same for a repeat.
        envelope_id: New for a repeat.
    """

    key: str
    number: int
    message_id: str
    envelope_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Session:
    """A row of `sessions`."""

    id: str
    key: str
    agent: str


@dataclass(frozen=True, slots=True)
class Row:
    """A row of `messages`."""

    session_id: str
    seq: int
    role: str
    text: str
    message_id: str = ""
    id: str = ""
    turn_id: str = ""
    reply_to: str = ""
    part: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of `turns`."""

    id: str
    session_id: str
    state: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Published:
    """A message as a stream keeps it; `number` counts within the session."""

    session_id: str
    number: int
    id: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message as an adapter handed it to its chat."""

    key: str
    session_id: str
    out_seq: int
    id: str
    reply_to: str
    text: str
    kind: str = "answer"

    @property
    def heard(self) -> list[str]:
        """What the agent says it heard."""
        return _HEARD.findall(self.text)


@dataclass(frozen=True, slots=True)
class Spell:
    """A worker's work on one attempt of a turn; times in seconds of one clock."""

    session_id: str
    turn_id: str
    attempt: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Wait:
    """How long what somebody wrote waited for its answer."""

    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class History:
    """One run. Sequences are in the order in which things were stored or arrived.

    Attributes:
        inbound: Envelope ids as INBOUND keeps them.
        stream_agents: Names of the agents with `stream` delivery.
        dead: Reasons of dead letters.
        deadlocks: Transactions that the database ended because two waited for each other.
        spells: What the workers worked on, where that was watched.
        waits: Of what was answered, where that was watched.
        left_over: Rows that must be gone when everything is answered, by name.
    """

    sent: Sequence[Sent] = ()
    inbound: Sequence[str] = ()
    sessions: Sequence[Session] = ()
    rows: Sequence[Row] = ()
    turns: Sequence[Turn] = ()
    routed: Sequence[Published] = ()
    outbound: Sequence[Published] = ()
    received: Sequence[Received] = ()
    stream_agents: frozenset[str] = frozenset()
    dead: Sequence[str] = ()
    deadlocks: int = 0
    spells: Sequence[Spell] = ()
    waits: Sequence[Wait] = ()
    left_over: Mapping[str, int] = field(default_factory=dict)


def problems(history: History, *, dead: Iterable[str] = ()) -> list[str]:
    """Return everything that is wrong with a run.

    Args:
        history: After all that was sent is answered.
        dead: Reasons of the dead letters that had to come of it.
    """
    return [
        *_log_problems(history),
        *_session_problems(history),
        *_transcript_problems(history),
        *_turn_problems(history),
        *_stream_answer_problems(history),
        *_stream_problems("routed", history.routed, is_contiguous=False),
        *_stream_problems("outbound", history.outbound, is_contiguous=True),
        *_routed_problems(history),
        *_received_problems(history),
        *_hearing_problems(history),
        *_dead_problems(history, dead),
        *([f"deadlocks: {history.deadlocks}"] if history.deadlocks else []),
        *_spell_problems(history.spells),
        *_wait_problems(history.waits),
        *(f"left over: {count} {name}" for name, count in history.left_over.items() if count),
    ]


def _log_problems(history: History) -> Iterator[str]:
    stored = Counter(history.inbound)
    place = {envelope_id: n for n, envelope_id in enumerate(history.inbound)}
    for sent in history.sent:
        if not stored[sent.envelope_id]:
            yield f"lost: {sent.message_id} was acknowledged and is not in the log"
    yield from (f"doubled: {it} is in the log {n} times" for it, n in stored.items() if n > 1)
    for key, of_chat in _grouped(_firsts(history.sent), lambda sent: sent.key).items():
        places = [place.get(sent.envelope_id, -1) for sent in of_chat]
        if places != sorted(places):
            yield f"inverted: the log has the messages of {key} in another order"


def _session_problems(history: History) -> Iterator[str]:
    keys = {sent.key for sent in history.sent}
    found = Counter(session.key for session in history.sessions)
    yield from (f"lost: no session for {key}" for key in sorted(keys - found.keys()))
    yield from (f"split: {count} sessions for {key}" for key, count in found.items() if count > 1)
    yield from (f"misrouted: a session for {key}" for key in sorted(found.keys() - keys))


def _transcript_problems(history: History) -> Iterator[str]:
    keys = {session.id: session.key for session in history.sessions}
    by_session = _grouped(history.rows, lambda row: row.session_id)
    for session_id, rows in by_session.items():
        numbers = sorted(row.seq for row in rows)
        if numbers != list(range(1, len(rows) + 1)):
            yield f"gap: {keys.get(session_id, session_id)} is numbered {numbers}"
    users = _grouped(_users(history.rows), lambda row: row.message_id)
    messages = {sent.message_id: sent for sent in history.sent}
    for message_id, sent in messages.items():
        yield from _placing_problems(sent, users.get(message_id, []), keys)
    yield from (f"made up: {it}" for it in users.keys() - messages.keys())
    for session_id, rows in by_session.items():
        order = [messages[it.message_id].number for it in _users(rows) if it.message_id in messages]
        if order != sorted(order):
            yield f"inverted: the transcript of {keys.get(session_id, session_id)} has {order}"


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


def _turn_problems(history: History) -> Iterator[str]:
    by_turn = _grouped((row for row in history.rows if row.turn_id), lambda row: row.turn_id)
    for turn in history.turns:
        rows = by_turn.get(turn.id, [])
        answers = sum(row.role == "assistant" for row in rows)
        if turn.state != "done":
            yield f"unanswered: turn {turn.id} is {turn.state} after {turn.attempt} attempts"
        elif answers != 1:
            yield f"answered twice: turn {turn.id} left {answers} answers"
        if turn.state == "done" and not any(row.role == "user" for row in rows):
            yield f"made up: turn {turn.id} answers nothing"
    known = {turn.id for turn in history.turns}
    yield from (f"made up: rows of turn {turn_id}" for turn_id in by_turn.keys() - known)
    stream = {it.id for it in history.sessions if it.agent in history.stream_agents}
    for row in _users(history.rows):
        if not row.turn_id and row.session_id not in stream:
            yield f"unanswered: {row.message_id} is in no turn"


def _stream_answer_problems(history: History) -> Iterator[str]:
    stream = {it.id for it in history.sessions if it.agent in history.stream_agents}
    answers = Counter((row.reply_to, row.part) for row in history.rows if row.reply_to)
    for (reply_to, part), count in answers.items():
        if count > 1:
            yield f"answered twice: part {part} of the answer to {reply_to}"
    for row in _users(history.rows):
        if row.session_id in stream and not answers[row.id, 0]:
            yield f"unanswered: {row.message_id} has no answer in its transcript"


def _stream_problems(
    name: str, messages: Sequence[Published], *, is_contiguous: bool
) -> Iterator[str]:
    for message_id, count in Counter(it.id for it in messages).items():
        if count > 1:
            yield f"doubled: {message_id} is {count} times on {name}"
    for session_id, its in _grouped(messages, lambda it: it.session_id).items():
        numbers = [it.number for it in its]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            yield f"inverted: {name} of {session_id} has {numbers}"
        elif is_contiguous and numbers != list(range(1, len(numbers) + 1)):
            yield f"gap: {name} of {session_id} has {numbers}"


def _routed_problems(history: History) -> Iterator[str]:
    stream = {it.id for it in history.sessions if it.agent in history.stream_agents}
    due = {row.id for row in _users(history.rows) if row.session_id in stream}
    found = {it.id for it in history.routed}
    yield from (f"lost: {it} was never published to its agent" for it in sorted(due - found))
    yield from (f"made up: {it} on routed" for it in sorted(found - due))


def _received_problems(history: History) -> Iterator[str]:
    keys = {session.id: session.key for session in history.sessions}
    for session_id, its in _grouped(history.received, lambda it: it.session_id).items():
        numbers = [it.out_seq for it in its]
        missing = set(range(1, max(numbers) + 1)) - set(numbers)
        if len(set(numbers)) < len(numbers):
            yield f"doubled: {keys.get(session_id)} received {numbers}"
        elif numbers != sorted(numbers):
            yield f"inverted: {keys.get(session_id)} received {numbers}"
        elif missing:
            yield f"gap: {keys.get(session_id)} never received {sorted(missing)}"
        for it in its:
            if it.key != keys.get(session_id):
                yield f"misrouted: {it.id} of {keys.get(session_id)} was received by {it.key}"
    arrived = {it.id for it in history.received}
    yield from (
        f"lost: {it.id} never reached its chat" for it in history.outbound if it.id not in arrived
    )
    yield from (
        f"unanswered: {it.key} got a {it.kind}" for it in history.received if it.kind != "answer"
    )


def _hearing_problems(history: History) -> Iterator[str]:
    """Compare what each chat was told that was heard with what it said."""
    heard: dict[str, list[str]] = defaultdict(list)
    for it in history.received:
        heard[it.key] += it.heard
    said = _grouped(_firsts(history.sent), lambda sent: sent.key)
    for key in heard.keys() | said.keys():
        wanted = [sent.text for sent in said.get(key, [])]
        missing, extra = (
            Counter(wanted) - Counter(heard[key]),
            Counter(heard[key]) - Counter(wanted),
        )
        yield from (f"unanswered: nobody heard {text!r}" for text in missing)
        for text in extra:
            kind = "answered twice" if text in wanted else "misrouted"
            yield f"{kind}: {key} was told of {text!r}"
        if not missing and not extra and heard[key] != wanted:
            yield f"inverted: {key} was heard as {heard[key]}"


def _dead_problems(history: History, dead: Iterable[str]) -> Iterator[str]:
    expected, found = Counter(dead), Counter(history.dead)
    yield from (f"lost: no dead letter {reason}" for reason in expected - found)
    yield from (f"lost: a dead letter {reason} too many" for reason in found - expected)


def _spell_problems(spells: Sequence[Spell]) -> Iterator[str]:
    """Find two turns of a session, or two attempts of a turn, in work at the same time."""
    for session_id, its in _grouped(spells, lambda it: it.session_id).items():
        for earlier, later in pairwise(sorted(its, key=lambda it: it.begin)):
            together = min(earlier.end, later.end) - later.begin
            if together > _TOLD_LATE_SECONDS:
                yield (
                    f"two at once: turns {earlier.turn_id} ({earlier.attempt}) and "
                    f"{later.turn_id} ({later.attempt}) of {session_id} for {together:.1f} s"
                )


def _wait_problems(waits: Sequence[Wait]) -> Iterator[str]:
    yield from (
        f"stall: {it.text!r} was answered after {it.seconds:.1f} s"
        for it in waits
        if it.seconds > _LONGEST_WAIT_SECONDS
    )


def _firsts(sent: Iterable[Sent]) -> list[Sent]:
    """Return what was sent without the platform's repeats, in the order of each chat."""
    first: dict[str, Sent] = {}
    for it in sent:
        first.setdefault(it.message_id, it)
    return sorted(first.values(), key=lambda it: (it.key, it.number))


def _users(rows: Iterable[Row]) -> list[Row]:
    return sorted((row for row in rows if row.role == "user"), key=lambda row: row.seq)


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
