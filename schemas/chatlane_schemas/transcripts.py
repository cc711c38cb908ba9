"""Transcripts: how they are read, what they show, and how they are changed."""

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
from chatlane_schemas.people import Person
from chatlane_schemas.results import MAX_TRANSCRIPT_ROWS, Role, TranscriptRow
from chatlane_schemas.sessions import ApiReply

MAX_REWIND_TURNS: Final = 1000
MAX_QUERY_CHARACTERS: Final = 512

TranscriptVersion = Annotated[str, Field(pattern=r"^[0-9]{1,19}\.[0-9]{1,19}$")]
"""What a transcript was when it was read; every change gives another one."""

ChainCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{32}\.[0-9]{1,19}$")]
"""A place in a chain of sessions: a session and a row of it."""


HitCursor = Annotated[str, Field(pattern=r"^[0-9a-f]{8}\.[0-9]{1,19}$")]
"""A place in what a search found: how well a row matches, and which one it is."""


class TranscriptLoad(Envelope):
    """Asks for the newest rows of a transcript, or those before a row.

    A call and its results come on one page, and a call without a result gets a placeholder for
    it, so that every page can be given to a model as it is.
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
    """What became of a row since it was written."""

    EDITED = "edited"
    DELETED = "deleted"


class Unanswered(StrEnum):
    """Why a message has no answer and gets none.

    `failed`: its turn was given up. `interrupted`: a newer message took the place of its turn.
    `stopped`: somebody stopped its turn, or what waited. `session_ended`: its conversation ended
    first.
    """

    FAILED = "failed"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped"
    SESSION_ENDED = "session_ended"


class TranscriptEntry(Record):
    """A row of a transcript, as shown to people."""

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
    """A row to add, with what makes it the same row when somebody else brings it again."""

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
    """Looks for rows by what they say, in transcripts and in what summaries stand for.

    Every word has to be there, in whatever case and with or without accents. `"Words in quotes"`
    have to follow each other, a word ending in `*` may go on, and `-word` must not be there. Any
    piece of a sentence is found in scripts that write no spaces. What was taken back is not found.
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
    """A row that was found."""

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
    """Any change of a transcript; the same request again gets the first answer."""

    session_id: UUID = Field(description="Session to write to.")
    acting_for: Person | None = Field(
        default=None,
        description="Who wants it; the sessions of others are not found.",
    )


class TranscriptAppend(TranscriptChange):
    """Adds rows at the end of a transcript."""

    rows: Annotated[AppendedRows, Field(min_length=1)] = Field(
        description="Rows to add, in order; one that is known already is not added again.",
    )


class TranscriptReplace(TranscriptChange):
    """Writes a transcript anew, all or nothing; what it was stays in the archive."""

    expected_version: TranscriptVersion = Field(
        description="`version` of the reply this was made from; refused as `stale` if it changed.",
    )
    rows: AppendedRows = Field(description="All rows, in order.")
    allow_empty: Flag = Field(
        default=False,
        description="Whether an empty transcript is meant.",
    )


class TranscriptRewind(TranscriptChange):
    """Takes back the last turns, whole: what was said, called and answered."""

    turns: Annotated[int, Field(strict=True, ge=1, le=MAX_REWIND_TURNS)] = Field(
        default=1,
        description="How many turns; more than there are takes back all.",
    )
    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="Refused as `stale` if the transcript is another one by now.",
    )


class TranscriptRetry(TranscriptChange):
    """Takes the last turn back, whole, and lets what was said in it be answered once more."""

    expected_version: TranscriptVersion | None = Field(
        default=None,
        description="Refused as `stale` if the transcript is another one by now.",
    )


class TranscriptCompact(TranscriptChange):
    """Puts a summary in the place of the oldest rows; later rows stay behind it, in order.

    Rows that came since the summary was made are kept, so a busy chat can be compacted. What
    is summed up stays in the archive.
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
    """Asks what a row said before it was edited or deleted, the newest first."""

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
    """What a row said until it was changed."""

    number: BigNumber = Field(description="Grows with each change.")
    content: Text | None = Field(default=None, description="What was said.")
    attachments: Attachments = Field(default=(), description="References to files.")
    reason: RowState = Field(description="What ended it.")
    at: Instant = Field(description="When that reached the log.")


class TranscriptRevisionsReply(ApiReply):
    """Answer to `TranscriptRevisions`."""

    revisions: tuple[Revision, ...] = Field(default=(), description="Newest first.")
    next_before: BigNumber | None = Field(
        default=None, description="`before` of the next page; none when there is no more."
    )


class PlacedRow(Record):
    """Where a row of a request is."""

    seq: BigNumber | None = Field(
        default=None,
        description="Its place; none while it waits for its turn, or when it was taken out.",
    )
    is_repeat: Flag = Field(default=False, description="Whether it was known already.")


class TranscriptReply(ApiReply):
    """Answer to `TranscriptLoad`."""

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
    """Answer to `TranscriptSearch`."""

    hits: tuple[TranscriptHit, ...] = Field(
        default=(), description="What was found, the best first; of what is alike, the newest."
    )
    next_cursor: HitCursor | None = Field(
        default=None, description="`cursor` of the next page; none when there is no more."
    )


class TranscriptChanged(ApiReply):
    """Answer to a change of a transcript."""

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
