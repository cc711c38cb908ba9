"""What was seen of one run of the feed, from outside: the log, the answers, the database."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from chatlane_devkit.scenario.feed import Address

_HEARD: Final = re.compile(r"^#(\d+) heard: ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A message as INBOUND stored it.

    Attributes:
        chat: The subject without its partition: platform, account and chat token.
        digest: SHA-256 of the body, hexadecimal.
    """

    sequence: int
    stored_at: datetime
    chat: str
    nats_id: str
    digest: str


@dataclass(frozen=True, slots=True)
class Heard:
    """One message that an agent says it heard, with its number in the transcript."""

    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A message to a chat, as the adapter received it.

    Attributes:
        cause: The turn or the routed message that it answers.
    """

    session_id: str
    out_seq: int
    agent: str
    address: Address
    kind: str
    cause: str
    part: int
    text: str

    def heard(self) -> Iterator[Heard]:
        """Yield what the echo agent says it heard: `#<seq> heard: <text>`, one after the other."""
        _, *pieces = _HEARD.split(self.text)
        for seq, text in zip(pieces[::2], pieces[1::2], strict=True):
            yield Heard(int(seq), text.removesuffix("\n"))


@dataclass(frozen=True, slots=True)
class Session:
    """A row of `sessions`."""

    id: str
    key: str
    agent: str
    started_at: datetime
    end_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of `messages`.

    Attributes:
        message_id: The platform's id; empty when there is none.
    """

    session_id: str
    seq: int
    role: str
    content: str
    message_id: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter, as a row or as DEAD tells it."""

    digest: str
    reason: str
    size_bytes: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Rows that must be gone when everything is answered."""

    outbox: int = 0
    waiting: int = 0
    live_turns: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """One run, as the verdict judges it; answers are in the order of their arrival."""

    log: Sequence[LogEntry]
    answers: Sequence[Answer]
    sessions: Sequence[Session]
    rows: Sequence[Row]
    dead_letters: Sequence[DeadLetter]
    dead_notices: Sequence[DeadLetter]
    leftovers: Leftovers
