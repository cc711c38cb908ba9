"""Messages and questions of a running turn before its answer."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.buttons import Button
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.fields import EnvelopeId, Instant, Number, Text
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.sessions import ApiReply

MAX_OPTIONS: Final = 20
LONGEST_QUESTION_MS: Final = 7 * 24 * 3600 * 1000

Options = Annotated[tuple[Button, ...], Field(max_length=MAX_OPTIONS, fail_fast=True)]


class OfAttempt(Envelope):
    """Fields of each request of a running attempt."""

    session_id: UUID = Field(description="Session of the turn.")
    turn_id: UUID = Field(description="The claimed turn.")
    attempt: Number = Field(description="Attempt from the claim reply.")
    token: EnvelopeId = Field(repr=False, description="Token from the claim reply.")


class TurnSay(OfAttempt):
    """Sends a message of a running turn, before its answer; it counts as an answer.

    A request that is repeated with the same id sends it once.
    """

    message: Part = Field(description="The message.")
    key: Text | None = Field(
        default=None,
        description="Name of the message in its turn: another attempt that says the same key sends "
        "nothing.",
    )


class TurnAsk(OfAttempt):
    """Asks the person of a running turn something; `TurnAnswer` returns the answer.

    The answer counts only for this attempt, and the first one counts. A turn has one open question
    at a time.
    """

    message: Part = Field(description="The question.")
    options: Options = Field(
        default=(),
        description="The possible answers, as buttons; a person may also write the number or the label "
        "of one. Without options the next message is the answer.",
    )
    within_ms: Annotated[int, Field(ge=1, le=LONGEST_QUESTION_MS)] = Field(
        description="Time for the answer in milliseconds."
    )
    default: Text | None = Field(
        default=None, description="Answer that counts if there is none in time."
    )


class TurnAnswer(OfAttempt):
    """Asks for the answer to a question of this attempt."""

    question_id: UUID = Field(description="Id of the question, from the reply to `TurnAsk`.")


class QuestionState(StrEnum):
    """State of a question; `over` if its attempt has ended."""

    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    OVER = "over"


class QuestionReply(ApiReply):
    """Reply to `TurnAsk` and `TurnAnswer`."""

    question_id: UUID | None = Field(default=None, description="Id of the question.")
    message_id: UUID | None = Field(
        default=None, description="Id of the `OutboundMessage` that asks."
    )
    state: QuestionState | None = Field(default=None, description="State of the question.")
    answer: Text | None = Field(
        default=None,
        description="The value of the chosen option, the text without options, or the default.",
    )
    due_at: Instant | None = Field(default=None, description="When the default counts.")
