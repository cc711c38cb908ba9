"""The history of one run, as an observer recorded it and the judge reads it."""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from chatlane_devkit.scenario.feed import Address

if TYPE_CHECKING:
    from chatlane_devkit.judge.dialogue import Dialogue

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

UNKNOWN_TIME: Final = datetime.min.replace(tzinfo=UTC)
UNKNOWN_ADDRESS: Final = Address("", "", "", "", "", "")

_MOST_SHOWN: Final = 12

# Answers of the echo worker and examples/subscriber.py, one line per message.
HEARD: Final = re.compile(r"^#\d+ heard: (.*)$", re.MULTILINE)
NUMBERED: Final = re.compile(r"^#(\d+) heard: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A message as INBOUND stores it. A history lists entries in the order of the log.

    Attributes:
        nats_id: The `Nats-Msg-Id` of the publish.
        sequence: The sequence number; 0 if the observer did not read it.
        chat: The subject without its partition: platform, account and chat token.
        digest: SHA-256 of the body, hexadecimal.
    """

    nats_id: str
    sequence: int = 0
    stored_at: datetime = UNKNOWN_TIME
    chat: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class ReceiptEntry:
    """A receipt as INBOUND stores it: what an adapter reports about an outbound message."""

    nats_id: str
    message_id: str
    state: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A publish that was acknowledged; the platform may send a message more than once.

    Attributes:
        key: Key of the session it belongs to.
        number: Place of the message in its chat; the same for a repeat.
        message_id: The platform's id, different in all chats; the same for a repeat.
        envelope_id: New for a repeat.
        agent: The agent that must answer, if known.
    """

    key: str
    number: int
    message_id: str
    envelope_id: str
    text: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A row of `sessions`.

    Attributes:
        next_seq: Number of the next row of its transcript; 0 if the observer did not read it.
        next_out_seq: Number of the next message to its chat; 0 if the observer did not read it.
    """

    id: str
    key: str
    agent: str
    end_reason: str = ""
    next_seq: int = 0
    next_out_seq: int = 0
    started_at: datetime = UNKNOWN_TIME


@dataclass(frozen=True, slots=True)
class Row:
    """A row of `messages`; `state` is empty if the row is unchanged."""

    session_id: str
    seq: int
    role: str
    text: str
    message_id: str = ""
    id: str = ""
    turn_id: str = ""
    reply_to: str = ""
    part: int = 0
    state: str = ""

    @property
    def heard(self) -> list[str]:
        """The texts that the agent reports."""
        return HEARD.findall(self.text)


@dataclass(frozen=True, slots=True)
class Turn:
    """A row of `turns`; `result_id` names the result that ended it."""

    id: str
    session_id: str
    state: str
    attempt: int = 1
    token: str = field(default="", repr=False)
    result_id: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a turn as RESULTS keeps it."""

    id: str
    turn_id: str
    attempt: int
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Published:
    """A message as a stream keeps it; `number` counts within the session."""

    session_id: str
    number: int
    id: str
    subject: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """One message that an agent reports, with its number in the transcript."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Received:
    """A message to a chat, as the adapter received it.

    Attributes:
        key: Key of the session that the chat belongs to.
        address: The place that the message names.
        cause: The turn or the routed message that it answers.
    """

    key: str
    session_id: str
    out_seq: int
    id: str
    reply_to: str
    text: str
    kind: str = "answer"
    agent: str = ""
    address: Address = UNKNOWN_ADDRESS
    cause: str = ""
    part: int = 0

    @property
    def heard(self) -> list[str]:
        """The texts that the agent reports, one line each."""
        return HEARD.findall(self.text)

    def heard_messages(self) -> Iterator[Heard]:
        """Yield the messages that the echo agent reports, with their numbers."""
        _, *pieces = NUMBERED.split(self.text)
        for seq, text in zip(pieces[::2], pieces[1::2], strict=True):
            yield Heard(int(seq), text.removesuffix("\n"))


@dataclass(frozen=True, slots=True)
class Spell:
    """A worker's work on one attempt of a turn; times in seconds of one clock.

    Attributes:
        is_resumed: A frozen worker continues the work it had begun.
    """

    session_id: str
    turn_id: str
    attempt: int
    begin: float
    end: float
    is_resumed: bool = False


@dataclass(frozen=True, slots=True)
class Handed:
    """A routed message in the hands of a stream subscriber.

    Attributes:
        what: `given` or `acknowledged`.
        at: Seconds of one clock.
        pid: Of the subscriber.
        seq: Place of the message in its session.
    """

    what: str
    at: float
    pid: int
    id: str
    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The time that a message waited for its answer."""

    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, as a row or as DEAD announces it."""

    digest: str
    reason: str
    size_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class History:
    """One run. Sequences are in the order in which the system stored or delivered their items.

    An observer leaves the fields empty that it does not watch.

    Attributes:
        sent: Publishes of simulated users that the server acknowledged.
        log: The entries of INBOUND without receipts.
        receipts: The receipts of INBOUND.
        routed: The messages of ROUTED.
        outbound: The messages of OUTBOUND.
        received: The messages that adapters received.
        stream_agents: Names of the agents with `stream` delivery.
        dead_letters: Rows of `dead_letters`.
        dead_notices: Messages of DEAD.
        deadlocks: Transactions that the database ended to resolve a deadlock.
        spells: Work of the workers.
        waits: How long users waited for their answers.
        results: Results of turns.
        late: Ids of late results that the router kept without effect; None if not watched, or if
            workers also report failures, or if other programs answer.
        started: Session ids of the events that announce a new session.
        handed: Messages that stream subscribers received.
        left_over: Counts of rows that must be gone when everything is answered, by name.
        dialogue: Questions, drafts, pieces and messages outside turns, if there were any.
    """

    sent: Sequence[Sent] = ()
    log: Sequence[LogEntry] = ()
    receipts: Sequence[ReceiptEntry] = ()
    sessions: Sequence[Session] = ()
    rows: Sequence[Row] = ()
    turns: Sequence[Turn] = ()
    routed: Sequence[Published] = ()
    outbound: Sequence[Published] = ()
    received: Sequence[Received] = ()
    stream_agents: frozenset[str] = frozenset()
    dead_letters: Sequence[DeadLetter] = ()
    dead_notices: Sequence[DeadLetter] = ()
    deadlocks: int = 0
    spells: Sequence[Spell] = ()
    waits: Sequence[Wait] = ()
    results: Sequence[Result] = ()
    late: frozenset[str] | None = None
    started: Sequence[str] = ()
    handed: Sequence[Handed] = ()
    left_over: Mapping[str, int] = field(default_factory=dict)
    dialogue: "Dialogue | None" = None

    @property
    def stored_ids(self) -> list[str]:
        """The message ids of the log, in its order."""
        return [entry.nats_id for entry in self.log]


def firsts(sent: Iterable[Sent]) -> list[Sent]:
    """Return the messages without the platform's repeats, in the order of each chat."""
    first: dict[str, Sent] = {}
    for it in sent:
        first.setdefault(it.message_id, it)
    return sorted(first.values(), key=lambda it: (it.key, it.number))


def users(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of users, in the order of the transcripts."""
    return sorted((row for row in rows if row.role == "user"), key=lambda row: row.seq)


def stream_sessions(history: History) -> set[str]:
    """Return the ids of the sessions of stream agents."""
    return {it.id for it in history.sessions if it.agent in history.stream_agents}


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items grouped by their key, in their order."""
    groups: dict[K, list[T]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups


def shown(items: Sequence[object]) -> str:
    """Return a list as text: of a long one the part around the first place out of order."""
    if len(items) <= _MOST_SHOWN:
        return str(list(items))
    numbers = [it if isinstance(it, int) else n for n, it in enumerate(items)]
    steps = enumerate(pairwise(numbers), start=1)
    place = next((n for n, (item, other) in steps if other != item + 1), 0)
    begin = max(0, place - _MOST_SHOWN // 2)
    part = ", ".join(repr(it) for it in items[begin : begin + _MOST_SHOWN])
    return f"[... {part} ...] ({len(items)})"
