"""Refer from a reply to the message that it answers.

A reply stores a pointer and no copy: readers get the other message as it is then, and an erasure
or an edit of it needs no second place. What the platform quotes is stored only where the service
does not have the message, or where the person selected a part of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic import ValidationError
from pydantic_core import from_json, to_json

from chatlane.domain.effects import MessageRow
from chatlane.domain.prompts.sanitize import beginning
from chatlane_schemas.content.elements import STORED_FIELDS
from chatlane_schemas.content.replied import MAX_EXCERPT, RepliedMessage
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.transcripts import RowState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from chatlane.domain.effects import WaitingRow

_SHOWN: Final = {*STORED_FIELDS, "attachments"}
# The detail of a reply that points to the answered message.
POINTER: Final = "replied_row"


class RepliedRow(NamedTuple):
    """A stored message to which another one replies; `details` and `source` are JSON text.

    Attributes:
        seq: Its place in the transcript; None while it waits for its turn.
        message_id: Its id; rows of the agent have none.
    """

    session_id: UUID
    seq: int | None
    message_id: UUID | None
    role: str
    content: str | None
    details: str | None
    source: str | None
    state: str | None

    @property
    def pointer(self) -> dict[str, object]:
        """Return the pointer that a reply stores to find the row again."""
        place = {"seq": self.seq} if self.message_id is None else {"id": str(self.message_id)}
        return {"session_id": str(self.session_id), **place}


@dataclass(slots=True)
class Replies:
    """The messages to which replies of a batch refer, by digest."""

    found: dict[bytes, RepliedRow] = field(default_factory=dict)

    def add(self, digests: Iterable[bytes], row: WaitingRow | MessageRow) -> None:
        """Record a message of this batch."""
        replied = RepliedRow(
            session_id=row.session_id,
            seq=row.seq if isinstance(row, MessageRow) else None,
            message_id=row.id if isinstance(row, MessageRow) else row.message_id,
            role=Role.USER,
            content=row.content,
            details=row.details,
            source=row.source,
            state=None,
        )
        self.found.update(dict.fromkeys(digests, replied))

    def find(self, digests: Iterable[bytes]) -> RepliedRow | None:
        """Return the message that has one of the digests."""
        return next((self.found[digest] for digest in digests if digest in self.found), None)


def with_pointer(details: str, row: RepliedRow) -> str:
    """Return the details of a reply with a pointer to the answered message."""
    fields = from_json(details)
    fields[POINTER] = row.pointer
    if not needs_quote(fields.get("quote"), row.content):
        fields.pop("quote", None)
    return to_json(fields).decode()


def needs_quote(quote: Mapping[str, object] | None, content: str | None) -> bool:
    """Return whether a quote says more than the beginning of the answered message."""
    text = None if quote is None else quote.get("text")
    return isinstance(text, str) and bool(text) and not (content or "").startswith(text)


def replied_message(row: RepliedRow) -> RepliedMessage | None:
    """Return a row as its replies show it; None if the row has no valid form."""
    details = from_json(row.details or "{}")
    source = from_json(row.source or "{}")
    fields = {name: value for name, value in details.items() if name in _SHOWN} | {
        "session_id": str(row.session_id),
        "seq": row.seq,
        "role": row.role,
        "sender": source.get("sender"),
        "text": None if row.content is None else beginning(row.content, MAX_EXCERPT),
        "is_deleted": row.state == RowState.DELETED,
    }
    try:
        return RepliedMessage.model_validate_json(to_json(fields))
    except ValidationError:
        return None
