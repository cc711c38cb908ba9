"""The transcript API: requests that read and change transcripts, and their replies."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.buttons import Buttons
from chatlane_schemas.content.elements import StoredContent
from chatlane_schemas.content.replied import RepliedMessage
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import (
    MAX_INT64,
    BigNumber,
    Flag,
    Instant,
    Name,
    Number,
    PlatformId,
    Text,
    ToolCalls,
)
from chatlane_schemas.inbound import Attachments, Kind
from chatlane_schemas.results import MAX_TRANSCRIPT_ROWS, Reasoning, Role, TranscriptRow
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.session_changes import SessionChange
from chatlane_schemas.session_api.sessions import ApiReply, WithRooms

MAX_REWIND_TURNS: Final = 1000
MAX_QUERY_CHARACTERS: Final = 512

TranscriptVersion = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")]
"""Version of a transcript when it was read; every change creates another version."""

ChainCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\.[0-9]{1,19}$")]
"""A position in a chain of sessions: a session and a row of it."""


HitCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{8}\.[0-9]{1,19}$")]
"""A position in search results: the rank of a match and its row."""


class TranscriptLoad(PersonRequest):
    """Loads the newest rows of a transcript, or those before a row.

    A tool call and its results share a page, and a call without a result gets a placeholder result,
    so every page is valid input for a model.
    """

    session_id: UUID = Field(description="Session to read.")
    limit: Annotated[int, Field(strict=True, ge=1, le=500)] = Field(
        default=100,
        description="Maximum number of rows; a page may be longer to keep results with their call.",
    )
    before_seq: BigNumber | None = Field(default=None, description="Only rows below this place.")
    whole_chain: Flag = Field(
        default=False,
        description="Whether to continue with the sessions that this one continues.",
    )
    cursor: ChainCursor | None = Field(
        default=None,
        description="`next_cursor` of the previous page of a whole chain; instead of `before_seq`.",
    )
    as_stored: Flag = Field(
        default=False,
        description="Whether to return stored rows only, without placeholders.",
    )
    reasoning: Flag = Field(
        default=False,
        description="Whether rows have their `reasoning`. A worker gets that of its own agent if the "
        "agent declares `reasoning`, and none otherwise. Shortened rows have none.",
    )
    content_from: BigNumber | None = Field(
        default=None,
        description="Number of characters to leave out at the beginning of each content; with a "
        "`limit` of 1 for a row that is given shortened.",
    )
    with_rooms: WithRooms = False


class RowState(StrEnum):
    """State of a row since it was written."""

    EDITED = "edited"
    DELETED = "deleted"


class Unanswered(StrEnum):
    """Why a message will not be answered.

    `failed`: the router gave its turn up. `interrupted`: a newer message replaced its turn.
    `stopped`: a person or program stopped its turn, or dropped it while it was pending.
    `session_ended`: its session ended first.
    """

    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    SESSION_ENDED = "session_ended"


class RowReasoning(Reasoning):
    """The reasoning of an agent's model before a row."""

    agent: Name | None = Field(default=None, description="Agent whose model it was.")


class TranscriptEntry(StoredContent):
    """A row of a transcript as API clients see it."""

    row_id: UUID | None = Field(
        default=None,
        description="Id of the row; stays the same wherever the row is. None of a placeholder.",
    )
    seq: BigNumber = Field(description="Place in the transcript.")
    role: Role = Field(description="Author of the row.")
    content: Text | None = Field(default=None, description="Text of the row.")
    author: Text | None = Field(default=None, description="Person who wrote the row.")
    author_name: Text | None = Field(
        default=None,
        description="Name of the author as the platform showed it, for people. It may imitate anything: "
        "use `sender_prefix` in prompts.",
    )
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]` to put before the content in a prompt, if several people talk.",
    )
    platform_message_id: PlatformId | None = Field(
        default=None,
        description="The platform's message id.",
    )
    message_id: UUID | None = Field(
        default=None, description="Id of the message in turns, of a row that was submitted as one."
    )
    turn_id: UUID | None = Field(default=None, description="Turn of the row.")
    tool_calls: ToolCalls | None = Field(default=None, description="Tool calls of the model.")
    tool_call_id: Text | None = Field(
        default=None, description="Id of the call that this row answers."
    )
    tool_name: Text | None = Field(default=None, description="Tool that produced this row.")
    reasoning: RowReasoning | None = Field(
        default=None,
        description="What the model thought before the row, for those who asked for it.",
    )
    attachments: Attachments = Field(default=(), description="References to files.")
    buttons: Buttons | None = Field(
        default=None, description="Buttons that a message of the agent has."
    )
    edits: UUID | None = Field(
        default=None,
        description="Id of the earlier outbound message whose content a message of the agent replaced.",
    )
    kind: Kind | None = Field(default=None, description="What happened, of a row of a person.")
    replied: RepliedMessage | None = Field(
        default=None, description="The message it answers, if the service has it."
    )
    created_at: Instant = Field(description="When the row was written.")
    session_id: UUID | None = Field(
        default=None,
        description="Session of the row; only in a whole chain.",
    )
    state: RowState | None = Field(
        default=None,
        description="Whether the author changed the row: an edited row has its current text, a deleted "
        "row has none.",
    )
    unanswered: Unanswered | None = Field(
        default=None,
        description="Why the message will not be answered; none if it was answered or can still be "
        "answered.",
    )
    error: Text | None = Field(
        default=None,
        description="Why the turn of the message failed for good, as its worker reported it.",
    )
    content_bytes: BigNumber | None = Field(
        default=None,
        description="Size of the whole content, if the row is too large and given shortened. Its tool "
        "calls then have no arguments. Ranges of the content are read with `content_from`.",
    )
    content_next: BigNumber | None = Field(
        default=None,
        description="`content_from` of the next range of a shortened row; none at its end.",
    )
    is_placeholder: Flag = Field(
        default=False,
        description="Whether the row is not stored: it replaces the result of a call that was "
        "interrupted or has not ended, and has the place of the call.",
    )


class AppendedRow(TranscriptRow):
    """A row to append, with the ids by which a duplicate is recognised."""

    author: Text | None = Field(default=None, description="Person who wrote the row.")
    platform_message_id: PlatformId | None = Field(
        default=None,
        description="The platform's message id, unique in the session.",
    )
    message_id: UUID | None = Field(
        default=None,
        description="Id of the routed or claimed message, unique among all rows.",
    )
    attachments: Attachments = Field(default=(), description="References to files.")
    said_at: Instant | None = Field(
        default=None,
        description="When the message was written, if not now; data only: rows keep their order.",
    )


AppendedRows = Annotated[
    tuple[AppendedRow, ...], Field(max_length=MAX_TRANSCRIPT_ROWS, fail_fast=True)
]


class TranscriptSearch(PersonRequest):
    """Searches the text of rows, both in transcripts and in rows that a summary replaced.

    A row matches if it contains every word, regardless of case and accents. `"Words in quotes"`
    must follow each other, a word ending in `*` matches as a prefix, and `-word` excludes rows. In
    scripts without spaces, any part of a sentence matches. Rewound rows do not match.
    """

    query: Annotated[Text, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)] = Field(
        description="Words to search for."
    )
    session_id: UUID | None = Field(default=None, description="Only rows of this session.")
    agent: Name | None = Field(default=None, description="Only rows of this agent's sessions.")
    with_rooms: WithRooms = False
    limit: Annotated[int, Field(strict=True, ge=1, le=50)] = Field(
        default=20, description="Maximum number of rows."
    )
    cursor: HitCursor | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )


class TranscriptHit(Record):
    """A row that matches a search."""

    session_id: UUID = Field(description="Session of the row.")
    row_id: UUID | None = Field(default=None, description="Id of the row.")
    seq: BigNumber = Field(description="Place of the row in the transcript.")
    is_summed_up: Flag = Field(
        default=False,
        description="Whether a summary replaced the row, so that it is in the archive.",
    )
    role: Role = Field(description="Author of the row.")
    author: Text | None = Field(default=None, description="Person who wrote the row.")
    snippet: Text = Field(description="Excerpt around the first match, on one line.")
    created_at: Instant = Field(description="When the row was written.")
    title: Text | None = Field(default=None, description="Title of the session.")


class TranscriptChange(SessionChange):
    """A change of a transcript; a repeated request with the same id gets the first reply."""


class TranscriptAppend(TranscriptChange):
    """Appends rows to a transcript."""

    rows: Annotated[AppendedRows, Field(min_length=1)] = Field(
        description="Rows to append, in order; known rows are not added again.",
    )


class TranscriptReplace(TranscriptChange):
    """Replaces a transcript, all or nothing; the archive keeps the old rows."""

    expected_version: TranscriptVersion = Field(
        description="`version` that the rows are based on; refused as `stale` if it has changed.",
    )
    rows: AppendedRows = Field(description="All rows, in order.")
    allow_empty: Flag = Field(
        default=False,
        description="Whether to allow an empty transcript.",
    )


class TranscriptRewind(TranscriptChange):
    """Rewinds the last turns completely: their messages, tool calls and answers."""

    turns: Annotated[int, Field(strict=True, ge=1, le=MAX_REWIND_TURNS)] = Field(
        default=1,
        description="Number of turns; a larger number than there are removes all.",
    )
    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="`version` of the transcript; refused as `stale` if it has changed.",
    )


class TranscriptRetry(TranscriptChange):
    """Rewinds the last turn completely and queues its messages to be answered again."""

    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="`version` of the transcript; refused as `stale` if it has changed.",
    )


class TranscriptRestore(TranscriptChange):
    """Puts the rows that one change took out back at their places, with their ids.

    Rows that replaced them leave the transcript, and can be restored themselves. Refused as
    `conflict` if a later change replaced rows there, or another row has one of the places.
    """

    removal: BigNumber = Field(description="`removal` of the rows in `TranscriptRemovedReply`.")
    expected_version: TranscriptVersion = Field(
        description="`version` of the transcript; refused as `stale` if it has changed.",
    )


class TranscriptCompact(TranscriptChange):
    """Replaces the oldest rows with a summary; later rows follow it, in order.

    Keeps rows that were added after the summary was made, so a busy chat can be compacted. The
    archive keeps the summarised rows.
    """

    expected_version: TranscriptVersion = Field(
        description="`version` that the summary is based on; refused as `stale` if rows were removed "
        "since.",
    )
    through_seq: Annotated[int, Field(strict=True, ge=1, le=MAX_INT64)] = Field(
        description="Last summarised row; the next row must not be a result of one of its calls.",
    )
    rows: Annotated[AppendedRows, Field(min_length=1)] = Field(
        description="The summary: fewer rows than it replaces.",
    )
    in_child: Flag = Field(
        default=False,
        description="Whether to keep the rows and continue in another session that begins with the "
        "summary; the reply has its id. Not while a turn runs.",
    )


class TranscriptRevisions(PersonRequest):
    """Lists the earlier texts of a row that was edited or deleted, newest first."""

    session_id: UUID = Field(description="Session of the row.")
    seq: BigNumber = Field(description="Place of the row.")
    limit: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        default=20, description="Maximum number of texts."
    )
    before: BigNumber | None = Field(
        default=None, description="`next_before` of the previous page."
    )


RemovedCursor = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")]
"""A position in the archive: a change and a row that it took out."""


class TranscriptRemoved(PersonRequest):
    """Lists the rows that were taken out of a transcript, the last change and its last row first."""

    session_id: UUID = Field(description="Session of the rows.")
    removal: BigNumber | None = Field(
        default=None, description="Only rows that this change took out."
    )
    limit: Annotated[int, Field(strict=True, ge=1, le=500)] = Field(
        default=100, description="Maximum number of rows."
    )
    cursor: RemovedCursor | None = Field(
        default=None, description="`next_cursor` of the previous page."
    )


class RemovalReason(StrEnum):
    """Why rows were taken out of a transcript.

    `undone`: a turn was taken back or run again, or a restore took the rows out. `replaced`: a
    summary or other rows took their place.
    """

    UNDONE = "undone"
    REPLACED = "replaced"


class RemovedEntry(TranscriptEntry):
    """A row that was taken out of a transcript."""

    removal: BigNumber = Field(description="Number of the change that took the row out.")
    reason: RemovalReason = Field(description="Kind of that change.")
    removed_at: Instant = Field(description="When the row was taken out.")


class TranscriptRemovedReply(ApiReply):
    """Reply to `TranscriptRemoved`."""

    rows: tuple[RemovedEntry, ...] = Field(default=(), description="Rows, the last first.")
    next_cursor: RemovedCursor | None = Field(
        default=None, description="`cursor` of the next page; none on the last page."
    )
    version: TranscriptVersion | None = Field(
        default=None, description="Value for `expected_version` of `TranscriptRestore`."
    )


class Revision(Record):
    """Text of a row before a change."""

    number: BigNumber = Field(description="Number that grows with each change.")
    content: Text | None = Field(default=None, description="Text of the row.")
    attachments: Attachments = Field(default=(), description="References to files.")
    reason: RowState = Field(description="Change that replaced this text.")
    at: Instant = Field(description="When that change was stored in the log.")


class TranscriptRevisionsReply(ApiReply):
    """Reply to `TranscriptRevisions`."""

    revisions: tuple[Revision, ...] = Field(default=(), description="Earlier texts, newest first.")
    next_before: BigNumber | None = Field(
        default=None, description="`before` of the next page; none on the last page."
    )


class PlacedRow(Record):
    """Position of a row that a request added."""

    seq: BigNumber | None = Field(
        default=None,
        description="Place of the row; none while its message is pending, or if it was removed.",
    )
    is_repeat: Flag = Field(default=False, description="Whether the row was known already.")


class TranscriptReply(ApiReply):
    """Reply to `TranscriptLoad`."""

    session_id: UUID | None = Field(default=None, description="Session of the rows.")
    rows: tuple[TranscriptEntry, ...] = Field(default=(), description="Rows, oldest first.")
    next_before_seq: BigNumber | None = Field(
        default=None,
        description="`before_seq` of the next, older page; none on the last page.",
    )
    next_cursor: ChainCursor | None = Field(
        default=None,
        description="`cursor` of the next page of a whole chain; none on the last page.",
    )
    version: TranscriptVersion | None = Field(
        default=None,
        description="Value for `expected_version` of a change that is based on these rows.",
    )


class TranscriptHits(ApiReply):
    """Reply to `TranscriptSearch`."""

    hits: tuple[TranscriptHit, ...] = Field(
        default=(), description="Matching rows, best first; of equal matches the newest first."
    )
    next_cursor: HitCursor | None = Field(
        default=None, description="`cursor` of the next page; none on the last page."
    )


class TranscriptChanged(ApiReply):
    """Reply to a change of a transcript."""

    session_id: UUID | None = Field(default=None, description="Changed session.")
    version: TranscriptVersion | None = Field(default=None, description="Version after the change.")
    placed: Annotated[tuple[PlacedRow, ...], Field(max_length=MAX_TRANSCRIPT_ROWS)] = Field(
        default=(),
        description="Places of the rows of the request, in order.",
    )
    removed_rows: Number = Field(default=0, description="Number of removed rows.")
    restored_rows: Number = Field(default=0, description="Number of rows that came back.")
    undone_text: Text | None = Field(
        default=None,
        description="Text of the people's messages in the first removed turn.",
    )
    turn_id: UUID | None = Field(
        default=None,
        description="Turn that answers the messages again; none for a stream agent.",
    )
