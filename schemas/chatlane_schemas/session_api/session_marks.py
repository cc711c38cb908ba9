"""The marks of sessions in a list: labels, folders, drafts, running turns."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.envelope import Record
from chatlane_schemas.fields import BigNumber, Flag, Instant, Name, Text

MAX_LABELS: Final = 16
MAX_DRAFT_BYTES: Final = 16 * 1024
FIRST_WORDS: Final = 64
"""Most characters of the first words that stand for a missing title."""

SCHEDULED_ORIGIN: Final = "cron"
"""Origin of sessions that scheduled jobs opened."""
SCHEDULED_PROJECT: Final = UUID("00000000-0000-4000-8000-000000000001")
"""Id of the built-in folder: sessions of scheduled jobs that are in no other folder."""

_SOURCE_LABELS: Final = {
    "acp": "Editor",
    "api": "API",
    "chatgpt": "ChatGPT",
    "claude_code": "Claude Code",
    "cli": "CLI",
    "cron": "Scheduled job",
    "open_webui": "Open WebUI",
    "whatsapp": "WhatsApp",
}


def source_label(source: str) -> str:
    """Return the name of a source for people: `telegram` is `Telegram`."""
    return _SOURCE_LABELS.get(source) or source.replace("_", " ").replace("-", " ").title()


def _label(value: str) -> str:
    shown = shown_title(value)
    if not shown:
        raise PydanticCustomError("label", "label has no visible character")
    return shown


def _bounded_draft(value: str) -> str:
    if len(value.encode()) > MAX_DRAFT_BYTES:
        raise PydanticCustomError("draft_size", "draft is too large")
    return value


Label = Annotated[Text, Field(min_length=1, max_length=64), AfterValidator(_label)]
"""A word or some words that a person gives a session; one line."""

DraftText = Annotated[Text, Field(max_length=MAX_DRAFT_BYTES), AfterValidator(_bounded_draft)]
"""At most 16 kB; `""` means none."""


class TitleSource(StrEnum):
    """The source of the shown title of a session."""

    PERSON = "person"
    """A person gave it, in a chat or by a request."""
    MODEL = "model"
    """A model made it."""
    FIRST_WORDS = "first_words"
    """The session has no title: the first words of a person stand for it."""
    NONE = "none"
    """There is neither a title nor a word."""


class Draft(Record):
    """A text that a person has typed in a session and not sent."""

    text: Text = Field(description="The words.")
    changed_at: Instant = Field(description="When they were last changed.")


class WaitingMessages(Record):
    """The messages of a session that no turn has taken yet."""

    count: BigNumber = Field(description="How many, counted up to 100.")
    oldest_at: Instant = Field(description="When the oldest one was stored.")


class LiveTurn(Record):
    """The turn that a session has now."""

    id: UUID = Field(description="Id of the turn.")
    state: Name = Field(
        description="`claimed`: a worker has it. `ready`: a worker may claim it. `resting`: it waits "
        "for a time. `parked`: it waits for the answer to a question. Other values may come.",
    )
    since: Instant = Field(description="When a worker claimed it, or when it was made.")
    attempt: BigNumber = Field(description="Number of the attempt; 0 before the first.")
    has_worker: Flag = Field(default=False, description="Whether a worker has it now.")


class Worktree(Record):
    """A working copy of a repository that was made for a session, on the machine of its worker."""

    path: Annotated[Text, Field(min_length=1, max_length=4096)] = Field(
        description="Directory of the working copy."
    )
    branch: Annotated[Text, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="Its branch."
    )
    repository: Annotated[Text, Field(min_length=1, max_length=4096)] | None = Field(
        default=None, description="Directory of the repository."
    )
    created_at: Instant | None = Field(default=None, description="When it was made.")
