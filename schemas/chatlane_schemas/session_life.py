"""Requests about the life of a session: what ends it, what keeps it, what it carries on.

Made once each, as all changes of sessions.
"""

from typing import Annotated, Final
from uuid import UUID

from pydantic import AfterValidator, Field

from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import BigNumber, Instant, Name
from chatlane_schemas.people import Person
from chatlane_schemas.session_changes import SessionChange, SettingChange
from chatlane_schemas.session_state import ModelOverride, Note, without_credential
from chatlane_schemas.sessions import ApiReply

MAX_HOLD_SECONDS: Final = 24 * 60 * 60


def _without_credentials(override: ModelOverride) -> ModelOverride:
    # Here and not in the fields: what an earlier release stored has to be read.
    for value in (override.model, override.provider, override.base_url):
        if value is not None:
            without_credential(value)
    return override


HoldName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,128}$")]
"""What holds a session, by a name of its own choice."""


class SessionSuspend(SessionChange):
    """Gives a session up: whatever keeps it, the next message opens another one."""


class SessionMark(SessionChange):
    """Marks a session as interrupted: no rule ends it for a while, and its agent is told.

    A complete result takes the mark away. Marked again: counts from now.
    """

    reason: Name = Field(default="interrupted", description="What interrupted it.")


class SessionUnmark(SessionChange):
    """Takes the mark of an interruption away."""


class SessionHold(SessionChange):
    """Keeps a session from being reset by time or pruned while background work needs it.

    The same name again renews the hold.
    """

    name: HoldName = Field(description="What holds it.")
    lasts_s: Annotated[int, Field(strict=True, ge=1, le=MAX_HOLD_SECONDS)] = Field(
        description="Seconds from now until the hold ends by itself; at most a day.",
    )


class SessionRelease(SessionChange):
    """Ends a hold, if there is one of this name."""

    name: HoldName = Field(description="What held it.")


class SessionOverride(SettingChange):
    """Sets which model answers in a session, as a whole; none takes it back."""

    override: Annotated[ModelOverride, AfterValidator(_without_credentials)] | None = Field(
        default=None, description="The model; none clears it."
    )


class SessionNote(SettingChange):
    """Leaves a note for the session that will follow, which is told it once.

    Also after the end, while no other session has followed.
    """

    note: Note = Field(description="The note; none takes it away.")


class SessionRounds(Envelope):
    """Asks how many rounds a conversation has had: something was said, and answered."""

    session_id: UUID = Field(description="Session to count in.")
    since: Instant | None = Field(default=None, description="Only rows later than this.")
    acting_for: Person | None = Field(
        default=None,
        description="Who asks; the sessions of others are not found.",
    )


class SessionRoundsReply(ApiReply):
    """Answer to `SessionRounds`."""

    rounds: BigNumber | None = Field(
        default=None, description="Complete rounds; several messages before an answer are one."
    )
