"""What an export of a person consists of: one record a line, each with its `record` kind."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PersonRecord(_Line):
    """The first line: whose data follow, and when they were read."""

    record: Literal["person"] = "person"
    platform: str
    account: str
    scope: str | None = None
    ids: list[str] = Field(description="Every id that is known of them.")
    exported_at: datetime


class AliasRecord(_Line):
    """An id of theirs, the name of their identity, and when the id was theirs, if not always."""

    record: Literal["alias"] = "alias"
    id: str
    canonical: str
    first_seen_at: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None


class LaneRecord(_Line):
    """A place where only they talk, and the session it leads to."""

    record: Literal["lane"] = "lane"
    session_key: str
    session_id: UUID


class SessionRecord(_Line):
    """A session of theirs alone; its rows follow."""

    record: Literal["session"] = "session"
    session_id: UUID
    session_key: str
    agent: str
    platform: str
    started_at: datetime
    ended_at: datetime | None = None
    title: str | None = None
    note: str | None = Field(default=None, description="What it leaves to the next one.")
    opening_note: str | None = Field(
        default=None, description="The note of the session before, until a turn has read it."
    )


class RowRecord(_Line):
    """A row of a transcript: what they wrote, or what was answered to it."""

    record: Literal["row"] = "row"
    session_id: UUID
    seq: int
    is_archived: bool = Field(default=False, description="Undone, or summed up since.")
    is_theirs: bool = Field(description="Whether they wrote it; else it answers them.")
    role: str
    at: datetime
    id: UUID | None = None
    text: str | None = None
    details: dict[str, Any] | None = Field(
        default=None, description="Kind, references to attachments, calls of tools."
    )
    source: dict[str, Any] | None = Field(default=None, description="Where it was written.")


class WaitingRecord(_Line):
    """A message of theirs that waits for its turn."""

    record: Literal["waiting"] = "waiting"
    session_id: UUID
    id: UUID
    at: datetime
    text: str | None = None
    details: dict[str, Any]
    source: dict[str, Any]


class RevisionRecord(_Line):
    """What a message of theirs said before they edited or deleted it."""

    record: Literal["revision"] = "revision"
    session_id: UUID
    message_id: UUID | None = None
    at: datetime
    text: str | None = None
    attachments: list[dict[str, Any]] | None = None


class DeadLetterRecord(_Line):
    """A message of theirs that was set aside."""

    record: Literal["dead_letter"] = "dead_letter"
    id: UUID
    at: datetime
    stage: str
    body: str = Field(description="As it came; bytes that are no text are escaped.")


class EventRecord(_Line):
    """An event of theirs that the log still holds."""

    record: Literal["event"] = "event"
    sequence: int
    stored_at: datetime
    event: str = Field(description="As it came, as JSON text; other bytes are escaped.")


class EndRecord(_Line):
    """The last line: without it the file is not complete."""

    record: Literal["end"] = "end"
    records: int = Field(description="How many lines came before.")


ExportRecord: TypeAlias = (
    PersonRecord
    | AliasRecord
    | LaneRecord
    | SessionRecord
    | RowRecord
    | WaitingRecord
    | RevisionRecord
    | DeadLetterRecord
    | EventRecord
    | EndRecord
)
