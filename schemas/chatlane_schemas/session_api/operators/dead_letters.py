"""Requests by which operators look at dead letters, retry and drop them."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.dead import Cause, Stage
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, Number, PlatformName, Text
from chatlane_schemas.session_api.people import OperatorRequest
from chatlane_schemas.session_api.sessions import ApiReply, Cursor, PageLimit

MAX_LETTER_IDS: Final = 100

LetterIds = Annotated[tuple[UUID, ...], Field(max_length=MAX_LETTER_IDS)]


class LetterFilter(OperatorRequest):
    """Selects dead letters: those that match all given fields."""

    reason: Name | None = Field(default=None, description="Only with this reason.")
    cause: Cause | None = Field(default=None, description="Only those that this party acts on.")
    stage: Stage | None = Field(default=None, description="Only of this stage.")
    platform: PlatformName | None = Field(default=None, description="Only of this platform.")
    account: Name | None = Field(
        default=None, description="Only of accounts with this name, of any platform."
    )
    session_id: UUID | None = Field(default=None, description="Only of this session.")
    before: Instant | None = Field(
        default=None, description="Only those that were set aside before this time."
    )


class LetterList(LetterFilter):
    """Lists dead letters without their bodies, those first that were set aside last.

    A page may be shorter than its limit, or empty, while more pages follow: there is a next page if
    and only if the reply has a `next_cursor`.
    """

    letter_ids: LetterIds = Field(
        default=(), description="Only these; the reply has them on one page, oldest message first."
    )
    oldest_first: Flag = Field(
        default=False, description="Whether those come first that were set aside first."
    )
    limit: PageLimit = Field(default=50, description="Maximum number of dead letters.")
    cursor: Cursor | None = Field(default=None, description="`next_cursor` of the previous page.")


class LetterCount(LetterFilter):
    """Counts dead letters by reason and account."""


class LetterGet(OperatorRequest):
    """Gets a dead letter with its body; the audit names it."""

    letter_id: UUID = Field(description="Id of the dead letter.")


class LetterRetry(OperatorRequest):
    """Retries a dead letter, which is deleted.

    A failed turn goes to the workers again, a message of a router to its stream. The message of a
    log is published by the operator, because routers may not write to the logs: `LetterGet`
    returns where to. This request then deletes the dead letter.
    """

    letter_id: UUID = Field(description="Id of the dead letter.")
    is_published: Flag = Field(
        default=False, description="Whether the operator has published its message on its log."
    )


class LetterDrop(OperatorRequest):
    """Deletes a dead letter with its body."""

    letter_id: UUID = Field(description="Id of the dead letter.")


class LetterView(Record):
    """A dead letter as operators see it in lists."""

    id: UUID = Field(description="Id of the dead letter.")
    at: Instant = Field(description="When it was set aside.")
    stored_at: Instant | None = Field(
        default=None, description="When a log stored the message, or when its turn ended."
    )
    stage: Text = Field(description="Stage that rejected the message.")
    reason: Text = Field(description="Why it was rejected.")
    cause: Cause = Field(description="Who has to act.")
    log: Text | None = Field(default=None, description="Log of the message.")
    partition: Number | None = Field(default=None, description="Partition of that log.")
    sequence: BigNumber | None = Field(default=None, description="Position in that log.")
    platform: Text | None = Field(default=None, description="Platform that it is of.")
    account: Text | None = Field(default=None, description="Account that it is of.")
    session_id: UUID | None = Field(default=None, description="Session that it is of.")
    size_bytes: BigNumber = Field(description="Size of the body.")
    detail: Text | None = Field(
        default=None, description="Field and kind of the error; no content."
    )
    is_retriable: Flag = Field(
        default=False,
        description="Whether a retry can succeed at all; the state of its conversation may still "
        "be against it.",
    )


class LetterListReply(ApiReply):
    """Reply with a page of dead letters."""

    letters: tuple[LetterView, ...] = Field(default=(), description="Dead letters.")
    next_cursor: Cursor | None = Field(
        default=None, description="Cursor of the next page; none on the last page."
    )


class LetterGroup(Record):
    """The number of dead letters with a reason and of an account."""

    reason: Text = Field(description="Why they were rejected.")
    cause: Cause = Field(description="Who has to act.")
    platform: Text | None = Field(default=None, description="Platform that they are of.")
    account: Text | None = Field(default=None, description="Account that they are of.")
    letters: BigNumber = Field(description="How many there are.")
    oldest_at: Instant = Field(description="When the oldest was set aside.")
    newest_at: Instant | None = Field(
        default=None, description="When the newest was set aside; none from older routers."
    )


class LetterCountReply(ApiReply):
    """Reply with numbers of dead letters."""

    letters: BigNumber = Field(default=0, description="How many match.")
    conversations: BigNumber = Field(
        default=0, description="How many chats and sessions they are of."
    )
    is_complete: Flag = Field(
        default=True, description="Whether all were counted; if not, there are more."
    )
    groups: tuple[LetterGroup, ...] = Field(
        default=(), description="The largest groups first, at most 200."
    )


class LetterText(Record):
    """A text of a person that a dead letter is about."""

    author: Text | None = Field(default=None, description="Name or id of the author.")
    text: Text = Field(description="The text.")


class LetterReply(ApiReply):
    """Reply with a dead letter and its content."""

    letter: LetterView | None = Field(default=None, description="The dead letter.")
    subject: Text | None = Field(default=None, description="Subject of the message.")
    digest: Text | None = Field(default=None, description="SHA-256 of the body, in hex.")
    body_base64: str | None = Field(
        default=None,
        max_length=512 * 1024,
        description="The body in base64; none if it is gone, or over 360 kB.",
    )
    texts: tuple[LetterText, ...] = Field(
        default=(), description="What people wrote in a failed turn."
    )
    first_texts: tuple[Text, ...] = Field(
        default=(), description="Present text of the first message with the same id."
    )
    obstacle: Text | None = Field(default=None, description="Why it cannot be retried now.")
    publish_to: Text | None = Field(
        default=None, description="Subject on which the operator publishes the body to retry it."
    )
    publish_id: Text | None = Field(
        default=None, description="`Nats-Msg-Id` of that message, the same for every attempt."
    )
