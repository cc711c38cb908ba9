"""Represent the records of a run with questions, drafts, pieces and sent messages for the judge.

Times are seconds of one clock.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chatlane_devkit.judge.history import History, Received


class CallKind(StrEnum):
    """A call of a platform."""

    SEND = "send"
    EDIT = "edit"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a platform took from an adapter.

    Attributes:
        platform_id: The platform's id of the message that was sent, edited or deleted.
        message_id: Id of the outbound message; empty for a draft.
        piece: Which piece of the message, from 0.
        turn_id: Turn whose answer a draft shows; empty for a message.
    """

    at: float
    kind: str
    chat: str
    platform_id: str
    text: str = ""
    message_id: str = ""
    session_id: str = ""
    out_seq: int = 0
    piece: int = 0
    pieces: int = 1
    turn_id: str = ""
    buttons: Sequence[Sequence[str]] = ()

    @property
    def is_draft(self) -> bool:
        """It shows an answer that is being written."""
        return not self.message_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question that a worker asked; `name` is different for each attempt that asks."""

    at: float
    name: str
    chat: str
    session_id: str
    turn_id: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The answer that a worker got for its question.

    Attributes:
        value: The answer: its option names the question.
    """

    at: float
    name: str
    value: str
    is_default: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An act of a person that answers a question.

    Attributes:
        begun_at: When the adapter began to publish it; `at` is when it was stored.
        name: The question that it is meant for.
        chat: Where the person did it.
        text: Text of the row that it becomes if it counts, different for each question and option.
        is_press: A button was pressed, which names the question.
    """

    at: float
    begun_at: float
    name: str
    chat: str
    text: str
    is_press: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAlone:
    """A message that was sent outside a turn, once for each of its requests that were answered.

    Attributes:
        request_id: The same for repeated requests.
        text: Different for each message.
    """

    at: float
    request_id: str
    chat: str
    text: str
    session_id: str
    message_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quoted:
    """A reply of a person to a message of the agent, as the agent got it.

    Attributes:
        platform_id: The message that the person replied to.
        text: Text of the message that the agent got as replied; None if it got none.
    """

    platform_id: str
    text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryState:
    """A row of `deliveries`."""

    message_id: str
    state: str
    sent: int
    pieces: int
    platform_ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboundText:
    """An outbound message as its stream keeps it."""

    id: str
    session_id: str
    turn_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """The part of a run in which people and agent do more than ask and answer.

    Attributes:
        history: Sessions, rows, turns and messages of this part alone.
        chats: Session keys by chat.
        ends: By process, when it was killed or ended.
        reported: By platform id of a draft, when its report was stored.
        stored: By id of an outbound message, when it was stored; of the clock of `reported`.
        foreign: Turns of other accounts that an adapter got to know of.
        reactions: Texts of reactions, each different.
        questions_kept: Ended turns in the database that still have a question.
    """

    history: History = field(default_factory=History)
    chats: Mapping[str, str] = field(default_factory=dict)
    calls: Sequence[Call] = ()
    questions: Sequence[Question] = ()
    outcomes: Sequence[Outcome] = ()
    replies: Sequence[Reply] = ()
    sends: Sequence[SentAlone] = ()
    quotes: Sequence[Quoted] = ()
    reactions: Sequence[str] = ()
    outbound: Sequence[OutboundText] = ()
    deliveries: Sequence[DeliveryState] = ()
    ends: Mapping[str, Sequence[float]] = field(default_factory=dict)
    reported: Mapping[str, float] = field(default_factory=dict)
    stored: Mapping[str, float] = field(default_factory=dict)
    foreign: Sequence[str] = ()
    questions_kept: int = 0

    def has_ended_between(self, process: str, begin: float, end: float) -> bool:
        """Return whether a process ended in a span of time."""
        return any(begin <= at <= end for at in self.ends.get(process, ()))

    def pieces(self) -> dict[str, list[Call]]:
        """Return the calls that showed outbound messages, by message, in order."""
        found: dict[str, list[Call]] = defaultdict(list)
        for call in sorted(self.calls, key=lambda call: call.at):
            if call.message_id:
                found[call.message_id].append(call)
        return found

    def received(self) -> Iterator[Received]:
        """Yield each message that its chat has as a whole, in order of its first piece."""
        for message_id, calls in self.pieces().items():
            texts = {call.piece: call.text for call in calls}
            first = calls[0]
            if len(texts) == first.pieces:
                yield Received(
                    key=self.chats.get(first.chat, f"nobody: {first.chat}"),
                    session_id=first.session_id,
                    out_seq=first.out_seq,
                    id=message_id,
                    reply_to="",
                    text="\n".join(texts[number] for number in sorted(texts)),
                )
