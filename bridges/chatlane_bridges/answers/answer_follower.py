"""Submit words and follow their turn until it is over.

Live updates may get lost. The transcript decides what is said, and whether a turn is over.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias
from uuid import UUID

from chatlane_bridges.answers.answer_steps import AnswerSteps, NewState, Step
from chatlane_bridges.answers.answer_text import AnswerText
from chatlane_bridges.answers.front_ends import FrontEndInput
from chatlane_bridges.answers.person_service import PersonService
from chatlane_client import (
    ChatlaneClientError,
    ConflictingRequestError,
    SessionNotFoundError,
    Submission,
    TransientError,
    TurnUpdate,
)
from chatlane_client.api.submission import answered
from chatlane_schemas.content.front_end import FrontEndCall
from chatlane_schemas.live_turns import (
    TurnAsked,
    TurnEnded,
    TurnOutcome,
    TurnPiece,
    TurnRecap,
    TurnStarted,
)
from chatlane_schemas.questions import OpenQuestionView
from chatlane_schemas.session_api.transcripts import TranscriptEntry

_log: Final = logging.getLogger("chatlane_bridges")

# How often the transcript is read without an event.
_LOOK_AGAIN: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How the turn of a message ended, and what it said.

    Attributes:
        question: The question for whose answer the turn waits, or the call of a tool of the front
            end.
    """

    text: str
    outcome: TurnOutcome = TurnOutcome.OK
    notice: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    question: OpenQuestionView | None = None


PutQuestion: TypeAlias = Callable[[OpenQuestionView], Awaitable[None]]
"""Puts a question to a person and replies to it."""


class AnswerFollower:
    """Gives the text of an answer and its steps while they come.

    Attributes:
        answer: The whole answer, once it is there.
    """

    def __init__(
        self,
        service: PersonService,
        submission: Submission,
        after_seq: int,
        put: PutQuestion | None = None,
        *,
        has_questions: bool = True,
        front_end: FrontEndInput | None = None,
    ) -> None:
        """Create it; `run` follows.

        Args:
            service: The service, for the person.
            submission: What the person said.
            after_seq: Place of a row before it.
            put: Puts a question of the turn to the person. Without it the question is the end of
                the answer, and what the person says next answers it.
            has_questions: Whether a question at the end is part of the text.
            front_end: The front end that runs tools. A call whose result it has gets that; another
                call is the end of the answer.
        """
        self._has_questions = has_questions
        self._front_end = front_end
        self._service = service
        self._put = put
        # The question that the person is asked now.
        self._asking: tuple[UUID, asyncio.Task[None]] | None = None
        self._submission = submission
        self._after_seq = after_seq
        self._text = AnswerText()
        self._steps = AnswerSteps()
        # Texts of questions that are put beside the text.
        self._put_texts: set[str] = set()
        # Questions whose new state was given.
        self._offered: set[UUID] = set()
        # Steps that are to be given.
        self._new_steps: list[Step] = []
        self._ended: dict[UUID, TurnEnded] = {}
        self._foreign: set[UUID] = set()
        # Places of the rows of the answer at the last look.
        self._seen: set[int] = set()
        # The event of a turn that is over at the first look came before.
        self._found_over = True
        self.own_turn = submission.turn_id
        # What a turn said before a person answered its question is no part of this answer.
        self._is_live = submission.turn_id is None
        if front_end is not None and front_end.is_going_on:
            # The client has a part of the answer, up to the call.
            self._is_live = True
            self._text.note_shown(front_end.text)
            self._steps.note_shown(front_end.thoughts, front_end.calls)
        self.answer: Answer | None = None

    async def run(
        self, arriving: AsyncIterator[TurnUpdate], give: Callable[[str | Step], None]
    ) -> Answer:
        """Give the parts of the answer as they come, and return the whole one."""
        arrival: asyncio.Task[TurnUpdate] | None = None
        patience = 0.0
        try:
            while self.answer is None:
                arrival = arrival or asyncio.create_task(_next(arriving))
                await asyncio.wait({arrival}, timeout=patience)
                patience = _LOOK_AGAIN.total_seconds()
                try:
                    if arrival.done():
                        update, arrival = arrival.result(), None
                        new = await self._take(update)
                    else:
                        new = await self._look()
                except TransientError as exc:
                    # Routers are away; what they did is in the transcript.
                    _log.info("look_failed", extra={"error": type(exc).__name__})
                    continue
                for part in (*self._new_steps, new):
                    if part:
                        give(part)
                self._new_steps.clear()
            return self.answer
        finally:
            await _end(arrival)
            await _end(self._asking and self._asking[1])

    async def _take(self, update: TurnUpdate) -> str:
        match update:
            case TurnStarted():
                if self._submission.message_id in update.message_ids:
                    self.own_turn = update.turn_id
            case TurnPiece():
                if self._is_live and await self._is_own(update.turn_id):
                    self._new_steps += self._steps.take(update)
                    return self._text.take(update)
            case TurnRecap():
                if self._is_live and await self._is_own(update.turn_id):
                    self._new_steps += self._steps.take_recap(update)
                    return self._text.take_recap(update)
            case TurnAsked():
                if await self._is_own(update.turn_id):
                    return await self._look()
            case TurnEnded():
                self._ended[update.turn_id] = update
                return await self._look()
            case _:
                pass
        return ""

    async def _is_own(self, turn_id: UUID) -> bool:
        """Return whether a turn answers the message."""
        if self.own_turn is None and turn_id not in self._foreign:
            rows = await self._service.rows_since(self._submission, self._after_seq)
            self._note_own(rows)
        if turn_id != self.own_turn:
            self._foreign.add(turn_id)
        return turn_id == self.own_turn

    def _note_own(self, rows: list[TranscriptEntry]) -> int | None:
        """Note the turn of the message, and return the place of its row."""
        for row in rows:
            if row.message_id == self._submission.message_id:
                self.own_turn = row.turn_id or self.own_turn
                return row.seq
        return None

    async def _look(self) -> str:
        """Return the text of the transcript that the client does not have; note an answer that is over."""
        session_id = self._submission.session.id
        is_busy = (await self._service.sessions.get(session_id)).is_busy
        rows = await self._service.rows_since(self._submission, self._after_seq)
        own_seq = self._note_own(rows)
        if own_seq is None:
            return ""
        mine = [row for row in rows if row.seq > own_seq and row.turn_id == self.own_turn]
        self._new_steps += self._steps.settle(mine)
        mine = [row for row in mine if row.content not in self._put_texts]
        found = answered(self._submission, rows, self._ended, is_busy=is_busy)
        if found is not None and (self._found_over or self.own_turn in {None, *self._ended}):
            new = self._text.settle(mine, is_over=True)
            self.answer = self._whole(found)
            return new
        # The event of the end, which says why, has a moment to arrive.
        self._found_over = found is not None
        if found is not None:
            # Pieces that are still to arrive are part of what is given here.
            self._is_live = False
            return self._text.settle(mine, is_over=True)
        # The answer may have been stored after the session was read. Then the next look finds it over.
        known, self._seen = self._seen, {row.seq for row in mine}
        question = await self._question() if is_busy else None
        if question is None or question.turn_id != self.own_turn:
            return self._text.settle([row for row in mine if row.seq in known], is_over=False)
        is_call = question.front_end_call is not None
        if question.text and not is_call and (self._put is not None or not self._has_questions):
            self._put_texts.add(question.text)
            mine = [row for row in mine if row.content != question.text]
        if self._put is not None and not is_call:
            self._ask(self._put, question)
            return self._text.settle([row for row in mine if row.seq in known], is_over=False)
        new = self._text.settle(mine, is_over=False)
        if self._has_questions and not is_call:
            new += self._asked(question)
        self.answer = Answer(text=self._text.given, question=question)
        return new

    async def _question(self) -> OpenQuestionView | None:
        """Return the open question; a call whose result is known gets it, and is none."""
        sessions, session_id = self._service.sessions, self._submission.session.id
        front_end = self._front_end
        if front_end is None:
            return await sessions.question(session_id)
        question = await sessions.question(session_id, front_end_calls=True)
        if question is not None and (call := question.front_end_call) and call.is_state:
            self._offer_state(question, call)
            return None
        result = None if question is None else front_end.result_of(question)
        if question is None or result is None:
            return question
        with suppress(ConflictingRequestError, SessionNotFoundError):
            # Otherwise another request has given a result, its time is over, or its attempt has ended.
            await sessions.reply(session_id, question.question_id, result)
        return None

    def _offer_state(self, question: OpenQuestionView, call: FrontEndCall) -> None:
        """Give a new state to the front end, once; it confirms that it has it."""
        if question.turn_id == self.own_turn and question.question_id not in self._offered:
            self._offered.add(question.question_id)
            self._new_steps.append(NewState(question.question_id, json.loads(call.arguments)))

    def _whole(self, found: Submission) -> Answer:
        end = None if self.own_turn is None else self._ended.get(self.own_turn)
        return Answer(
            text=self._text.given,
            outcome=found.outcome or TurnOutcome.OK,
            notice=found.notice,
            usage={} if end is None else dict(end.usage),
        )

    def _ask(self, put: PutQuestion, question: OpenQuestionView) -> None:
        """Put a question to the person once, while the turn is followed."""
        if self._asking is not None:
            known, asking = self._asking
            if known == question.question_id:
                return
            asking.cancel()
        asking = asyncio.create_task(_put(put, question))
        self._asking = (question.question_id, asking)

    def _asked(self, question: OpenQuestionView) -> str:
        """Return the part of a question that the client does not have."""
        new = ""
        if question.text and question.text not in self._text.given:
            new += self._text.add(question.text)
        if question.options:
            labels = (option.label for option in question.options)
            numbered = (f"{number}. {label}" for number, label in enumerate(labels, 1))
            new += self._text.add("\n".join(numbered))
        return new


async def _put(put: PutQuestion, question: OpenQuestionView) -> None:
    try:
        await put(question)
    except ChatlaneClientError as exc:
        # Another front end was faster, its time is over, or its attempt has ended.
        _log.info("question_not_answered", extra={"error": type(exc).__name__})


async def _end(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _next(arriving: AsyncIterator[TurnUpdate]) -> TurnUpdate:
    return await anext(arriving)
