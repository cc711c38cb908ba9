"""Judge one run: was every accepted message delivered exactly once and in order?

One list of rules serves the demo, chaos tests and acceptance tests. A rule applies if the run has
what it compares with: the feed that was played, or the messages that simulated users sent.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from chatlane_devkit.judge import dialogue_checks, feed_checks, run_checks
from chatlane_devkit.judge.album_checks import album_problems, albums_in
from chatlane_devkit.judge.command_checks import notice_problems
from chatlane_devkit.judge.delivery_checks import (
    left_over_problems,
    numbering_problems,
    receipt_problems,
)
from chatlane_devkit.judge.dialogue import Dialogue
from chatlane_devkit.judge.history import History, Session
from chatlane_devkit.judge.stream_checks import stream_problems
from chatlane_devkit.scenario.feed import Publication

# A notification is repeated after 3 s, then after 10 s, then after 30 s, if it was lost.
LONGEST_WAIT: Final = timedelta(seconds=50)


@dataclass(frozen=True)
class Run:
    """A recorded run and what is expected of it.

    Attributes:
        history: Recorded until all messages were answered.
        feed: All publications in order, if a feed was played.
        idle_after: By platform, the silence after which a session ends.
        dead: Reasons of the expected dead letters; a feed names its own.
        longest_wait: Longest permitted wait for an answer.
    """

    history: History
    feed: Sequence[Publication] = ()
    idle_after: Mapping[str, timedelta] = field(default_factory=dict)
    dead: Iterable[str] = ()
    longest_wait: timedelta = LONGEST_WAIT
    expected: Mapping[str, feed_checks.Conversation] = field(init=False)
    found: Mapping[str, list[Session]] = field(init=False)

    def __post_init__(self) -> None:
        """Match the sessions with the conversations of the feed."""
        expected = feed_checks.conversations(self.feed, self.history.log, self.idle_after)
        object.__setattr__(self, "expected", expected)
        found = feed_checks.sessions_by_talk(self.feed, self.history) if self.feed else {}
        object.__setattr__(self, "found", found)

    @property
    def names(self) -> dict[str, str]:
        """Names of sessions by id, for the texts of problems."""
        return {} if self.feed else {session.id: session.key for session in self.history.sessions}


@dataclass(frozen=True, slots=True)
class Check:
    """One guarantee, the number of items it was checked on, and the problems."""

    promise: str
    counted: int
    problems: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """The check found no problem."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class Verdict:
    """All checks of one run."""

    checks: tuple[Check, ...]

    @property
    def is_good(self) -> bool:
        """Every check has passed."""
        return all(check.is_kept for check in self.checks)

    @property
    def problems(self) -> list[str]:
        """The problems of all checks."""
        return [problem for check in self.checks for problem in check.problems]


@dataclass(frozen=True, slots=True)
class Rule:
    """A guarantee that can be checked.

    Attributes:
        promise: The guarantee in words.
        counted: Returns how many items the rule is checked on.
        problems: Yields one line per problem.
        applies: Returns whether the run has what the rule compares with.
    """

    promise: str
    counted: Callable[[Run], int]
    problems: Callable[[Run], Iterable[str]]
    applies: Callable[[Run], bool] = lambda _: True


def _has_feed(run: Run) -> bool:
    return bool(run.feed)


def _has_users(run: Run) -> bool:
    return not run.feed


def _in_dialogue(problems: Callable[[Dialogue], Iterable[str]]) -> Callable[[Run], Iterable[str]]:
    def find(run: Run) -> Iterable[str]:
        return () if run.history.dialogue is None else problems(run.history.dialogue)

    return find


def _counted_in_dialogue(items: Callable[[Dialogue], Sequence[object]]) -> Callable[[Run], int]:
    def count(run: Run) -> int:
        return 0 if run.history.dialogue is None else len(items(run.history.dialogue))

    return count


def _has_dialogue(run: Run) -> bool:
    return run.history.dialogue is not None


_DIALOGUE_RULES: Final = tuple(
    Rule(promise, _counted_in_dialogue(items), _in_dialogue(problems), _has_dialogue)
    for promise, items, problems in (
        (
            "every message in a dialogue is placed once, and heard or an answer",
            lambda its: its.history.sent,
            dialogue_checks.dialogue_problems,
        ),
        (
            "every piece reached its chat once, but for one repetition per crash",
            lambda its: its.calls,
            dialogue_checks.piece_problems,
        ),
        (
            "every message ends as delivered, with the ids of its pieces",
            lambda its: its.deliveries,
            dialogue_checks.delivery_state_problems,
        ),
        (
            "every draft became its answer, unless a crash explains it",
            dialogue_checks.drafts,
            dialogue_checks.draft_problems,
        ),
        (
            "every question got one answer, of its own, or its default",
            lambda its: its.questions,
            dialogue_checks.question_problems,
        ),
        (
            "every message outside a turn arrived once, in order",
            lambda its: its.sends,
            dialogue_checks.send_problems,
        ),
        (
            "every reply leads to the message it is about",
            lambda its: its.quotes,
            dialogue_checks.quote_problems,
        ),
    )
)

RULES: Final = (
    Rule(
        "every event is in the log once, in the order of its chat",
        lambda run: len(run.feed) or len(run.history.sent),
        lambda run: (
            feed_checks.feed_log_problems(run.feed, run.history.log)
            if run.feed
            else run_checks.sent_log_problems(run.history)
        ),
    ),
    Rule(
        "every accepted message is in its conversation once, in order",
        lambda run: (
            sum(len(conversation.messages) for conversation in run.expected.values())
            or len(run.history.sent)
        ),
        lambda run: (
            feed_checks.conversation_problems(run.expected, run.found, run.history)
            if run.feed
            else run_checks.transcript_problems(run.history)
        ),
    ),
    Rule(
        "the agents heard every message once, in order",
        lambda run: sum(1 for answer in run.history.received for _ in answer.heard_messages()),
        lambda run: feed_checks.hearing_problems(run.feed, run.found, run.history),
        _has_feed,
    ),
    Rule(
        "every session is one conversation with one agent",
        lambda run: len(run.history.sessions),
        lambda run: (
            feed_checks.session_problems(run.feed, run.expected, run.found, run.history)
            if run.feed
            else run_checks.session_problems(run.history)
        ),
    ),
    Rule(
        "transcripts are numbered without a gap",
        lambda run: len(run.history.rows),
        lambda run: numbering_problems(run.history.rows, run.names),
    ),
    Rule(
        "every answer reached its chat once, in order",
        lambda run: len(run.history.received),
        lambda run: (
            feed_checks.answer_problems(run.history) if run.feed else stream_problems(run.history)
        ),
    ),
    Rule(
        "commands and new beginnings were told once, in their chat",
        lambda run: sum(received.kind == "notice" for received in run.history.received),
        lambda run: notice_problems(run.feed, run.found, run.history),
        _has_feed,
    ),
    Rule(
        "every album was answered as one",
        lambda run: len(albums_in(run.feed)),
        lambda run: album_problems(run.feed, run.found, run.history),
        _has_feed,
    ),
    Rule(
        "every receipt is about a message of the run",
        lambda run: len(run.history.receipts),
        # The adapters that play a feed are never killed.
        lambda run: receipt_problems(run.history, are_adapters_killed=not run.feed),
        lambda run: bool(run.history.receipts),
    ),
    Rule(
        "the counters of sessions agree with their rows",
        lambda run: len(run.history.sessions),
        lambda run: run_checks.counter_problems(run.history),
        _has_users,
    ),
    Rule(
        "every turn is done and has one answer to its messages",
        lambda run: len(run.history.turns),
        lambda run: run_checks.turn_problems(run.history),
        _has_users,
    ),
    Rule(
        "a result ends its own turn or is kept as late",
        lambda run: len(run.history.results),
        lambda run: run_checks.result_problems(run.history),
        _has_users,
    ),
    Rule(
        "the rows of a turn are together and its answer comes last",
        lambda run: len(run.history.turns),
        lambda run: run_checks.turn_order_problems(run.history),
        _has_users,
    ),
    Rule(
        "a routed message has one answer",
        lambda run: len(run.history.routed),
        lambda run: run_checks.stream_answer_problems(run.history),
        _has_users,
    ),
    Rule(
        "no session has two turns in work, and no attempt two workers",
        lambda run: len(run.history.spells),
        lambda run: (
            *run_checks.spell_problems(run.history.spells),
            *run_checks.work_problems(run.history),
        ),
        _has_users,
    ),
    Rule(
        "every message is answered in time",
        lambda run: len(run.history.waits),
        lambda run: run_checks.wait_problems(run.history.waits, run.longest_wait.total_seconds()),
        _has_users,
    ),
    Rule(
        "no transaction met a deadlock",
        lambda _: 1,
        lambda run: [f"deadlocks: {run.history.deadlocks}"] if run.history.deadlocks else [],
        _has_users,
    ),
    Rule(
        "what is broken is a dead letter with its reason, and nothing else is",
        lambda run: len(run.history.dead_letters),
        lambda run: (
            feed_checks.dead_letter_problems(run.feed, run.history)
            if run.feed
            else run_checks.dead_problems(run.history, run.dead)
        ),
    ),
    Rule(
        "nothing is left to do", lambda _: 1, lambda run: left_over_problems(run.history.left_over)
    ),
    *_DIALOGUE_RULES,
)


def judge(run: Run) -> Verdict:
    """Check each rule that applies to a run."""
    return Verdict(
        tuple(
            Check(rule.promise, rule.counted(run), tuple(rule.problems(run)))
            for rule in RULES
            if rule.applies(run)
        )
    )


def unwatched(history: History) -> list[str]:
    """Return the parts of a history that are empty, so that their rules had nothing to check.

    For runs in which every part is observed.
    """
    watched: dict[str, Collection[object]] = {
        "was sent": history.sent,
        "the logs hold": history.log,
        "was published to stream agents": history.routed,
        "was published to chats": history.outbound,
        "chats received": history.received,
        "workers worked on": history.spells,
        "subscribers were given": history.handed,
        "workers answered": history.results,
        "sessions began": history.started,
        "people waited for": history.waits,
    }
    if (dialogue := history.dialogue) is not None:
        watched |= {
            "platforms took": dialogue.calls,
            "turns asked": dialogue.questions,
            "questions got": dialogue.outcomes,
            "people replied": dialogue.replies,
            "was sent outside turns": dialogue.sends,
            "drafts showed": dialogue_checks.drafts(dialogue),
            "was delivered to dialogues": dialogue.deliveries,
            "adapters reported": dialogue.reported.keys(),
        }
    return [f"unwatched: nobody tells what {what}" for what, items in watched.items() if not items]
