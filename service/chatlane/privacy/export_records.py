"""Define the records of an export of a person: one record per line, each with its `record` kind.

The queries of the export name their columns after the fields of these records.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, Json

JsonObject = Json[dict[str, Any]]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True)


class PersonRecord(_Line):
    """The first line: the person whose data follow, and the time of the export."""

    record: Literal["person"] = "person"
    platform: str
    account: str
    scope: str | None = None
    ids: list[str] = Field(description="Every id that is known of them.")
    exported_at: datetime


class AliasRecord(_Line):
    """An id of the person, the name of their identity, and the time span of the id if bounded."""

    record: Literal["alias"] = "alias"
    id: str
    canonical: str
    first_seen_at: datetime | None = None
    since: datetime | None = None
    until: datetime | None = None


class LaneRecord(_Line):
    """A lane that belongs to the person alone, and the session it points to."""

    record: Literal["lane"] = "lane"
    session_key: str
    session_id: UUID


class FolderRecord(_Line):
    """A folder that the person made; sessions name it in `folder_id`."""

    record: Literal["folder"] = "folder"
    id: UUID
    name: str
    colour: str
    profile: str | None = None
    created_at: datetime


class DraftRecord(_Line):
    """A text that the person has typed in a session and not sent."""

    record: Literal["draft"] = "draft"
    session_id: UUID
    at: datetime
    text: str


class SessionRecord(_Line):
    """A session that belongs to the person alone; its rows follow."""

    record: Literal["session"] = "session"
    session_id: UUID
    session_key: str
    agent: str
    platform: str
    started_at: datetime
    ended_at: datetime | None = None
    title: str | None = None
    labels: list[str] | None = None
    folder_id: UUID | None = None
    note: str | None = Field(default=None, description="What it leaves to the next one.")
    opening_note: str | None = Field(
        default=None, description="The note of the session before, until a turn has read it."
    )


class RowRecord(_Line):
    """A row of a transcript: a message of the person, or an answer to one."""

    record: Literal["row"] = "row"
    session_id: UUID
    seq: int
    is_archived: bool = Field(default=False, description="Undone, or summed up since.")
    is_theirs: bool = Field(
        default=False, description="Whether they wrote it; else it answers them."
    )
    role: str
    at: datetime
    id: UUID | None = None
    text: str | None = None
    details: JsonObject | None = Field(
        default=None, description="Kind, references to attachments, calls of tools."
    )
    source: JsonObject | None = Field(default=None, description="Where it was written.")
    turn_id: UUID | None = Field(default=None, exclude=True)
    reply_to: UUID | None = Field(default=None, exclude=True)


class WaitingRecord(_Line):
    """A message of the person that waits for its turn."""

    record: Literal["waiting"] = "waiting"
    session_id: UUID
    id: UUID
    at: datetime
    text: str | None = None
    details: JsonObject
    source: JsonObject


class RevisionRecord(_Line):
    """An earlier version of a message that the person edited or deleted."""

    record: Literal["revision"] = "revision"
    session_id: UUID
    message_id: UUID | None = None
    at: datetime
    text: str | None = None
    attachments: Json[list[dict[str, Any]]] | None = None


class DeadLetterRecord(_Line):
    """A dead letter of the person."""

    record: Literal["dead_letter"] = "dead_letter"
    id: UUID
    at: datetime
    stage: str
    body: str = Field(description="As it came; bytes that are no text are escaped.")


class EventRecord(_Line):
    """An event of the person that the log still holds."""

    record: Literal["event"] = "event"
    sequence: int
    stored_at: datetime
    event: str = Field(description="As it came, as JSON text; other bytes are escaped.")


class EndRecord(_Line):
    """The last line; without it the file is incomplete."""

    record: Literal["end"] = "end"
    records: int = Field(description="How many lines came before.")


ExportRecord: TypeAlias = (
    PersonRecord
    | AliasRecord
    | LaneRecord
    | FolderRecord
    | DraftRecord
    | SessionRecord
    | RowRecord
    | WaitingRecord
    | RevisionRecord
    | DeadLetterRecord
    | EventRecord
    | EndRecord
)
