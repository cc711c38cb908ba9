"""Requests about the life of a session: resets, holds, interruptions and notes.

Each change is made once, as all changes of sessions.
"""

from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field

from chatlane_schemas.fields import BigNumber, Instant, Name, Text
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.people import OperatorRequest, PersonRequest
from chatlane_schemas.session_api.session_changes import SessionChange, SettingChange
from chatlane_schemas.session_api.session_state import ModelOverride, Note, without_credential
from chatlane_schemas.session_api.sessions import ApiReply

MAX_HOLD_SECONDS: Final = 24 * 60 * 60


def _without_credentials(override: ModelOverride) -> ModelOverride:
    # Checked here and not in the fields, because values that an earlier release stored must stay
    # readable.
    for value in (override.model, override.provider, override.base_url):
        if value is not None:
            without_credential(value)
    return override


HoldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
"""Name of a hold; its holder chooses it."""


class SessionSuspend(SessionChange):
    """Suspends a session: the next message opens another session, in spite of holds and marks."""


class SessionMark(SessionChange):
    """Marks a session as interrupted: no rule ends it for a while, and its agent learns of it.

    A complete result removes the mark. Marking it again restarts the period.
    """

    reason: Name = Field(default="interrupted", description="Cause of the interruption.")


class SessionUnmark(SessionChange):
    """Removes the interruption mark of a session."""


class SessionHold(SessionChange):
    """Protects a session from timed resets and pruning while background work needs it.

    A hold with the same name renews the earlier hold.
    """

    name: HoldName = Field(description="Name of the hold.")
    lasts_s: Annotated[int, Field(strict=True, ge=1, le=MAX_HOLD_SECONDS)] = Field(
        description="Seconds from now until the hold ends automatically; at most a day.",
    )


class SessionRelease(SessionChange):
    """Ends the hold with this name, if there is one."""

    name: HoldName = Field(description="Name of the hold.")


class SessionOverride(SettingChange):
    """Sets the complete model override of a session; None removes it."""

    override: Annotated[ModelOverride, AfterValidator(_without_credentials)] | None = Field(
        default=None, description="The model override; null removes it."
    )


class SessionNote(SettingChange):
    """Leaves a note for the next session, whose agent receives it once.

    Also allowed after the end of the session, until another session follows.
    """

    note: Note = Field(description='The note; `""` removes it.')


class SessionRounds(PersonRequest):
    """Counts the rounds of a conversation: a message and its answer make one round."""

    session_id: UUID = Field(description="Session whose rounds are counted.")
    since: Instant | None = Field(default=None, description="Only rows later than this time.")


class SessionRoundsReply(ApiReply):
    """Reply to `SessionRounds`."""

    rounds: BigNumber | None = Field(
        default=None,
        description="Complete rounds; several messages before an answer are one round.",
    )


class SessionTakeover(OperatorRequest):
    """Lets the agent of a session wait while a person of the team talks to the chat.

    Messages of the chat wait, and no turn begins; one that runs goes on. No rule ends the session
    meanwhile. It ends by itself; a repetition sets a new end. A `stream` agent is only informed, by
    `staff_until` of its messages.
    """

    session_id: UUID = Field(description="Session to take over.")
    lasts_s: Annotated[int, Field(strict=True, ge=1, le=MAX_HOLD_SECONDS)] = Field(
        default=3600, description="Seconds from now until the agent goes on; at most a day."
    )


class SessionSpeak(OperatorRequest):
    """Sends a message of a person of the team to the chat of a session that was taken over.

    It is a row of the assistant with an author, which the agent sees in the history. Messages that
    waited become rows before it, and the agent does not answer them.
    """

    session_id: UUID = Field(description="Session that was taken over.")
    author: Annotated[Text, Field(min_length=1, max_length=200)] = Field(
        description="Name of the person who writes; the chat does not show it."
    )
    message: Part = Field(description="The message.")


class SessionHandback(OperatorRequest):
    """Ends a takeover: the agent goes on at once, with the messages that wait."""

    session_id: UUID = Field(description="Session that was taken over.")
