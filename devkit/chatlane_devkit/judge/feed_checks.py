"""Compare a run with the feed that was played: conversations, agents, answers and dead letters.

It uses the feed and external observations, with its own small model; it uses none of the router's
rules, so that a fault in them cannot hide itself.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto
from itertools import accumulate, chain, groupby
from typing import Final

from typing_extensions import override

from chatlane_devkit.judge.command_checks import beginnings, commands_in
from chatlane_devkit.judge.delivery_checks import (
    answer_text_problems,
    delivery_order_problems,
    log_problems,
)
from chatlane_devkit.judge.history import DeadLetter, Heard, History, LogEntry, Row, Session
from chatlane_devkit.scenario.feed import Address, Publication

_HEARD_ROLES: Final = frozenset({"user", "system"})
# Two forms of "no thread".
_NO_THREAD: Final = frozenset({"", "0"})
_SHOWN_CHARACTERS: Final = 40


@dataclass(frozen=True, slots=True)
class HeardMessage:
    """The identity of a message in a conversation."""

    message_id: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.message_id or 'no id'} {shortened(self.text)!r}"


class Cut(Enum):
    """The expectation that a message begins a new session: no, yes, or either."""

    NO = auto()
    YES = auto()
    EITHER = auto()
    """It was silent long enough, but a turn may still have run, which puts the end off."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The expected content of one conversation.

    Attributes:
        messages: In log order.
        cuts: For each message, whether it begins a new session after silence.
        strands: The messages by chat. The order is fixed only within a chat; there is more than one
            where a chat moved or a person has two ids.
    """

    agent: str
    messages: tuple[HeardMessage, ...]
    cuts: tuple[Cut, ...]
    strands: tuple[tuple[HeardMessage, ...], ...]


def conversations(
    feed: Sequence[Publication], log: Sequence[LogEntry], idle_after: Mapping[str, timedelta]
) -> dict[str, Conversation]:
    """Return the expected content of each conversation, by name.

    A message that never reached the log counts as the last one, so that it is reported missing.
    """
    entries = {entry.nats_id: entry for entry in log}
    by_talk: dict[str, list[Publication]] = defaultdict(list)
    for publication in feed:
        if publication.expect == "accepted":
            by_talk[publication.talk].append(publication)
    begins = beginnings(feed, entries)
    return {
        talk: _conversation(
            publications, entries, idle_after.get(publications[0].platform), begins.get(talk, [])
        )
        for talk, publications in by_talk.items()
    }


def _conversation(
    said: list[Publication],
    entries: Mapping[str, LogEntry],
    idle: timedelta | None,
    begins: Sequence[int],
) -> Conversation:
    last = max((entry.sequence for entry in entries.values()), default=0) + 1
    in_order = sorted(
        said,
        key=lambda publication: (
            entries[publication.nats_id].sequence if publication.nats_id in entries else last
        ),
    )
    strands: dict[str, list[HeardMessage]] = defaultdict(list)
    for publication in in_order:
        strands[publication.address.chat].append(_said(publication))
    return Conversation(
        said[0].agent,
        tuple(map(_said, in_order)),
        tuple(_cuts(in_order, entries, idle, begins)),
        tuple(map(tuple, strands.values())),
    )


def _cuts(
    said: list[Publication],
    entries: Mapping[str, LogEntry],
    idle: timedelta | None,
    begins: Sequence[int],
) -> Iterator[Cut]:
    """Return where sessions must be cut: on request, or after more silence than `idle`.

    The silence is counted from the last message of a person. The cut is certain only if everything
    before was answered before the person wrote.
    """
    last_activity: datetime | None = None
    settles = last_place = 0
    for publication in said:
        entry = entries.get(publication.nats_id)
        place = entry.sequence if entry else last_place
        spoke_at = entry.stored_at if entry and publication.is_from_person else None
        if last_place and any(last_place < position < place for position in begins):
            yield Cut.YES
        elif not (idle and spoke_at and last_activity) or spoke_at - last_activity <= idle:
            yield Cut.NO
        else:
            yield Cut.YES if publication.settles > settles else Cut.EITHER
        last_activity, settles, last_place = spoke_at or last_activity, publication.settles, place


def _said(publication: Publication) -> HeardMessage:
    return HeardMessage(publication.message_id, publication.text)


def _place(address: Address) -> Address:
    thread = "" if address.thread in _NO_THREAD else address.thread
    return Address(
        address.platform, address.account, address.scope, address.chat, thread, address.sender
    )


def _talks_by_place(feed: Sequence[Publication]) -> dict[Address, str]:
    return {
        _place(publication.address): publication.talk
        for publication in feed
        if publication.expect == "accepted"
    }


def _talks_by_session(feed: Sequence[Publication], history: History) -> dict[str, set[str]]:
    """Return for each session the conversations that its answers were sent to."""
    places = _talks_by_place(feed)
    talks: dict[str, set[str]] = defaultdict(set)
    for answer in history.received:
        talks[answer.session_id].add(places.get(_place(answer.address), "nobody's place"))
    return talks


def sessions_by_talk(feed: Sequence[Publication], history: History) -> dict[str, list[Session]]:
    """Return the sessions of each conversation, oldest first."""
    found: dict[str, list[Session]] = defaultdict(list)
    talks = _talks_by_session(feed, history)
    for session in sorted(history.sessions, key=lambda session: session.started_at):
        for talk in talks.get(session.id, {"nobody"}):
            found[talk].append(session)
    return found


def feed_log_problems(feed: Sequence[Publication], log: Sequence[LogEntry]) -> Iterator[str]:
    """Require each event of the feed once in the log, in the order of its chat."""
    known = {publication.nats_id for publication in feed}
    yield from log_problems(log, sorted(known))
    for nats_id in sorted({entry.nats_id for entry in log} - known):
        yield f"made up: {nats_id} is not of the feed"
    yield from _log_order_problems(feed, log)


def _log_order_problems(feed: Sequence[Publication], log: Sequence[LogEntry]) -> Iterator[str]:
    numbers: dict[str, int] = {}
    for publication in feed:
        numbers.setdefault(publication.nats_id, publication.number)
    last: dict[str, int] = {}
    for entry in sorted(log, key=lambda entry: entry.sequence):
        number = numbers.get(entry.nats_id, 0)
        if number < last.get(entry.chat, 0):
            yield f"line {number} was stored after line {last[entry.chat]} of the same chat"
        last[entry.chat] = number


def conversation_problems(
    expected: Mapping[str, Conversation], found: Mapping[str, list[Session]], history: History
) -> Iterator[str]:
    """Require each accepted message once in its conversation, in order."""
    rows = _heard_rows(history.rows)
    for talk, conversation in expected.items():
        sessions = [_said_in(rows[session.id]) for session in found.get(talk, [])]
        for problem in _differences(conversation, sessions):
            yield f"{talk}: {problem}"
    for talk in found.keys() - expected.keys():
        for session in found[talk]:
            yield f"session {session.id} belongs to no conversation of the feed"


def _differences(
    conversation: Conversation, sessions: Sequence[tuple[HeardMessage, ...]]
) -> Iterator[str]:
    """Describe how the sessions of one conversation differ from the expectation."""
    expected = conversation.messages
    actual = [message for session in sessions for message in session]
    missing, extra = Counter(expected) - Counter(actual), Counter(actual) - Counter(expected)
    for message in missing:
        yield f"lost: {message}"
    for message in extra:
        yield f"doubled: {message}" if message in expected else f"does not belong here: {message}"
    if missing or extra:
        return
    if not is_interleaving(actual, conversation.strands):
        yield f"out of order: {_first_difference(expected, actual)}"
    elif len(conversation.strands) > 1 and len(sessions) > 1:
        yield f"split into {len(sessions)} sessions"
    else:
        yield from _cut_problems(conversation, sessions)


def _cut_problems(
    conversation: Conversation, sessions: Sequence[tuple[HeardMessage, ...]]
) -> Iterator[str]:
    """Describe messages in the wrong session, given that all arrived in order."""
    begins = set(accumulate(map(len, sessions)))
    for number, (message, cut) in enumerate(
        zip(conversation.messages, conversation.cuts, strict=True)
    ):
        if cut is Cut.NO and number in begins:
            yield f"in the wrong session: {message} began a new one"
        if cut is Cut.YES and number not in begins:
            yield f"in the wrong session: {message} did not begin a new one"


def is_interleaving(
    merged: Sequence[HeardMessage], strands: Sequence[Sequence[HeardMessage]]
) -> bool:
    """Return whether `merged` is all of `strands`, each in its own order."""
    if len(merged) != sum(len(strand) for strand in strands):
        return False
    reached = {(0,) * len(strands)}
    for message in merged:
        reached = {
            (*positions[:which], positions[which] + 1, *positions[which + 1 :])
            for positions in reached
            for which, strand in enumerate(strands)
            if positions[which] < len(strand) and strand[positions[which]] == message
        }
    return bool(reached)


def _first_difference(expected: Sequence[HeardMessage], actual: Sequence[HeardMessage]) -> str:
    pairs = ((wanted, got) for wanted, got in zip(expected, actual, strict=True) if wanted != got)
    wanted, got = next(pairs)
    return f"{got} came where {wanted} was due"


def hearing_problems(
    feed: Sequence[Publication], found: Mapping[str, list[Session]], history: History
) -> Iterator[str]:
    """Compare the messages that agents report with the transcripts, by number and text."""
    answered: dict[str, list[Heard]] = defaultdict(list)
    for answer in history.received:
        answered[answer.session_id].extend(answer.heard_messages())
    rows = _heard_rows(history.rows)
    hears = {
        (publication.talk, _said(publication)): publication.hears
        for publication in feed
        if publication.expect == "accepted"
    }
    for talk, sessions in found.items():
        for session in sessions:
            problems = _heard_differences(rows[session.id], answered[session.id])
            for row, text in _misheard(rows[session.id], answered[session.id]):
                if text != hears.get((talk, HeardMessage(row.message_id, row.text))):
                    problems = chain(problems, [f"{row.text!r} was heard as {text!r}"])
            yield from (f"session {session.id}: {problem}" for problem in problems)


def _heard_differences(rows: Sequence[Row], heard: Sequence[Heard]) -> Iterator[str]:
    numbers, heard_numbers = [row.seq for row in rows], [reported.seq for reported in heard]
    for seq in sorted((Counter(numbers) - Counter(heard_numbers)).keys()):
        yield f"number {seq} was never heard"
    for seq in sorted((Counter(heard_numbers) - Counter(numbers)).keys()):
        yield f"number {seq} was heard too often"
    if heard_numbers != sorted(heard_numbers):
        yield f"heard out of order: {heard_numbers}"


def _misheard(rows: Sequence[Row], heard: Sequence[Heard]) -> Iterator[tuple[Row, str]]:
    """Yield rows that the agent reports with another text; file names follow the text."""
    texts = {reported.seq: reported.text for reported in heard}
    yield from ((row, texts[row.seq]) for row in rows if texts.get(row.seq, row.text) != row.text)


def session_problems(
    feed: Sequence[Publication],
    expected: Mapping[str, Conversation],
    found: Mapping[str, list[Session]],
    history: History,
) -> Iterator[str]:
    """Require that each session is one conversation with one agent."""
    owners: dict[str, list[str]] = defaultdict(list)
    for talk, sessions in found.items():
        for session in sessions:
            owners[session.id].append(talk)
    for session_id, talks in owners.items():
        if len(talks) > 1:
            yield f"session {session_id} is shared by {', '.join(sorted(talks))}"
    for talk, conversation in expected.items():
        for session in found.get(talk, []):
            if session.agent != conversation.agent:
                yield f"{talk} was answered by {session.agent}, not {conversation.agent}"
    yield from _ending_problems(feed, found, history)


def _ending_problems(
    feed: Sequence[Publication], found: Mapping[str, list[Session]], history: History
) -> Iterator[str]:
    """Compare the ends of sessions with the number of successors in the same conversation.

    The last session of a conversation may have ended by silence, which needs no message.
    """
    due = sum(len(sessions) - 1 for sessions in found.values())
    silent = {
        sessions[-1].id
        for sessions in found.values()
        if sessions and sessions[-1].end_reason == "idle"
    }
    reasons = (session.end_reason for session in history.sessions if session.id not in silent)
    ended = Counter(filter(None, reasons))
    requested = sum(command.begins for command in commands_in(feed))
    if ended != +Counter({"idle": due - requested, "requested": requested}):
        yield f"{due} sessions were followed by another; ended were: {dict(ended)}"


def answer_problems(history: History) -> Iterator[str]:
    """Require each answer once in its chat, in order, as the transcript has it."""
    yield from delivery_order_problems(history.received, {})
    parts = Counter(
        (received.session_id, received.cause, received.part) for received in history.received
    )
    for (session_id, cause, part), count in parts.items():
        if count > 1:
            yield f"session {session_id}: part {part} of {cause} came {count} times"
    yield from (
        f"session {received.session_id}: a {received.kind} came: {shortened(received.text)!r}"
        for received in history.received
        if received.kind not in {"answer", "notice"}
    )
    yield from answer_text_problems(history.rows, history.received)


def dead_letter_problems(feed: Sequence[Publication], history: History) -> Iterator[str]:
    """Compare the dead letters with the broken events of the feed."""
    expected = Counter(
        (hashlib.sha256(publication.body).hexdigest(), publication.reason)
        for publication in feed
        if publication.expect == "dead" and publication.body is not None
    )
    for source, letters in (("row", history.dead_letters), ("notice", history.dead_notices)):
        actual = Counter((letter.digest, letter.reason) for letter in letters)
        for digest, reason in expected - actual:
            yield f"no {source} for {digest[:12]}, which is {reason}"
        for digest, reason in actual - expected:
            yield f"a {source} too many: {digest[:12]}, {reason}{_detail(letters, digest)}"


def _detail(letters: Sequence[DeadLetter], digest: str) -> str:
    detail = next((letter.detail for letter in letters if letter.digest == digest), "")
    return f" ({detail})" if detail else ""


def _heard_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows that agents had to receive, by session, in order."""
    by_session: dict[str, list[Row]] = defaultdict(list)
    chosen = (row for row in rows if row.role in _HEARD_ROLES)
    for session_id, session_rows in groupby(
        sorted(chosen, key=lambda row: (row.session_id, row.seq)), key=lambda row: row.session_id
    ):
        by_session[session_id] = list(session_rows)
    return by_session


def _said_in(rows: Sequence[Row]) -> tuple[HeardMessage, ...]:
    return tuple(HeardMessage(row.message_id, row.text) for row in rows)


def shortened(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[: _SHOWN_CHARACTERS - 1]}…"
