"""Messages, questions and steps of a running turn before its answer."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import Field

from chatlane_schemas.content.buttons import TextFormat
from chatlane_schemas.content.editor_calls import EditorCall
from chatlane_schemas.content.front_end import FrontEndCall
from chatlane_schemas.content.questions import (
    FormFields,
    FormValues,
    Options,
    QuestionKind,
    QuestionState,
)
from chatlane_schemas.envelope import Envelope, Record
from chatlane_schemas.fields import EnvelopeId, Flag, Instant, Name, Number, Text, is_left_out
from chatlane_schemas.results import Part
from chatlane_schemas.session_api.people import PersonRequest
from chatlane_schemas.session_api.sessions import ApiReply

LONGEST_QUESTION_MS: Final = 7 * 24 * 3600 * 1000
LONGEST_PARKED_MS: Final = 90 * 24 * 3600 * 1000
LONGEST_STEP_NAME: Final = 256
# A message has at most 256 KiB, and JSON in a JSON text is up to twice as long.
LARGEST_STEP: Final = 120 * 1024
MOST_STEPS: Final = 256
LARGEST_STEPS: Final = 4 * 1024 * 1024
# An answer is kept as a step with this before the name of its question.
ANSWER_PREFIX: Final = "ask:"

StepName = Annotated[Text, Field(min_length=1, max_length=LONGEST_STEP_NAME)]
QuestionName = Annotated[
    Text, Field(min_length=1, max_length=LONGEST_STEP_NAME - len(ANSWER_PREFIX))
]


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

    With `park_as` the attempt ends with the question, and its turn waits without a worker. The
    answer, the end of the time, or a change of its messages begins another attempt, which gets the
    answer by `TurnStep`.
    """

    message: Part = Field(description="The question; of a call, what is to be done in words.")
    kind: QuestionKind | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="What is asked; without it a `call` if there is one, a `form` if there are fields, "
        "a `choice` if there are options, else a `text`.",
    )
    options: Options = Field(
        default=(),
        description="The possible answers, as buttons; a person may also write the number or the label "
        "of one. Without options the next message is the answer.",
    )
    fields: FormFields = Field(
        default=(),
        exclude_if=is_left_out,
        description="The fields of a form; a chat is asked for one after the other.",
    )
    within_ms: Annotated[int, Field(ge=1, le=LONGEST_PARKED_MS)] = Field(
        description="Time for the answer in milliseconds, at most 7 days; with `park_as` 90 days."
    )
    default: Text | None = Field(
        default=None,
        description="Answer that counts if there is none in time; a form has the defaults of its "
        "fields instead.",
    )
    park_as: QuestionName | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="Name of the question in its turn; the turn is parked until its answer.",
    )
    call: EditorCall | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="What the editor is to do. A call is not parked.",
    )
    front_end_call: FrontEndCall | None = Field(
        default=None,
        exclude_if=is_left_out,
        description="The tool that the front end is to run, instead of `call`. Its result is the "
        "result of the step `ask:` and the id of the call.",
    )


class TurnAnswer(OfAttempt):
    """Asks for the answer to a question of this attempt."""

    question_id: UUID = Field(description="Id of the question, from the reply to `TurnAsk`.")


class TurnStep(OfAttempt):
    """Asks for the result of a step that an attempt at this turn has kept.

    The answer to a parked question is the result of the step `ask:` and its name: an object with
    `value` or, of a form, `values`, and `is_default`.
    """

    name: StepName = Field(description="Name of the step in its turn.")


class TurnKeep(OfAttempt):
    """Keeps the result of a step, so that a later attempt at the turn does not run it again.

    The first result of a name stays, so a repeated request changes nothing. Only the current attempt
    keeps results. The service deletes them when the turn ends.
    """

    name: StepName = Field(description="Name of the step in its turn.")
    result: Annotated[Text, Field(max_length=LARGEST_STEP)] = Field(
        repr=False,
        description="The result as JSON text; the service does not read it. Escape what is not ASCII.",
    )


class StepReply(ApiReply):
    """Reply to `TurnStep` and `TurnKeep`.

    A request is refused as `conflict` if the attempt does not run any more, and as `invalid` if the
    results of the turn would be too many. A turn that is to end keeps no result.
    """

    result: Text | None = Field(
        default=None,
        repr=False,
        description="The result that is kept, as JSON text; none if there is none.",
    )


class QuestionReply(ApiReply):
    """Reply to `TurnAsk`, `TurnAnswer` and `TurnReply`."""

    question_id: UUID | None = Field(default=None, description="Id of the question.")
    message_id: UUID | None = Field(
        default=None, description="Id of the `OutboundMessage` that asks."
    )
    state: QuestionState | None = Field(default=None, description="State of the question.")
    answer: Text | None = Field(
        default=None,
        description="The value of the chosen option, the text without options, or the default; of a "
        "call an `EditorResult` as JSON text, or the result of the front end's tool.",
    )
    values: FormValues | None = Field(
        default=None, description="The values of a form by the names of its fields."
    )
    due_at: Instant | None = Field(default=None, description="When the default counts.")
    parked: Flag = Field(
        default=False,
        description="Whether the attempt has ended and the turn waits for the answer without a "
        "worker. A router of an earlier release does not park turns.",
    )


class TurnQuestion(PersonRequest):
    """Asks for the open question of the running or parked turn of a session."""

    session_id: UUID = Field(description="The session.")
    calls: Flag = Field(
        default=False, description="Whether to return a `call` as well: the caller is an editor."
    )
    front_end_calls: Flag = Field(
        default=False,
        description="Whether to return a `front_end_call` as well: the caller runs its tool.",
    )


class OpenQuestionView(Record):
    """A question that waits for its answer."""

    question_id: UUID = Field(description="Id of the question.")
    turn_id: UUID = Field(description="The turn that asks.")
    attempt: Number = Field(description="The attempt that asks.")
    agent: Name = Field(description="Agent of the turn.")
    kind: QuestionKind = Field(description="What is asked.")
    message_id: UUID = Field(
        description="Id of the newest `OutboundMessage` that asks; of a call, there is none."
    )
    text: Text | None = Field(default=None, description="The question.")
    format: TextFormat | None = Field(
        default=None, description="Format in which the text is written; plain if missing."
    )
    options: Options = Field(
        default=(), description="The possible answers; reply with the value of one."
    )
    fields: FormFields = Field(default=(), description="The fields of a form.")
    values: FormValues = Field(
        default={}, description="What a chat has filled in of a form so far, by field."
    )
    default: Text | None = Field(
        default=None, description="Answer that counts if there is none in time."
    )
    due_at: Instant = Field(description="When the default counts.")
    call: EditorCall | None = Field(default=None, description="What the editor is to do.")
    front_end_call: FrontEndCall | None = Field(
        default=None, description="The tool that the front end is to run."
    )


class QuestionViewReply(ApiReply):
    """Reply to `TurnQuestion`."""

    question: OpenQuestionView | None = Field(
        default=None, description="The open question; none if the session has none."
    )


class TurnReply(PersonRequest):
    """Answers the open question of a running or parked turn; the first answer counts, as in a chat.

    A request that is repeated with the same id answers once. It is refused as `conflict` if the
    question is not open: it has an answer, its time is over, or its attempt has ended.
    """

    session_id: UUID = Field(description="Session of the turn.")
    question_id: UUID = Field(description="Id of the question.")
    value: Text | None = Field(
        default=None,
        description="The value of the chosen option, the text if there are no options, or of a call "
        "an `EditorResult` as JSON text, or the result of the front end's tool.",
    )
    values: FormValues | None = Field(
        default=None,
        description="The whole form by the names of its fields. A field that may be left out gets "
        "its default.",
    )
