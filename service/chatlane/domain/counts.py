"""Name the counts of a transaction, the labels of each count, and the inconsistencies.

The metrics get a count after the commit, too late to reject it. So the type checker has to find a
misspelt name or label, or one label too many.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.log import LogName
from chatlane_schemas.content.questions import QuestionEnd
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.events import ResetReason
from chatlane_schemas.inbound import Kind
from chatlane_schemas.results import HandBack, Outcome
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.turns import CancelReason


class CountName(StrEnum):
    """Names of counts; the metrics have one counter for each."""

    ROUTED = "routed"
    DUPLICATES = "duplicates"
    KEPT = "kept"
    ERASED = "erased"
    MESSAGE_CHANGES = "message_changes"
    COMMANDS = "commands"
    DEAD_LETTERS = "dead_letters"
    DEAD_LETTERS_DROPPED = "dead_letters_dropped"
    SESSIONS_STARTED = "sessions_started"
    TURNS_DISPATCHED = "turns_dispatched"
    TURNS_EXPIRED = "turns_expired"
    TURNS_RETRIED = "turns_retried"
    TURNS_HANDED_BACK = "turns_handed_back"
    TURNS_PARKED = "turns_parked"
    TURNS_WOKEN = "turns_woken"
    TURNS_FINISHED = "turns_finished"
    TURNS_CANCELLED = "turns_cancelled"
    STREAM_ANSWERS = "stream_answers"
    LATE_RESULTS = "late_results"
    RECEIPTS = "receipts"


ChangeOutcome: TypeAlias = Literal["applied", "same", "older", "gone", "early", "new"]
KeptKind: TypeAlias = (
    Kind
    | Literal[
        "bot",
        "other_bot",
        "silenced_bot",
        "staff",
        "empty",
        "observed",
        "answer",
        "late_answer",
    ]
)

Count: TypeAlias = (
    tuple[
        Literal[
            CountName.ROUTED,
            CountName.TURNS_DISPATCHED,
            CountName.TURNS_EXPIRED,
            CountName.TURNS_RETRIED,
            CountName.TURNS_PARKED,
            CountName.STREAM_ANSWERS,
            CountName.LATE_RESULTS,
        ],
        str,
    ]
    | tuple[Literal[CountName.DUPLICATES], LogName]
    | tuple[Literal[CountName.KEPT], KeptKind]
    | tuple[Literal[CountName.ERASED], StreamName]
    | tuple[Literal[CountName.MESSAGE_CHANGES], Kind, ChangeOutcome]
    | tuple[Literal[CountName.COMMANDS], CommandName, Literal["done", "refused"]]
    | tuple[Literal[CountName.DEAD_LETTERS], Stage, DeadReason]
    | tuple[Literal[CountName.DEAD_LETTERS_DROPPED], str, str]
    | tuple[Literal[CountName.SESSIONS_STARTED], str, ResetReason | Literal["new", "compression"]]
    | tuple[Literal[CountName.TURNS_FINISHED], str, Outcome | Literal[""]]
    | tuple[Literal[CountName.TURNS_CANCELLED], str, CancelReason]
    | tuple[Literal[CountName.RECEIPTS], str, str, str]
    | tuple[Literal[CountName.TURNS_HANDED_BACK], str, HandBack]
    | tuple[Literal[CountName.TURNS_WOKEN], str, QuestionEnd]
)
"""A name and its labels, such as `(CountName.TURNS_EXPIRED, agent)`."""


class Inconsistency(StrEnum):
    """Results of a comparison; each value is a metric label and a word in `/readyz`."""

    OUTBOX_UNPUBLISHED = "outbox_unpublished"
    """Rows that should have been published long ago."""
    TURN_UNANNOUNCED = "turn_unannounced"
    """A turn is ready, but no worker has a notification of it."""
    TURN_OVERDUE = "turn_overdue"
    """A turn was due long ago and has not been handled."""
    MESSAGES_STRANDED = "messages_stranded"
    """Messages wait in a session that has no turn to answer them."""
    CURSOR_AHEAD = "cursor_ahead"
    """A cursor is past the end of its log, or counts in another one."""
    LOG_UNREAD = "log_unread"
    """A log holds old messages that no router has read."""
    ROUTED_LOST = "routed_lost"
    """A stream has lost messages before their agent had handled them."""
    STREAM_AHEAD = "stream_ahead"
    """A stream holds messages that the database never decided on."""
    DURABLE_AHEAD = "durable_ahead"
    """A durable is past the end of its stream, so that it passes over new messages."""
    UNPARTITIONED = "unpartitioned"
    """A log holds messages outside all partitions, which no router reads."""
    PARTITION_COUNT = "partition_count"
    """The stream of a log and the database have different numbers of partitions."""
    LANE_ASTRAY = "lane_astray"
    """A lane points to a session that does not exist."""
    LANE_OF_ANOTHER = "lane_of_another"
    """A lane pointed to another person's session, and was repaired when its person wrote."""


class StreamLoss(StrEnum):
    """The evidence that a stream lost messages; each value is a metric label."""

    REPLACED = "replaced"
    """Another stream has its name."""
    TAIL_LOST = "tail_lost"
    """Its end is before its former one."""
    TIME_AT_MARK = "time_at_mark"
    """The message at its former end is another one now."""
    HOLES = "holes"
    """Messages in its middle are gone."""
    CUT_OFF = "cut_off"
    """Its oldest messages are gone before their time."""
