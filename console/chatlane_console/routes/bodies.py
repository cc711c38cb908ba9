"""Bodies of requests and responses of the HTTP API."""

from datetime import datetime
from typing import Annotated, Final, Self
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from chatlane_console.sign_in.visitors import VisitorRole
from chatlane_schemas.content.questions import FormValues
from chatlane_schemas.fields import BigNumber, Name, PlatformId, PlatformName, Text
from chatlane_schemas.questions import OpenQuestionView
from chatlane_schemas.session_api.deliveries import DeliveryView
from chatlane_schemas.session_api.operators.service_state import (
    AccountState,
    AgentDeclaration,
    AgentState,
    LetterAge,
    PartitionState,
    PlatformDeclaration,
    ResetRule,
)
from chatlane_schemas.session_api.projects import (
    MAX_PROJECTS,
    PROJECT_COLOUR,
    Colour,
    Project,
    ProjectName,
)
from chatlane_schemas.session_api.session_changes import MAX_TITLE_CHARACTERS
from chatlane_schemas.session_api.session_marks import MAX_LABELS, DraftText, Label
from chatlane_schemas.session_api.sessions import (
    Cursor,
    SessionCounts,
    SessionKey,
    SessionOrder,
    SessionState,
    SessionView,
)
from chatlane_schemas.session_api.transcripts import (
    MAX_REWIND_TURNS,
    HitCursor,
    RemovedCursor,
    RemovedEntry,
    Revision,
    TranscriptEntry,
    TranscriptHit,
    TranscriptVersion,
)

MAX_MESSAGE_CHARACTERS: Final = 60_000
MAX_FILES: Final = 10
"""Most files of a message."""
MAX_RECEIPT_CHARACTERS: Final = 4096


class Body(BaseModel):
    """A body of a request; a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class FileLimits(BaseModel):
    """The files that a person can send."""

    max_bytes: int = Field(description="Size of the largest file.")
    types: tuple[str, ...] = Field(description="Media types, where `*` stands for anything.")


class Me(BaseModel):
    """The visitor who has signed in."""

    name: str = Field(description="Name for people.")
    platform: str = Field(description="Platform that the person belongs to.")
    account: str = Field(description="Account that the person talks to.")
    person_id: str = Field(description="Id of the person there.")
    further_accounts: list[str] = Field(
        description="Other accounts, as platform/account, whose sessions the person sees as well."
    )
    roles: list[VisitorRole] = Field(description="What the person may do.")
    files: FileLimits | None = Field(
        default=None, description="Which files the person can send; none if there is no store."
    )
    can_sign_out: bool = Field(description="Whether the console can sign the person out.")


class PersonOfAccount(Body):
    """A person whom an operator names."""

    id: PlatformId = Field(min_length=1, description="An id of the person on the platform.")
    platform: PlatformName | None = Field(
        default=None, description="Declared platform; by default that of the console."
    )
    account: Name | None = Field(
        default=None, description="Declared account; by default that of the console."
    )
    scope: PlatformId | None = Field(
        default=None, description="Workspace or guild, if the platform has them."
    )


class SessionsQuery(Body):
    """A filter and an order of sessions."""

    platform: PlatformName | None = Field(default=None, description="Only of this platform.")
    agent: Name | None = Field(default=None, description="Only of this agent.")
    origin: Name | None = Field(
        default=None, description="Only those that this kind of caller opened; `chat` for chats."
    )
    without_origins: tuple[Name, ...] = Field(
        default=(), max_length=16, description="None that these kinds of callers opened."
    )
    profile: Name | None = Field(default=None, description="Only of this profile.")
    cwd: Text | None = Field(
        default=None, min_length=1, max_length=4096, description="Only with this directory."
    )
    project_id: UUID | None = Field(default=None, description="Only in this folder.")
    label: Label | None = Field(default=None, description="Only with this label.")
    title_part: Text | None = Field(
        default=None, min_length=1, max_length=100, description="Only with this in their title."
    )
    active_since: AwareDatetime | None = Field(
        default=None, description="Only those in which a person has written since."
    )
    active_before: AwareDatetime | None = Field(
        default=None, description="Only those without a message since."
    )
    archived: bool | None = Field(default=None, description="Only archived ones, or only others.")
    hide_empty: bool = Field(default=False, description="None without a message and a title.")
    tips_only: bool = Field(
        default=False, description="None that a compaction continued in another session."
    )
    state: SessionState | None = Field(default=None, description="Only in this state.")
    pinned_first: bool = Field(default=False, description="Whether pinned ones come first.")
    order: SessionOrder = Field(default=SessionOrder.ACTIVITY, description="What comes first.")
    limit: int = Field(default=50, ge=1, le=200, description="Most sessions of the page.")
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the page before.")


class EverySessionsQuery(SessionsQuery):
    """A filter and an order of the sessions of everybody."""

    person_id: PlatformId | None = Field(
        default=None, min_length=1, description="Only those of the person with this id."
    )
    person_platform: PlatformName | None = Field(
        default=None, description="Platform of the person; by default that of the console."
    )
    person_account: Name | None = Field(
        default=None, description="Account of the person; by default that of the console."
    )
    person_scope: PlatformId | None = Field(
        default=None, description="Workspace or guild of the person, if the platform has them."
    )

    @property
    def person(self) -> PersonOfAccount | None:
        """The person whose sessions are listed; None for everybody's."""
        if self.person_id is None:
            return None
        return PersonOfAccount(
            id=self.person_id,
            platform=self.person_platform,
            account=self.person_account,
            scope=self.person_scope,
        )

    @model_validator(mode="after")
    def _names_a_person(self) -> Self:
        about = (self.person_platform, self.person_account, self.person_scope)
        if self.person_id is None and any(value is not None for value in about):
            raise PydanticCustomError("person", "person_id is missing")
        return self


class SessionsPage(BaseModel):
    """A page of sessions."""

    sessions: tuple[SessionView, ...] = Field(description="Sessions of the page.")
    next_cursor: Cursor | None = Field(
        default=None,
        description="`cursor` of the next page; none on the last page. A page may have fewer "
        "sessions than its limit, or none, and a next page nevertheless.",
    )


class RowsPage(BaseModel):
    """A page of a transcript."""

    rows: tuple[TranscriptEntry, ...] = Field(description="Rows, oldest first.")
    next_before: BigNumber | None = Field(
        default=None, description="`before` of the next, older page; none on the last page."
    )
    next_cursor: str | None = Field(
        default=None, description="`cursor` of the next, older page of a whole chain."
    )
    version: TranscriptVersion | None = Field(
        default=None, description="Version of the transcript; also the `ETag` of the response."
    )


class NewSession(Body):
    """A session to open."""

    profile: Name | None = Field(default=None, description="Persona; the default one by default.")
    cwd: Text | None = Field(default=None, max_length=4096, description="Directory of tools.")
    model: Text | None = Field(default=None, max_length=256, description="Model that answers.")
    config: dict[str, JsonValue] | None = Field(
        default=None, description="Other settings for the agent; never credentials."
    )


class NewMessage(Body):
    """A message to submit."""

    text: Annotated[Text, Field(max_length=MAX_MESSAGE_CHARACTERS)] = Field(
        description="What the person says; empty only with files."
    )
    files: tuple[Annotated[str, Field(max_length=MAX_RECEIPT_CHARACTERS)], ...] = Field(
        default=(), max_length=MAX_FILES, description="Receipts of files that the person uploaded."
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.text and not self.files:
            raise PydanticCustomError("nothing", "neither text nor files")
        return self


class Submitted(BaseModel):
    """A message that was submitted."""

    session_id: UUID = Field(
        description="Session that received it: another one if the session was compacted."
    )
    message_id: UUID = Field(description="Id of the message, as rows have it.")
    turn_id: UUID | None = Field(
        default=None, description="The running turn whose question it answers, if it does."
    )


class Stopped(BaseModel):
    """The turn that was stopped."""

    turn_id: UUID | None = Field(default=None, description="Turn that was stopped.")
    was_running: bool = Field(description="Whether a worker runs the turn and ends it now.")
    dropped: int = Field(description="Pending messages that will not be answered.")


class SessionPatch(Body):
    """Changes of a session; a field that is left out stays as it is, and null clears it."""

    title: Text | None = Field(
        default=None, max_length=MAX_TITLE_CHARACTERS, description="The title."
    )
    archived: bool | None = Field(default=None, description="Whether it is in the archive.")
    pinned: bool | None = Field(default=None, description="Whether it is at the top of the list.")
    labels: tuple[Label, ...] | None = Field(
        default=None, max_length=MAX_LABELS, description="Its labels."
    )
    project_id: UUID | None = Field(
        default=None, description="Folder of the person to put it into; null takes it out."
    )
    read_only: bool | None = Field(
        default=None, description="Whether an ended session may only be read and copied."
    )
    cwd: Text | None = Field(
        default=None, min_length=1, max_length=4096, description="Directory of tools."
    )
    model: Text | None = Field(
        default=None, min_length=1, max_length=256, description="Model that answers."
    )
    config: dict[str, JsonValue] | None = Field(
        default=None,
        description="Keys of the config to change, as a JSON Merge Patch (RFC 7396).",
    )

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("empty", "nothing is to be changed")
        for name in ("archived", "pinned", "read_only"):
            if name in self.model_fields_set and getattr(self, name) is None:
                raise PydanticCustomError("flag", "{name} is true or false", {"name": name})
        return self


class NewDraft(Body):
    """A text that a person has typed and not sent."""

    text: DraftText = Field(description='The words; `""` removes the draft.')
    replaces: AwareDatetime | None = Field(
        default=None,
        description="`changed_at` of the draft that it replaces; null if there was none.",
    )


class KeptDraft(BaseModel):
    """A draft that was kept."""

    changed_at: datetime | None = Field(
        default=None, description="When it was changed; none if there is no draft now."
    )


class ReadMark(Body):
    """Up to which row a person has read a session."""

    through_seq: BigNumber = Field(description="Place of the last row that the person has seen.")


class NewFolder(Body):
    """A folder to make."""

    name: ProjectName = Field(description="Its name, unique among the folders of the person.")
    colour: Colour = Field(default=PROJECT_COLOUR, description="Its colour as `#rrggbb`.")
    profile: Name | None = Field(
        default=None, description="The profile whose sessions it is for; null for all."
    )


class FolderPatch(Body):
    """Changes of a folder; a field that is left out stays as it is."""

    name: ProjectName | None = Field(default=None, description="The new name.")
    colour: Colour | None = Field(default=None, description="The new colour as `#rrggbb`.")

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.name is None and self.colour is None:
            raise PydanticCustomError("empty", "nothing is to be changed")
        return self


class FolderOrder(Body):
    """An order of folders."""

    project_ids: tuple[UUID, ...] = Field(
        min_length=1, max_length=MAX_PROJECTS, description="The folders, the first one first."
    )


class Folders(BaseModel):
    """The folders of a person."""

    projects: tuple[Project, ...] = Field(description="The folders, in order.")


class SessionDeletion(BaseModel):
    """The receipt of a session that was deleted."""

    session_id: UUID = Field(description="The session.")
    at: AwareDatetime = Field(description="When it was deleted.")
    deleted: dict[str, BigNumber] = Field(description="How much was deleted, by what it was.")


class CopiedSession(Body):
    """How to copy a session."""

    through_seq: BigNumber | None = Field(default=None, description="Last row to copy.")
    session_key: SessionKey | None = Field(
        default=None, description="Key of a chat that points to it and continues in the copy."
    )


class SwitchedChat(Body):
    """A chat that is to continue in a session."""

    session_key: SessionKey = Field(description="Key of the chat.")
    expected_session_id: UUID = Field(description="Session that the chat points to now.")


class RewoundTurns(Body):
    """Turns to take back."""

    turns: int = Field(default=1, ge=1, le=MAX_REWIND_TURNS, description="Number of turns.")


class RestoredChange(Body):
    """A change whose removed rows are to come back."""

    removal: BigNumber = Field(description="`removal` of the rows.")


class ChangedTranscript(BaseModel):
    """The state of a transcript after a change."""

    version: TranscriptVersion | None = Field(default=None, description="Its version now.")
    removed_rows: int = Field(description="Number of rows that were taken out.")
    restored_rows: int = Field(description="Number of rows that came back.")
    undone_text: Text | None = Field(
        default=None, description="Text of the messages in the first turn that was taken back."
    )
    turn_id: UUID | None = Field(default=None, description="Turn that answers the messages again.")


class RowContent(BaseModel):
    """The whole content of a row."""

    content: Text = Field(description="Text of the row.")


class RevisionsPage(BaseModel):
    """A page of earlier texts."""

    revisions: tuple[Revision, ...] = Field(description="Earlier texts, newest first.")
    next_before: BigNumber | None = Field(default=None, description="`before` of the next page.")


class RemovedPage(BaseModel):
    """A page of removed rows."""

    rows: tuple[RemovedEntry, ...] = Field(description="Rows, the last one first.")
    next_cursor: RemovedCursor | None = Field(
        default=None, description="`cursor` of the next page."
    )
    version: TranscriptVersion | None = Field(
        default=None, description="Version of the transcript, for `If-Match`."
    )


class HitsPage(BaseModel):
    """A page of rows that match a query."""

    hits: tuple[TranscriptHit, ...] = Field(description="Matching rows, best first.")
    next_cursor: HitCursor | None = Field(default=None, description="`cursor` of the next page.")


class OpenQuestion(BaseModel):
    """The open question of a session."""

    question: OpenQuestionView | None = Field(
        default=None, description="The question; none if none is open."
    )


class QuestionAnswer(Body):
    """An answer to a question."""

    question_id: UUID = Field(description="Id of the question.")
    value: Text | None = Field(
        default=None,
        max_length=MAX_MESSAGE_CHARACTERS,
        description="The value of the chosen option, or the text if there are no options.",
    )
    values: FormValues | None = Field(
        default=None, description="The whole form, by the names of its fields."
    )


class Deliveries(BaseModel):
    """The deliveries of messages to a chat."""

    deliveries: tuple[DeliveryView, ...] = Field(description="Deliveries, oldest message first.")


class StreamState(BaseModel):
    """The content of a stream, in numbers."""

    name: str = Field(description="Name of the stream.")
    messages: int = Field(description="Number of its messages.")
    size_bytes: int = Field(description="Size of its messages.")
    last_sequence: int = Field(description="Number of its newest message; grows with traffic.")
    oldest_at: datetime | None = Field(default=None, description="When its oldest was stored.")
    newest_at: datetime | None = Field(default=None, description="When its newest was stored.")
    consumers: int = Field(description="Number of its consumers.")


class Overview(BaseModel):
    """The overview for operators."""

    at: datetime = Field(description="When it was read.")
    sessions: SessionCounts = Field(description="Numbers of sessions.")
    streams: list[StreamState] = Field(description="What is in the streams.")
    routers: tuple[UUID, ...] = Field(description="Live routers.")
    partitions: tuple[PartitionState, ...] = Field(
        description="Partitions of the logs, with owner and oldest unread message."
    )
    has_lags: bool = Field(description="Whether the logs could be read; if not, no lag is known.")
    agents: tuple[AgentState, ...] = Field(description="Agents, their live turns and workers.")
    accounts: tuple[AccountState, ...] = Field(description="Accounts and their deliveries.")
    letters: tuple[LetterAge, ...] = Field(description="Dead letters by reason, newest first.")
    outbox_oldest_at: datetime | None = Field(
        default=None, description="Since when the oldest message waits to be published."
    )
    is_complete: bool = Field(
        description="Whether all agents and accounts are listed and all dead letters counted."
    )


class Declarations(BaseModel):
    """The declared platforms and agents, without secrets."""

    at: datetime = Field(description="When a router returned them.")
    platforms: tuple[PlatformDeclaration, ...] = Field(description="Platforms by name.")
    agents: tuple[AgentDeclaration, ...] = Field(description="Agents by name.")
    resets: tuple[ResetRule, ...] = Field(description="Default rules for resets.")
