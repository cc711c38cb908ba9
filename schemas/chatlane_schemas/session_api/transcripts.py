"""The transcript API: requests that read and change transcripts, and their replies."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.envelope import Envelope, Record
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
from chatlane_schemas.inbound import Attachments
from chatlane_schemas.results import MAX_TRANSCRIPT_ROWS, Role, TranscriptRow
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import ApiReply

MAX_REWIND_TURNS: Final = 1000
MAX_QUERY_CHARACTERS: Final = 512

TranscriptVersion = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")]
"""Version of a transcript when it was read; every change creates another version."""

ChainCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\.[0-9]{1,19}$")]
"""A position in a chain of sessions: a session and a row of it."""


HitCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{8}\.[0-9]{1,19}$")]
"""A position in search results: the rank of a match and its row."""


class TranscriptLoad(Envelope):
    """Loads the newest rows of a transcript, or those before a row.

    A tool call and its results share a page, and a call without a result gets a placeholder result,
    so every page is valid input for a model.
    """

    session_id: UUID = Field(description="Session to read.")
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not found.",
    )
    limit: Annotated[int, Field(strict=True, ge=1, le=500)] = Field(
        default=100,
        description="How many rows to show; a page may be longer to keep results with their call.",
    )
    before_seq: BigNumber | None = Field(default=None, description="Only rows below this one.")
    whole_chain: Flag = Field(
        default=False,
        description="Whether to go on with the sessions that this one continues.",
    )
    cursor: ChainCursor | None = Field(
        default=None,
        description="`next_cursor` of the page before, of a whole chain; instead of `before_seq`.",
    )
    as_stored: Flag = Field(
        default=False,
        description="Whether to show the rows that are stored and no others.",
    )


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


class TranscriptEntry(Record):
    """A row of a transcript as API clients see it."""

    seq: BigNumber = Field(description="Place in the transcript.")
    role: Role = Field(description="Who speaks.")
    content: Text | None = Field(default=None, description="What was said.")
    author: Text | None = Field(default=None, description="Person who wrote it.")
    sender_prefix: Text | None = Field(
        default=None,
        description="`[name]`, for a prompt to put before the content where several people talk.",
    )
    platform_message_id: PlatformId | None = Field(
        default=None,
        description="The platform's message id.",
    )
    turn_id: UUID | None = Field(default=None, description="Turn the row belongs to.")
    tool_calls: ToolCalls | None = Field(default=None, description="Calls the model asked for.")
    tool_call_id: Text | None = Field(default=None, description="Call this row answers.")
    tool_name: Text | None = Field(default=None, description="Tool this row is from.")
    attachments: Attachments = Field(default=(), description="References to files.")
    created_at: Instant = Field(description="When the row was written.")
    session_id: UUID | None = Field(
        default=None,
        description="Session the row is of; only in a whole chain.",
    )
    state: RowState | None = Field(
        default=None,
        description="Whether its author changed it since: an edited row shows what it says now, "
        "a deleted one nothing.",
    )
    unanswered: Unanswered | None = Field(
        default=None,
        description="Why the row, a person's, has no answer and is not to be answered any more; "
        "none where it was answered or still may be.",
    )
    is_placeholder: Flag = Field(
        default=False,
        description="Whether no such row is stored: it stands for the result of a call that was "
        "interrupted, or has not ended, and has the place of the call.",
    )


class AppendedRow(TranscriptRow):
    """A row to append, with the ids by which a duplicate is recognised."""

    author: Text | None = Field(default=None, description="Person who wrote it.")
    platform_message_id: PlatformId | None = Field(
        default=None,
        description="The platform's message id; one row of a session has it.",
    )
    message_id: UUID | None = Field(
        default=None,
        description="Id of the message as it was routed or claimed; one row has it.",
    )
    attachments: Attachments = Field(default=(), description="References to files.")
    said_at: Instant | None = Field(
        default=None,
        description="When it was said, if not now; data only, the order is that of the rows.",
    )


AppendedRows = Annotated[
    tuple[AppendedRow, ...], Field(max_length=MAX_TRANSCRIPT_ROWS, fail_fast=True)
]


class TranscriptSearch(Envelope):
    """Searches the text of rows, both in transcripts and in rows that a summary replaced.

    A row matches if it contains every word, regardless of case and accents. `"Words in quotes"`
    must follow each other, a word ending in `*` matches as a prefix, and `-word` excludes rows. In
    scripts without spaces, any part of a sentence matches. Rewound rows do not match.
    """

    query: Annotated[Text, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)] = Field(
        description="What to look for."
    )
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not searched.",
    )
    session_id: UUID | None = Field(default=None, description="Only rows of this session.")
    agent: Name | None = Field(default=None, description="Only rows of this agent's sessions.")
    limit: Annotated[int, Field(strict=True, ge=1, le=50)] = Field(
        default=20, description="How many rows to show at most."
    )
    cursor: HitCursor | None = Field(default=None, description="`next_cursor` of the page before.")


class TranscriptHit(Record):
    """A row that matches a search."""

    session_id: UUID = Field(description="Session it is of.")
    seq: BigNumber = Field(description="Its place in the transcript.")
    is_summed_up: Flag = Field(
        default=False,
        description="Whether a summary stands for it by now, so that it is in the archive.",
    )
    role: Role = Field(description="Who speaks.")
    author: Text | None = Field(default=None, description="Person who wrote it.")
    snippet: Text = Field(description="A piece of it around what was looked for, on one line.")
    created_at: Instant = Field(description="When the row was written.")
    title: Text | None = Field(default=None, description="Title of the session.")


class TranscriptChange(Envelope):
    """A change of a transcript; a repeated request with the same id gets the first answer."""

    session_id: UUID = Field(description="Session to write to.")
    acting_for: Person | None = Field(
        default=None,
        description="Who wants it; the sessions of others are not found.",
    )


class TranscriptAppend(TranscriptChange):
    """Appends rows to a transcript."""

    rows: Annotated[AppendedRows, Field(min_length=1)] = Field(
        description="Rows to add, in order; one that is known already is not added again.",
    )


class TranscriptReplace(TranscriptChange):
    """Replaces a transcript, all or nothing; the archive keeps the old rows."""

    expected_version: TranscriptVersion = Field(
        description="`version` of the reply this was made from; refused as `stale` if it changed.",
    )
    rows: AppendedRows = Field(description="All rows, in order.")
    allow_empty: Flag = Field(
        default=False,
        description="Whether an empty transcript is meant.",
    )


class TranscriptRewind(TranscriptChange):
    """Rewinds the last turns completely: their messages, tool calls and answers."""

    turns: Annotated[int, Field(strict=True, ge=1, le=MAX_REWIND_TURNS)] = Field(
        default=1,
        description="How many turns; more than there are takes back all.",
    )
    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="Refused as `stale` if the transcript is another one by now.",
    )


class TranscriptRetry(TranscriptChange):
    """Rewinds the last turn completely and queues its messages to be answered again."""

    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="Refused as `stale` if the transcript is another one by now.",
    )


class TranscriptCompact(TranscriptChange):
    """Replaces the oldest rows with a summary; later rows follow it, in order.

    Keeps rows that were added after the summary was made, so a busy chat can be compacted. The
    archive keeps the summarised rows.
    """

    expected_version: TranscriptVersion = Field(
        description="`version` of the reply the summary was made from; refused as `stale` if "
        "rows were taken out since.",
    )
    through_seq: Annotated[int, Field(strict=True, ge=1, le=MAX_INT64)] = Field(
        description="The last row that is summed up; what follows it must not be its results.",
    )
    rows: Annotated[AppendedRows, Field(min_length=1)] = Field(
        description="The summary: fewer rows than it stands for.",
    )
    in_child: Flag = Field(
        default=False,
        description="Whether to leave the rows where they are and go on in another session, which "
        "begins with the summary; its id is in the answer. Not while a turn runs.",
    )


class TranscriptRevisions(Envelope):
    """Lists the earlier texts of a row that was edited or deleted, newest first."""

    session_id: UUID = Field(description="Session of the row.")
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not found.",
    )
    seq: BigNumber = Field(description="Place of the row.")
    limit: Annotated[int, Field(strict=True, ge=1, le=100)] = Field(
        default=20, description="How many to show."
    )
    before: BigNumber | None = Field(default=None, description="`next_before` of the page before.")


class Revision(Record):
    """Text of a row before a change."""

    number: BigNumber = Field(description="Grows with each change.")
    content: Text | None = Field(default=None, description="What was said.")
    attachments: Attachments = Field(default=(), description="References to files.")
    reason: RowState = Field(description="What ended it.")
    at: Instant = Field(description="When that reached the log.")


class TranscriptRevisionsReply(ApiReply):
    """Reply to `TranscriptRevisions`."""

    revisions: tuple[Revision, ...] = Field(default=(), description="Newest first.")
    next_before: BigNumber | None = Field(
        default=None, description="`before` of the next page; none when there is no more."
    )


class PlacedRow(Record):
    """Position of a row that a request added."""

    seq: BigNumber | None = Field(
        default=None,
        description="Its place; none while it waits for its turn, or when it was taken out.",
    )
    is_repeat: Flag = Field(default=False, description="Whether it was known already.")


class TranscriptReply(ApiReply):
    """Reply to `TranscriptLoad`."""

    session_id: UUID | None = Field(default=None, description="Session the rows are of.")
    rows: tuple[TranscriptEntry, ...] = Field(default=(), description="Rows, oldest first.")
    next_before_seq: BigNumber | None = Field(
        default=None,
        description="`before_seq` of the page before this one; none when there is no more.",
    )
    next_cursor: ChainCursor | None = Field(
        default=None,
        description="The same for a whole chain, as `cursor`; none when there is no more.",
    )
    version: TranscriptVersion | None = Field(
        default=None,
        description="For `expected_version` of a change that is made from these rows.",
    )


class TranscriptHits(ApiReply):
    """Reply to `TranscriptSearch`."""

    hits: tuple[TranscriptHit, ...] = Field(
        default=(), description="What was found, the best first; of what is alike, the newest."
    )
    next_cursor: HitCursor | None = Field(
        default=None, description="`cursor` of the next page; none when there is no more."
    )


class TranscriptChanged(ApiReply):
    """Reply to a change of a transcript."""

    session_id: UUID | None = Field(default=None, description="Session that was changed.")
    version: TranscriptVersion | None = Field(default=None, description="Version afterwards.")
    placed: Annotated[tuple[PlacedRow, ...], Field(max_length=MAX_TRANSCRIPT_ROWS)] = Field(
        default=(),
        description="Where the rows of the request are, in their order.",
    )
    removed_rows: Number = Field(default=0, description="How many rows were taken out.")
    undone_text: Text | None = Field(
        default=None,
        description="What people had said in the first turn that was taken back.",
    )
    turn_id: UUID | None = Field(
        default=None,
        description="Turn that answers it once more; none where a stream agent does.",
    )
