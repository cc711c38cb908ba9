"""Send messages and questions of a running turn before its answer."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from chatlane_client.api.requests import Requests
from chatlane_client.claims import Grant
from chatlane_client.control import Signals
from chatlane_client.errors import InvalidAnswerError, QuestionWithdrawnError
from chatlane_schemas import Button, Part
from chatlane_schemas.content.editor_calls import EditorCall
from chatlane_schemas.content.front_end import FrontEndCall
from chatlane_schemas.content.questions import FieldValue, FormField, QuestionKind, QuestionState
from chatlane_schemas.questions import QuestionReply, TurnAnswer, TurnAsk, TurnSay
from chatlane_schemas.session_api.outbox import OutboxReply

# A control message that says that there is an answer may get lost.
_LOOK_EVERY: Final = timedelta(seconds=2)


class QuestionAnswer(NamedTuple):
    """The answer to a question.

    Attributes:
        value: Value of the chosen option, the text without options, or the default; None for a form.
        is_default: Whether no answer came in time.
        values: The values of a form by the names of its fields; a field that was left out and has
            no default is missing. None without a form.
    """

    value: str | None
    is_default: bool
    values: Mapping[str, FieldValue] | None = None


class Question(NamedTuple):
    """A question of a turn.

    Attributes:
        options: The possible answers.
        fields: The fields of a form.
        kind: None derives it from options and fields.
        default: Answer that counts if there is none in time.
        call: What the editor of the person is to do.
        front_end_call: The tool that the front end of the person is to run.
    """

    message: str | Part
    within: timedelta
    options: tuple[Button, ...] = ()
    fields: tuple[FormField, ...] = ()
    kind: QuestionKind | None = None
    default: str | None = None
    call: EditorCall | None = None
    front_end_call: FrontEndCall | None = None


class TurnVoice:
    """Speaks for one attempt at a turn."""

    def __init__(self, requests: Requests, grant: Grant, signals: Signals) -> None:
        self._requests = requests
        self._grant = grant
        self._signals = signals

    async def say(self, message: str | Part, key: str | None) -> UUID:
        """Send a message once and return its id."""
        request = TurnSay(**self._grant.stamp(), message=_part(message), key=key)
        reply = await self._requests.ask("turn", "say", request, OutboxReply)
        if reply.message_id is None:
            raise InvalidAnswerError(self._requests.subject("turn", "say"), "no message")
        return reply.message_id

    async def ask(self, question: Question) -> QuestionAnswer:
        """Ask a question, and return its answer or the default.

        Raises:
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
        """
        reply = await self._ask(question)
        if reply.question_id is None or reply.due_at is None:
            raise InvalidAnswerError(self._requests.subject("turn", "ask"), "no question")
        return await self._answer_to(reply.question_id, reply.due_at)

    async def park(self, question: Question, name: str) -> bool:
        """End the attempt with a question; return False if the router is too old to park turns.

        Raises:
            ConflictingRequestError: The turn is to end, or has ended.
        """
        return (await self._ask(question, park_as=name)).parked

    async def _ask(self, question: Question, park_as: str | None = None) -> QuestionReply:
        request = TurnAsk(
            **self._grant.stamp(),
            message=_part(question.message),
            kind=question.kind,
            options=question.options,
            fields=question.fields,
            default=question.default,
            within_ms=max(1, int(question.within.total_seconds() * 1000)),
            park_as=park_as,
            call=question.call,
            front_end_call=question.front_end_call,
        )
        return await self._requests.ask("turn", "ask", request, QuestionReply)

    async def _answer_to(self, question_id: UUID, due_at: datetime) -> QuestionAnswer:
        while True:
            self._signals.has_answer.clear()
            request = TurnAnswer(**self._grant.stamp(), question_id=question_id)
            reply = await self._requests.ask("turn", "answer", request, QuestionReply)
            if reply.state in {QuestionState.ANSWERED, QuestionState.EXPIRED}:
                is_default = reply.state is QuestionState.EXPIRED
                return QuestionAnswer(reply.answer, is_default, reply.values)
            if reply.state is QuestionState.WITHDRAWN:
                raise QuestionWithdrawnError
            # An attempt that is over is cancelled here when its lease ends.
            left = due_at - datetime.now(UTC)
            pause = min(_LOOK_EVERY, max(left, timedelta(milliseconds=50)))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._signals.has_answer.wait(), pause.total_seconds())


def buttons_of(options: Sequence[str | Button]) -> tuple[Button, ...]:
    """Return options as buttons; a text is the label and the value."""
    return tuple(Button(label=option) if isinstance(option, str) else option for option in options)


def _part(message: str | Part) -> Part:
    return Part(text=message) if isinstance(message, str) else message
