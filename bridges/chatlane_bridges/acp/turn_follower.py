"""Follow the turns of a conversation, from a prompt to its answer.

Live updates may get lost. The transcript decides what is said, and whether a turn is over.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from time import monotonic
from typing import Final
from uuid import UUID

from chatlane_bridges.acp import updates
from chatlane_bridges.acp.conversation import Conversation
from chatlane_bridges.acp.editor_calls import CallDialog
from chatlane_bridges.acp.questions import QuestionDialog, takes
from chatlane_client import Submission, TransientError, TurnUpdate
from chatlane_client.api.submission import answered
from chatlane_schemas.live_turns import (
    StepState,
    TurnAnswered,
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
# A worker that does not answer holds a cancelled turn until the end of its lease.
_CANCELLED_WITHIN: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The goal of a follower: an answer, the end of a turn, or the end of all that runs now.

    Attributes:
        after_seq: Place of the newest row before.
        submission: The message that is to be answered.
        turn_id: The turn that is to end.
    """

    after_seq: int
    submission: Submission | None = None
    turn_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the turn of a prompt ended."""

    outcome: TurnOutcome
    notice: str | None = None
    usage: dict[str, int] = field(default_factory=dict)


class TurnFollower:
    """Shows what happens in a conversation until a target is over."""

    def __init__(self, conversation: Conversation, target: Target) -> None:
        self._conversation = conversation
        self._service = conversation.service
        self._target = target
        self._ended: dict[UUID, TurnEnded] = {}
        self._foreign: set[UUID] = set()
        self._dialogs: dict[UUID, tuple[QuestionDialog | CallDialog, asyncio.Task[None]]] = {}
        self._found_over = False
        # Turn and place of the rows at the last look.
        self._seen: set[tuple[UUID | None, int]] = set()
        self._is_paused = False
        turn_id = target.turn_id
        if turn_id is None and target.submission is not None:
            turn_id = target.submission.turn_id
        if turn_id is not None:
            self._own(turn_id)

    async def run(self, arriving: AsyncIterator[TurnUpdate]) -> Ended:
        """Show the updates until the target is over, and return how it ended."""
        arrival: asyncio.Task[TurnUpdate] | None = None
        has_looked = False
        try:
            patience = 0.0
            while True:
                arrival = arrival or asyncio.create_task(_next(arriving))
                await asyncio.wait({arrival}, timeout=patience)
                patience = _LOOK_AGAIN.total_seconds()
                try:
                    if arrival.done():
                        update, arrival = arrival.result(), None
                        ended = await self._take(update)
                    else:
                        # At first, the updates before a question are still to arrive. The event of
                        # a question that was asked before will not.
                        ended = await self._look(asks=has_looked or self._follows_all)
                        has_looked = True
                except TransientError as exc:
                    # Routers are away; what they did is in the transcript.
                    _log.info("look_failed", extra={"error": type(exc).__name__})
                    continue
                ended = ended or self._given_up()
                if ended is not None:
                    return ended
        finally:
            tasks = [task for _, task in self._dialogs.values()]
            for task in (*tasks, *([arrival] if arrival is not None else [])):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task

    def _given_up(self) -> Ended | None:
        if self._is_paused:
            return Ended(outcome=TurnOutcome.OK)
        cancelled_at = self._conversation.cancelled_at
        if cancelled_at is None or monotonic() - cancelled_at < _CANCELLED_WITHIN.total_seconds():
            return None
        return Ended(outcome=TurnOutcome.CANCELLED)

    async def _take(self, update: TurnUpdate) -> Ended | None:
        match update:
            case TurnStarted():
                submission = self._target.submission
                if submission is not None and submission.message_id in update.message_ids:
                    self._own(update.turn_id)
                if update.turn_id in self._conversation.turns:
                    await self._show(update)
            case TurnPiece() | TurnRecap():
                if await self._is_shown(update.turn_id):
                    await self._show(update)
            case TurnAsked():
                if await self._is_shown(update.turn_id):
                    await self._ask(await self._open_question())
            case TurnAnswered():
                await self._withdraw(update.question_id)
            case TurnEnded():
                self._ended[update.turn_id] = update
                return await self._look()
            case _:
                pass
        return None

    async def _show(self, update: TurnStarted | TurnPiece | TurnRecap) -> None:
        turn = self._conversation.turn(update.turn_id)
        match update:
            case TurnStarted():
                shown = turn.begin(update.attempt)
            case TurnPiece():
                shown = turn.take(update)
            case _:
                shown = turn.take_recap(update)
        await self._conversation.show(shown)

    @property
    def _follows_all(self) -> bool:
        return self._target.submission is None and self._target.turn_id is None

    def _own(self, turn_id: UUID) -> None:
        self._conversation.turn(turn_id)
        self._conversation.own_turn = turn_id

    async def _is_shown(self, turn_id: UUID) -> bool:
        """Return whether the editor shows a turn; the transcript says which turn answers."""
        if turn_id in self._conversation.turns:
            return True
        if turn_id in self._foreign:
            return False
        if self._follows_all:
            self._conversation.turn(turn_id)
            return True
        await self._look()
        is_shown = turn_id in self._conversation.turns
        if not is_shown:
            self._foreign.add(turn_id)
        return is_shown

    async def _look(self, *, asks: bool = False) -> Ended | None:
        """Show what the transcript has, and return how the target ended if it is over.

        Args:
            asks: Whether to ask an open question of which no event came.
        """
        conversation, target = self._conversation, self._target
        is_busy = (await self._service.sessions.get(conversation.tip)).is_busy
        rows = await self._service.rows_after(conversation.tip, target.after_seq)
        found = self._outcome(rows, is_busy=is_busy)
        if found is not None and (self._found_over or self._knows_end(found)):
            await self._settle(rows, is_over=True)
            return found
        self._found_over = found is not None
        if found is not None:
            # The event of the end, which says why, has a moment to arrive, as have last pieces.
            return None
        question = None
        if is_busy and conversation.own_turn not in self._ended:
            # Before the rows are shown, so that its row is not taken for words of the agent.
            question = await self._open_question()
        # Pieces of rows that are new may still arrive; they would be shown after the rows, again.
        known, self._seen = self._seen, {(row.turn_id, row.seq) for row in rows}
        await self._settle([row for row in rows if (row.turn_id, row.seq) in known], is_over=False)
        if asks:
            await self._ask(question)
        return None

    def _knows_end(self, found: Ended) -> bool:
        own = self._conversation.own_turn
        return own in self._ended or (own is None and found.outcome is TurnOutcome.CANCELLED)

    def _outcome(self, rows: list[TranscriptEntry], *, is_busy: bool) -> Ended | None:
        submission = self._target.submission
        outcome, notice = TurnOutcome.OK, None
        if submission is not None:
            own = next((row for row in rows if row.message_id == submission.message_id), None)
            if own is not None and own.turn_id is not None:
                self._own(own.turn_id)
            answer = answered(submission, rows, self._ended, is_busy=is_busy)
            if answer is None:
                return None
            outcome, notice = answer.outcome or outcome, answer.notice
        elif is_busy and self._conversation.own_turn not in self._ended:
            return None
        end = self._end()
        if end is not None:
            outcome, notice = end.outcome, end.notice
        return Ended(outcome=outcome, notice=notice, usage=dict(end.usage) if end else {})

    def _end(self) -> TurnEnded | None:
        own = self._conversation.own_turn
        return None if own is None else self._ended.get(own)

    async def _settle(self, rows: list[TranscriptEntry], *, is_over: bool) -> None:
        """Show the rows of the turns that the editor shows, as far as they are not shown yet."""
        is_all = self._follows_all
        of_turns: dict[UUID, list[TranscriptEntry]] = {}
        for row in rows:
            turn_id = row.turn_id
            if turn_id is not None and (is_all or turn_id in self._conversation.turns):
                of_turns.setdefault(turn_id, []).append(row)
        for turn_id, rows_of_turn in of_turns.items():
            is_done = turn_id in self._ended or (is_over and turn_id == self._conversation.own_turn)
            turn = self._conversation.turn(turn_id)
            shown = turn.settle(rows_of_turn, is_over=is_done or (is_all and is_over))
            await self._conversation.show(shown)
        end = self._end()
        if is_over and end is not None:
            cost = end.costs.get("cost_usd", Decimal(0))
            await self._conversation.show(
                updates.context_use(dict(end.gauges), float(cost) if cost else None)
            )

    async def _open_question(self) -> OpenQuestionView | None:
        """Return the open question of a turn that the editor shows."""
        conversation = self._conversation
        question = await self._service.sessions.question(conversation.tip, calls=True)
        if question is None:
            return None
        if question.turn_id not in conversation.turns and not self._follows_all:
            return None
        if question.call is not None:
            return question
        labels = [field.label for field in question.fields]
        conversation.turn(question.turn_id).asks(question.text, *labels)
        return question

    async def _ask(self, question: OpenQuestionView | None) -> None:
        """Ask a question in the editor, once."""
        conversation = self._conversation
        if question is None or question.question_id in self._dialogs:
            return
        if not takes(question, conversation.editor):
            # The next prompt is the answer.
            if not self._is_paused:
                shown = updates.agent_text(question.text or "?", str(question.message_id))
                await conversation.show([shown])
            self._is_paused = True
            return
        dialog = (
            QuestionDialog(
                self._service, conversation.editor, conversation.key, question, conversation.stop
            )
            if question.call is None
            else CallDialog(conversation, question, question.call)
        )
        task = asyncio.create_task(dialog.run(conversation.tip))
        self._dialogs[question.question_id] = (dialog, task)
        task.add_done_callback(_report)

    async def _withdraw(self, question_id: UUID) -> None:
        """End a dialog whose question has its answer, unless the dialog gave it."""
        dialog, task = self._dialogs.get(question_id, (None, None))
        if dialog is None or task is None:
            return
        # Its own answer is confirmed in a moment.
        if dialog.has_answer or task.done():
            return
        task.cancel()
        await dialog.close(StepState.FAILED)


async def _next(arriving: AsyncIterator[TurnUpdate]) -> TurnUpdate:
    return await anext(arriving)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("dialog_failed", extra={"error": type(error).__name__})
