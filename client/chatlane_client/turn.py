"""The input of a turn handler and its possible answers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import ParamSpec, TypeVar
from uuid import UUID

from chatlane_client.api.steps import TurnSteps
from chatlane_client.control import Signals
from chatlane_client.turn_voice import Question, QuestionAnswer, TurnVoice, buttons_of
from chatlane_schemas import (
    Button,
    Interruption,
    ModelOverride,
    Part,
    ResetReason,
    ResumeMark,
    Source,
    TranscriptRow,
    TurnMessage,
    Undelivered,
)
from chatlane_schemas.content.editor_calls import EditorCall
from chatlane_schemas.content.front_end import FrontEnd, FrontEndCall
from chatlane_schemas.content.prompts import prompt_of
from chatlane_schemas.content.questions import FormField, QuestionKind
from chatlane_schemas.live_turns import LivePiece, PieceKind
from chatlane_schemas.session_api.transcripts import TranscriptEntry
from chatlane_schemas.turns import CancelReason

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


async def _show_nothing(_: LivePiece) -> None:
    pass


async def _nothing() -> tuple[TurnMessage, ...]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One unit of work: the messages since the last answer, in order.

    Attributes:
        attempt: 1 at first. Earlier attempts may have called tools; check before a
            tool repeats an action.
        source: Where the answer goes.
        prompt_context: Description of the chat for the system prompt. It is the same from turn
            to turn, so that a prompt cache stays valid. None if the agent has it off.
        reset_reason: Rule that ended the session before, on the first turn of a new session.
        reset_had_activity: Whether the session before had any answer.
        opening_note: Note that the session before left for this one.
        interruption: How many earlier attempts at this turn were lost, and when the last was.
        model_override: Model that is to answer instead of the agent's default.
        resume_pending: The session was marked as interrupted, and no turn was complete since.
        undelivered: Messages of this session that were given up since its last turn: the person
            did not get them.
        earlier_rows: Rows that earlier attempts at this turn left in the transcript, such as tool
            calls and their results. They are not part of `history`.
        signals: Control state of the turn; use `cancel_reason`.
        take_in: Takes in new messages; use `steered`.
        load_history: Loads the newest rows before the turn; use `history`.
        publish_delta: Streams text to readers of an earlier release; use `delta`.
        publish_piece: Shows something while the turn runs; use `show`.
        voice: Sends messages and questions; use `say` and `ask`.
        steps: Runs steps and keeps their results; use `step`.
    """

    id: UUID
    session_id: UUID
    session_key: str
    agent: str
    attempt: int
    source: Source
    messages: tuple[TurnMessage, ...]
    prompt_context: str | None = None
    session_is_new: bool = False
    reset_reason: ResetReason | None = None
    reset_had_activity: bool = False
    opening_note: str | None = None
    interruption: Interruption | None = None
    model_override: ModelOverride | None = None
    resume_pending: ResumeMark | None = None
    undelivered: tuple[Undelivered, ...] = ()
    earlier_rows: tuple[TranscriptRow, ...] = ()
    signals: Signals = field(default_factory=Signals, repr=False)
    take_in: Callable[[], Awaitable[tuple[TurnMessage, ...]]] = field(default=_nothing, repr=False)
    load_history: Callable[[int], Awaitable[tuple[TranscriptEntry, ...]]] = field(repr=False)
    publish_delta: Callable[[str], Awaitable[None]] = field(repr=False)
    publish_piece: Callable[[LivePiece], Awaitable[None]] = field(default=_show_nothing, repr=False)
    voice: TurnVoice | None = field(default=None, repr=False)
    steps: TurnSteps | None = field(default=None, repr=False)

    @property
    def text(self) -> str:
        """Text of all messages, one message a line."""
        return "\n".join(message.text for message in self.messages if message.text)

    @property
    def prompt(self) -> str:
        """Text for a model: each message after a header with its sender, its reply and its files.

        The context of the front end follows, each line of it indented.
        """
        return prompt_of(self.messages)

    @property
    def front_end(self) -> FrontEnd | None:
        """Tools, context and state of the front end, from the newest message that has any."""
        given = [it.front_end for it in self.messages if it.front_end is not None]
        return given[-1] if given else None

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Reason to end the turn before its answer; None while it may go on."""
        return self.signals.cancel_reason

    @property
    def is_stopping(self) -> bool:
        """True if the worker hands the turn back because it stops."""
        return self.signals.is_stopping

    async def steered(self) -> AsyncIterator[TurnMessage]:
        """Yield the messages that arrive for this turn while it runs.

        For agents, chats and commands whose busy mode is `steer`. This turn answers every message
        that was yielded; the next turn answers the others. The iteration continues until the
        handler leaves it.
        """
        while True:
            await self.signals.has_news.wait()
            for message in await self.take_in():
                yield message

    async def take_steered(self) -> tuple[TurnMessage, ...]:
        """Return the new messages without waiting for more; a single step of `steered`."""
        return await self.take_in() if self.signals.has_news.is_set() else ()

    async def history(self, limit: int = 100) -> tuple[TranscriptEntry, ...]:
        """Return the newest rows of the transcript before this turn, oldest first.

        A row with `unanswered` is a message that will not be answered. An interrupted tool call has
        a placeholder (`is_placeholder`) for its result.
        """
        return await self.load_history(limit)

    async def delta(self, text: str) -> None:
        """Show the next part of the answer to readers; it is not stored and may get lost."""
        await self.publish_delta(text)
        await self.show(LivePiece(kind=PieceKind.TEXT, text=text))

    async def step(
        self,
        name: str,
        function: Callable[_Params, Awaitable[_Result]],
        *args: _Params.args,
        **kwargs: _Params.kwargs,
    ) -> _Result:
        """Run a function once in all attempts of the turn, and return its result.

        The result is kept until the turn ends. A later attempt gets it without running the function.
        If the worker is killed while the function runs, or before its result is kept, the next
        attempt runs it again: an effect elsewhere needs a key, such as turn id and name.

        Args:
            name: Name of the step in its turn, of at most 256 characters. An edit of a message does
                not change what is kept, so name what the result depends on.
            function: The step. A failure is not kept.
            args: Its arguments.
            kwargs: Its arguments.

        Returns:
            The result, which has to be JSON: what a JSON text of it reads as.

        Raises:
            StepError: Another step of the attempt has this name, or the result is no JSON or has
                more than 120 KiB, or the results of the turn are more than 256 or 4 MiB.
            ConflictingRequestError: This attempt does not run any more.
        """
        if self.steps is None:
            # A turn that a test of the handler has made.
            return await function(*args, **kwargs)
        return await self.steps.run(name, function, *args, **kwargs)

    async def say(self, message: str | Part, *, key: str | None = None) -> UUID:
        """Send a message before the answer, and return its id; it counts as an answer.

        Args:
            message: The message.
            key: Name of the message in its turn: another attempt that says the same key sends
                nothing.

        Raises:
            ConflictingRequestError: The turn is to end, or has ended.
        """
        return await self._voice().say(message, key)

    async def ask(
        self,
        message: str | Part,
        options: Sequence[str | Button] = (),
        *,
        within: timedelta,
        default: str | None = None,
        kind: QuestionKind | None = None,
    ) -> QuestionAnswer:
        """Ask the person something and wait for the answer.

        The turn goes on meanwhile: its lease is renewed, and `/stop` cancels the handler.

        Args:
            message: The question.
            options: The possible answers, as buttons; without any, the next message is the answer.
            within: Time for the answer, at most 7 days.
            default: Answer that counts if there is none in time.
            kind: `permission` if the options say whether something may be done; editors show that
                in another way than a choice.

        Raises:
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
        """
        buttons = buttons_of(options)
        question = Question(message, within, options=buttons, kind=kind, default=default)
        return await self._voice().ask(question)

    async def ask_form(
        self, message: str | Part, fields: Sequence[FormField], *, within: timedelta
    ) -> QuestionAnswer:
        """Ask the person for several values and wait until all are there, as `ask` does.

        A chat is asked for one field after the other; front ends and editors show the whole form.

        Args:
            message: What the form is for.
            fields: The fields, at most 20.
            within: Time for the whole form, at most 7 days. Without an answer in time the defaults
                of the fields are its values.

        Raises:
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
            RefusedRequestError: The fields contradict each other.
        """
        return await self._voice().ask(Question(message, within, fields=tuple(fields)))

    async def call_editor(
        self, call: EditorCall, message: str, *, within: timedelta
    ) -> QuestionAnswer:
        """Let the editor of the person do something, and return its result; see `EditorTools`.

        Args:
            call: What it is to do.
            message: The same in words.
            within: Time for the result, at most 7 days.

        Raises:
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
        """
        return await self._voice().ask(Question(message, within, call=call))

    async def call_front_end(self, call: FrontEndCall, *, within: timedelta) -> QuestionAnswer:
        """Let the front end of the person run a tool, and return its result; see `FrontEndTools`.

        Calls that are made at the same time wait for each other.

        Args:
            call: The call. The result of one that an earlier attempt has made is there already.
            within: Time for the result, at most 7 days.

        Raises:
            ConflictingRequestError: The turn has an open question, is to end, or has ended.
            QuestionWithdrawnError: A person changed a message of the turn meanwhile.
            RefusedRequestError: The router is too old for such calls.
        """
        async with self.signals.calling:
            if not call.is_state and (known := await self.answer(call.id)) is not None:
                return known
            words = "Take the new state" if call.is_state else f"Run {call.name}"
            asked = Question(words, within, kind=QuestionKind.CALL, front_end_call=call)
            return await self._voice().ask(asked)

    async def answer(self, name: str = "answer") -> QuestionAnswer | None:
        """Return the answer to the question of this name that an earlier attempt has returned.

        Returns:
            The answer, the default if its `until` is over, or None if it was not asked, or is to be
            asked again because a message of the turn was edited.

        Raises:
            ConflictingRequestError: This attempt does not run any more.
        """
        return None if self.steps is None else await self.steps.answer(name)

    def _voice(self) -> TurnVoice:
        if self.voice is None:
            raise RuntimeError("this turn has no connection")
        return self.voice

    async def show(self, piece: LivePiece) -> None:
        """Show a thought, tool call, plan or progress note to readers, as `delta` does with text."""
        await self.publish_piece(piece)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of one or several messages, and its rows of the transcript.

    Attributes:
        parts: Messages to the chat, in order.
        transcript: Rows to add, with tool calls and their results; without
            any, every part becomes a row of the assistant.
        usage: Named counts, such as tokens; the session has their sums.
        costs: Named amounts with fractions, such as `{"cost_usd": Decimal("0.0042")}`; the
            session has their exact sums.
        gauges: Named values of which the session has the latest, such as `context_tokens`,
            `context_limit` and `last_prompt_tokens`.
        carry_over: Note for the next session, at most 8,000 characters; `""` removes the
            earlier note.
    """

    parts: Sequence[str | Part]
    transcript: Sequence[TranscriptRow] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, Decimal] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    carry_over: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    """The turn is complete without a message to the chat."""

    transcript: Sequence[TranscriptRow] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    costs: Mapping[str, Decimal] = field(default_factory=dict)
    gauges: Mapping[str, int] = field(default_factory=dict)
    carry_over: str | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """The turn asks the person something, and waits for the answer without a worker.

    The answer, the deadline, or an edit of a message of the turn begins another attempt, which gets
    the answer from `Turn.answer`.

    Attributes:
        message: The question.
        options: The possible answers, as buttons; without any, the next message is the answer.
        until: The deadline, with a time zone, at most 90 days from now.
        name: Name of the question in its turn. The last answer of a name counts.
        default: Answer that counts if there is none in time.
        fields: Fields of a form, instead of options; their defaults count if there is no answer.
        kind: `permission` if the options say whether something may be done.
    """

    message: str | Part
    options: Sequence[str | Button] = ()
    _: KW_ONLY
    until: datetime
    name: str = "answer"
    default: str | None = None
    fields: Sequence[FormField] = ()
    kind: QuestionKind | None = None


Answer = str | Reply | NoReply | Ask
Handler = Callable[[Turn], Awaitable[Answer]]
"""Answers a turn.

If the handler raises, the router retries the turn, up to the number of attempts that its agent
allows.

The worker cancels the handler when the lease is lost, and when the turn is to end before its answer
because of a stop request or a newer message. In the second case `cancel_reason` says why, and the
handler may catch the cancellation and return what it has. If it lets the cancellation through, the
turn has no answer. A handler is also cancelled when its worker was told to stop and the turn takes
longer than `hand_back_after` (`is_stopping`). The turn is handed back then: the attempt does not
count, and rows in the `transcript` of a returned answer go to the next attempt. The handler may take the `wind_down` of its worker for that, by default 20 s,
and is cancelled again after it. The worker does not renew the lease of a turn that is to end
(`lease` of the agent, by default 30 s): an answer that the handler returns after the lease has
ended is lost.
"""
