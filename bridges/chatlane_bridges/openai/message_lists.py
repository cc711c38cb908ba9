"""Compare the message list of a client with the transcript of a session.

A client without a memory sends the whole conversation again. An exchange is what a person said,
and what the agent answered to it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from chatlane_bridges.answers.answer_text import PARAGRAPH
from chatlane_schemas.inbound import Kind
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import RowState, TranscriptEntry

# Rows of a person that are no words, such as reactions, are for the agent only.
_SAID: Final = frozenset({None, Kind.MESSAGE, Kind.ACTION, Kind.ATTACHMENTS})


@dataclass(frozen=True, slots=True)
class Exchange:
    """Words of a person and the answer, as a client has them."""

    words: str
    answer: str


@dataclass(slots=True)
class StoredExchange:
    """Words of a person and the answer, as a transcript has them.

    Attributes:
        session_id: Session of the last row; None for the session that was read.
        last_seq: Place of the last row.
        message_ids: Ids of the messages of the person.
    """

    session_id: UUID | None = None
    last_seq: int = 0
    message_ids: list[UUID] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    turn_id: UUID | None = None
    has_answer: bool = False

    @property
    def words(self) -> str:
        """Return the words of the person."""
        return PARAGRAPH.join(self.texts)

    @property
    def answer(self) -> str:
        """Return the answer of the agent; nothing while it is still to come."""
        return PARAGRAPH.join(self.answered)


def stored_exchanges(rows: Iterable[TranscriptEntry]) -> list[StoredExchange]:
    """Return the exchanges of a transcript, in order."""
    found: list[StoredExchange] = []
    for row in rows:
        if row.state is RowState.DELETED:
            continue
        if row.role is Role.USER:
            if row.kind not in _SAID:
                continue
            if not found or found[-1].has_answer or found[-1].turn_id != row.turn_id:
                found.append(StoredExchange(turn_id=row.turn_id))
            found[-1].texts.append(row.content or "")
            if row.message_id is not None:
                found[-1].message_ids.append(row.message_id)
        else:
            if not found:
                found.append(StoredExchange())
            found[-1].has_answer = True
            if row.role is Role.ASSISTANT and row.content:
                found[-1].answered.append(row.content)
        found[-1].session_id, found[-1].last_seq = row.session_id, row.seq
    return found


def position(history: Sequence[Exchange], stored: Sequence[StoredExchange]) -> int | None:
    """Return the place of the newest exchange that is the last one of a client's history.

    None if the history does not belong to this transcript.
    """
    last = history[-1]
    for place in range(len(stored) - 1, -1, -1):
        if _is_same(last, stored[place]):
            return place
    return None


def is_asked(words: str, exchange: StoredExchange) -> bool:
    """Return whether an exchange begins with these words of a person."""
    return _plain(words) == _plain(exchange.words)


def _is_same(sent: Exchange, stored: StoredExchange) -> bool:
    words, wanted = _plain(sent.words), _plain(stored.words)
    # Words that were never answered may come before them.
    if words != wanted and not (wanted and words.endswith(f"\n{wanted}")):
        return False
    answer, kept = _plain(sent.answer), _plain(stored.answer)
    # A client may have the beginning only, or an error; and more of a question or a repeated answer.
    return not kept or (
        bool(answer)
        and (kept.startswith(answer) or answer.startswith(kept) or answer.endswith(kept))
    )


def _plain(text: str) -> str:
    """Return a text without differences of white space, which clients change."""
    stripped = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in stripped if line)
