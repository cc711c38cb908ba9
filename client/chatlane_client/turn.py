"""What a turn handler gets and what it may answer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from chatlane_client.control import Signals
from chatlane_schemas import (
    Interruption,
    ModelOverride,
    Part,
    ResetReason,
    ResumeMark,
    Source,
    TranscriptRow,
    TurnMessage,
)
from chatlane_schemas.transcripts import TranscriptEntry, Unanswered
from chatlane_schemas.turns import CancelReason


async def _nothing() -> tuple[TurnMessage, ...]:
    return ()


_UNANSWERED: Final = {
    Unanswered.FAILED: "the attempt failed",
    Unanswered.INTERRUPTED: "a newer message took its place",
    Unanswered.STOPPED: "it was stopped",
    Unanswered.SESSION_ENDED: "its conversation was ended",
}


def prompt_of(messages: Iterable[TurnMessage | TranscriptEntry]) -> str:
    """Return what was said as a model may be given it.

    Each message comes after its sender where that is told. A row of a transcript that was not
    answered says so, so that a model does not take it for a question that is still open. Then
    further lines of the message itself are indented, so that none of them passes for such a
    line, or for what another sender says.
    """
    return "\n".join(text for message in messages if (text := _prompt_line(message)))


def _prompt_line(message: TurnMessage | TranscriptEntry) -> str:
    text = _text_of(message)
    if not text:
        return ""
    unanswered = message.unanswered if isinstance(message, TranscriptEntry) else None
    if message.sender_prefix is None and unanswered is None:
        return text
    lines = " ".join(filter(None, (message.sender_prefix, "\n  ".join(text.splitlines()))))
    if unanswered is not None:
        lines += f"\n[Not answered: {_UNANSWERED[unanswered]}. Do not answer it now.]"
    return lines


def _text_of(one: TurnMessage | TranscriptEntry) -> str | None:
    return one.content if isinstance(one, TranscriptEntry) else one.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One piece of work: what was written since the last answer, in order.

    Attributes:
        attempt: 1 at first. Tools that were called in an attempt before this
            one were called; check before doing it twice.
        source: Where the answer goes.
        prompt_context: Where this takes place, to be put into the system prompt; the same from
            turn to turn, so that a cache of the prompt stays good. None if the agent has it off.
        reset_reason: Rule that ended the session before, on the first turn of a new one.
        reset_had_activity: Whether anything had been answered in the session before.
        opening_note: Note that session left for this one.
        interruption: How often earlier attempts at this turn were lost, and when last.
        model_override: Model that is to answer instead of the agent's own choice.
        resume_pending: The session was marked as interrupted, and no turn was complete since.
        signals: What it was told from outside; use `cancel_reason`.
        take_in: Takes in what came since; use `steered`.
        load_history: Loads the newest rows before the turn; use `history`.
        publish_delta: Streams text while the turn runs; use `delta`.
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
    signals: Signals = field(default_factory=Signals, repr=False)
    take_in: Callable[[], Awaitable[tuple[TurnMessage, ...]]] = field(default=_nothing, repr=False)
    load_history: Callable[[int], Awaitable[tuple[TranscriptEntry, ...]]] = field(repr=False)
    publish_delta: Callable[[str], Awaitable[None]] = field(repr=False)

    @property
    def text(self) -> str:
        """All that was written, one message a line."""
        return "\n".join(message.text for message in self.messages if message.text)

    @property
    def prompt(self) -> str:
        """The same for a model: where several people talk, each message after its sender."""
        return prompt_of(self.messages)

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why the turn is to end before it is answered, once that is so."""
        return self.signals.cancel_reason

    async def steered(self) -> AsyncIterator[TurnMessage]:
        """Yield what is written while the turn runs and is meant for it, as it comes.

        For agents, chats and commands whose busy mode is `steer`. Every message that was
        yielded is answered by this turn, those that were not are in the next one. It goes on
        until the handler leaves it.
        """
        while True:
            await self.signals.has_news.wait()
            for message in await self.take_in():
                yield message

    async def take_steered(self) -> tuple[TurnMessage, ...]:
        """Return what came since, without waiting for more; `steered` at one moment."""
        return await self.take_in() if self.signals.has_news.is_set() else ()

    async def history(self, limit: int = 100) -> tuple[TranscriptEntry, ...]:
        """Return the newest rows of the transcript before this turn, oldest first.

        A row with `unanswered` is a message that is not to be answered any more. A call that was
        interrupted has a placeholder (`is_placeholder`) for its result.
        """
        return await self.load_history(limit)

    async def delta(self, text: str) -> None:
        """Show a piece of the answer to whoever watches; it is not kept and may get lost."""
        await self.publish_delta(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of one or several messages, and what it leaves in the transcript.

    Attributes:
        parts: Messages to the chat, in order.
        transcript: Rows to add, with tool calls and their results; without
            any, every part becomes a row of the assistant.
        usage: Named counts, such as tokens.
        carry_over: Note for the session that will follow, at most 8,000 characters; `""` takes
            back the one before.
    """

    parts: Sequence[str | Part]
    transcript: Sequence[TranscriptRow] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    carry_over: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReply:
    """The turn is done and nothing is said to the chat."""

    transcript: Sequence[TranscriptRow] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    carry_over: str | None = None


Answer = str | Reply | NoReply
Handler = Callable[[Turn], Awaitable[Answer]]
"""From a turn to its answer.

A turn whose handler raises is tried again, up to the number of attempts its agent allows.

It is cancelled when its lease is lost, and when the turn is to end before it is answered, because
somebody stopped it or wrote something else: then `cancel_reason` says why, and it may catch the
cancellation and return what it has. One that lets it through has nothing to say. It may take the
`wind_down` of its worker for that, 20 s unless set otherwise, and is cancelled again after it. A
turn that is to end gets no longer lease (`lease` of the agent, 30 s unless set otherwise): what
the handler returns after the lease has ended is lost.
"""
