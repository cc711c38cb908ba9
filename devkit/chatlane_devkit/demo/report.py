"""Build the report that the demo shows and writes at its end."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chatlane_devkit.demo.bot_platform import BotOutcome
from chatlane_devkit.judge import dialogue_checks as checks
from chatlane_devkit.judge.dialogue import Dialogue
from chatlane_devkit.judge.feed_checks import HeardMessage
from chatlane_devkit.judge.history import NUMBERED, History, Session
from chatlane_devkit.judge.verdict import Verdict
from chatlane_devkit.scenario.feed import Publication

_CHAT_ROWS = range(6, 15)


def session_rows(history: History) -> list[tuple[object, ...]]:
    """Return sessions, messages and answers by platform and agent."""
    messages = Counter(row.session_id for row in history.rows if row.role == "user")
    answers = Counter(answer.session_id for answer in history.received)
    groups: dict[tuple[str, str], list[Session]] = defaultdict(list)
    for session in history.sessions:
        groups[_platform(session), session.agent].append(session)
    return [
        (
            *group,
            len(sessions),
            sum(bool(session.end_reason) for session in sessions),
            sum(messages[session.id] for session in sessions),
            sum(answers[session.id] for session in sessions),
        )
        for group, sessions in sorted(groups.items())
    ]


def _platform(session: Session) -> str:
    """Return the platform that a session key names in its third place."""
    return session.key.split(":")[2]


def event_rows(feed: Sequence[Publication], history: History) -> list[tuple[object, ...]]:
    """Return the events of the feed by their outcome, and their sum."""
    counts = Counter(publication.expect for publication in feed)
    found = len(history.dead_letters)
    return [
        ("messages", counts["accepted"], "answered by an agent"),
        ("commands", counts["obeyed"], "executed and answered by the router"),
        ("edits, reactions and the like", counts["kept"], "stored; no answer"),
        ("repeats", counts["duplicate"], "dropped"),
        ("broken events", counts["dead"], f"{found} dead letters"),
        ("all", len(feed), "published"),
    ]


def loss_rows(verdict: Verdict, history: History, bot: BotOutcome) -> list[tuple[object, ...]]:
    """Return the faults that people noticed, for chatlane and for the naive bot."""
    answer_counts = Counter(
        (answer.session_id, message.seq)
        for answer in history.received
        for message in answer.heard_messages()
    )
    rows = {(row.session_id, row.seq) for row in history.rows if row.role == "user"}
    split = sum(
        len(check.problems) for check in verdict.checks if "one conversation" in check.promise
    )
    return [
        ("messages that people wrote", len(rows), bot.messages),
        ("never answered", len(rows - answer_counts.keys()), bot.lost),
        ("answered twice or more", sum(count > 1 for count in answer_counts.values()), bot.doubled),
        ("conversations with forgotten messages", split, bot.forgotten),
    ]


def dialogue_rows(dialogue: Dialogue) -> list[tuple[str, str, int, int]]:
    """Return the rows on dialogues: name, promise, number seen and number wrong."""
    pieces = [call for calls in dialogue.pieces().values() for call in calls if call.pieces > 1]
    of_pieces = (*checks.piece_problems(dialogue), *checks.delivery_state_problems(dialogue))
    return [
        (
            "drafts of live turns",
            "become their answer",
            len(checks.drafts(dialogue)),
            len(list(checks.draft_problems(dialogue))),
        ),
        ("pieces of long answers", "all, in order, with receipts", len(pieces), len(of_pieces)),
        (
            "questions to people",
            "one answer, or the default",
            len(dialogue.questions),
            len(list(checks.question_problems(dialogue))),
        ),
        (
            "messages outside turns",
            "once, in order",
            len({send.message_id for send in dialogue.sends}),
            len(list(checks.send_problems(dialogue))),
        ),
    ]


def copy_rows(feed: Sequence[Publication], history: History) -> list[tuple[object, ...]]:
    """Return the repeated publishes, and how often each was stored."""
    stored = Counter(entry.nats_id for entry in history.log)
    copies = [publication for publication in feed if publication.expect == "duplicate"]
    originals = {publication.nats_id for publication in feed if publication.expect == "accepted"}
    same = [copy for copy in copies if copy.nats_id in originals]
    other = [copy for copy in copies if copy.nats_id not in originals]
    return [
        ("the same envelope again", len(same), 0, "NATS, by its message id"),
        (
            "the same message in a new envelope",
            len(other),
            sum(stored[copy.nats_id] for copy in other),
            "the router, by its digest",
        ),
    ]


def dead_letter_rows(history: History) -> list[tuple[object, ...]]:
    """Return dead letters by reason, with their problem."""
    groups: dict[str, list[str]] = defaultdict(list)
    for letter in history.dead_letters:
        groups[letter.reason].append(letter.detail)
    return [
        (reason, len(details), "; ".join(sorted({detail for detail in details if detail})))
        for reason, details in sorted(groups.items())
    ]


def one_conversation(
    feed: Sequence[Publication], history: History
) -> tuple[str, list[tuple[str, str]]]:
    """Return the key and the lines of a session in which several messages shared an answer.

    A line is its author (empty for an answer) and its text. Messages are numbered as they are shown:
    a transcript also numbers the answers.
    """
    session = _telling_session(history)
    if session is None:
        return "nobody was answered", []
    messages = {
        HeardMessage(publication.message_id, publication.text): (
            _author(publication),
            publication.hears,
        )
        for publication in feed
        if publication.expect == "accepted"
    }
    excerpt: list[tuple[str, str]] = []
    numbers: dict[int, int] = {}
    for row in history.rows:
        if row.session_id != session.id:
            continue
        author, text = messages.get(HeardMessage(row.message_id, row.text), ("", row.text))
        if author:
            numbers[row.seq] = len(numbers) + 1
            excerpt.append((author, f"#{numbers[row.seq]} {text}"))
        else:
            excerpt.append(("", _renumbered(text, numbers)))
    return session.key, excerpt


def _renumbered(answer: str, numbers: Mapping[int, int]) -> str:
    """Return an answer with the numbers under which its messages are shown."""
    return NUMBERED.sub(lambda found: f"#{numbers.get(int(found[1]), found[1])} heard: ", answer)


def _author(publication: Publication) -> str:
    sender = publication.event.get("sender") or {}
    return str(sender.get("name") or publication.event.get("kind", "somebody"))


def _telling_session(history: History) -> Session | None:
    """Return a session of suitable length whose agent answered several messages at once.

    Prefers the language that most readers can read.
    """
    lengths = Counter(row.session_id for row in history.rows)
    foreign = Counter(row.session_id for row in history.rows if not row.text.isascii())
    collected = {
        received.session_id
        for received in history.received
        if sum(1 for _ in received.heard_messages()) > 1
    }
    telling = [
        session
        for session in history.sessions
        if session.id in collected and lengths[session.id] in _CHAT_ROWS
    ]
    return min(
        telling or history.sessions,
        key=lambda session: (foreign[session.id] / max(lengths[session.id], 1), session.started_at),
        default=None,
    )


def as_json(
    verdict: Verdict, feed: Sequence[Publication], history: History, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """Return the report."""
    return {
        "is_good": verdict.is_good,
        "checks": [
            {
                "promise": check.promise,
                "is_kept": check.is_kept,
                "counted": check.counted,
                "problems": list(check.problems),
            }
            for check in verdict.checks
        ],
        "feed": dict(Counter(publication.expect for publication in feed)),
        "dialogues": {
            name: {"seen": seen, "wrong": wrong}
            for name, _, seen, wrong in dialogue_rows(history.dialogue or Dialogue())
        },
        "sessions": len(history.sessions),
        "transcript_rows": len(history.rows),
        "answers": len(history.received),
        "dead_letters": dict(Counter(letter.reason for letter in history.dead_letters)),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
    }


def write(path: Path, report: Mapping[str, Any]) -> None:
    """Write the report; create missing directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", "utf-8")


def lines_of(verdict: Verdict) -> Iterator[str]:
    """Yield every problem of the run, one per line."""
    for check in verdict.checks:
        yield from (f"{check.promise}: {problem}" for problem in check.problems)
