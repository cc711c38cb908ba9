"""Decide the lifecycle of a turn: open, cancel, finish, fail, and the turn that follows.

Pure, as `lanes`: callers pass in locked sessions and turns and get effects back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import to_json

from chatlane.domain.counts import CountName
from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import (
    Control,
    Effects,
    LateRow,
    MessageRow,
    Publication,
    UnansweredTurn,
    without_nulls,
)
from chatlane.domain.fast_json import turn_notice
from chatlane.domain.ids import derived_id, time_of
from chatlane.domain.notices import NoticeId
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.session_flags import (
    count_answer,
    count_interruption,
    leave_note,
    suspend_session,
)
from chatlane.domain.states import Session, Turn
from chatlane.domain.turns.claims import go_on
from chatlane.domain.turns.turn_events import (
    note_ended,
    note_question_over,
    note_waiting,
    withdraw_question,
)
from chatlane_schemas.codec import encode
from chatlane_schemas.content.questions import QuestionEnd
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.live_turns import TurnFailure, TurnOutcome, WaitReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import HandBack, Outcome, Part, Role
from chatlane_schemas.session_api.transcripts import Unanswered
from chatlane_schemas.topology.subjects import control as control_subject
from chatlane_schemas.topology.subjects import turn as turn_subject
from chatlane_schemas.turns import CancelReason, TurnControl

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.catalog import Agent
    from chatlane.domain.effects import Effects
    from chatlane.domain.log import Trace
    from chatlane.domain.notices import Notices
    from chatlane.domain.states import AskedQuestion, Session
    from chatlane.domain.turns.turn_events import TurnPointer
    from chatlane_schemas.results import ResultMessage, TranscriptRow
    from chatlane_schemas.source import Source

# How long an unclaimed turn waits for its next notification, by notifications sent so far. A worker
# claims what it has fetched at once; without a claim by the first repeat it is dead (ADR 0023).
_REPEATS: Final = tuple(timedelta(seconds=s) for s in (3, 10, 30, 60, 120, 300))
MAX_TURN_MESSAGES: Final = 50
MAX_TURN_BYTES: Final = 256 * 1024
# A worker that gives no time is asked again after this one.
_DEFAULT_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)
# A turn that waits at least this long for its agent tells the chat so.
_TOLD_FROM: Final = timedelta(seconds=10)
# Attempts in a row, over all turns of a session, that may be lost with their workers.
_STUCK_AFTER: Final = 3


@dataclass(frozen=True, slots=True)
class ArrivedResult:
    """A result as read from the log; only the `agent` of its subject is trusted.

    Attributes:
        is_old: It was stored before this router started. After a restore of the database, it may
            belong to a claim that the database has lost, or to a message that is still to be read
            again.
        may_wait: Whether such a message may still come.
    """

    result: ResultMessage
    agent: str
    stored_at: datetime
    body: bytes
    subject: str
    partition: int
    sequence: int
    trace: Trace | None = None
    is_old: bool = False
    may_wait: bool = False

    def reject(self, reason: DeadReason, effects: Effects, detail: str | None = None) -> None:
        """Add the dead letter of a result that changes nothing."""
        is_known = reason is not DeadReason.UNKNOWN_SESSION
        add_dead_letter(
            effects,
            stage=Stage.RESULTS,
            reason=reason,
            at=self.stored_at,
            trigger=self.result.id.encode(),
            body=self.body,
            detail=detail,
            log="results",
            partition=self.partition,
            sequence=self.sequence,
            subject=self.subject,
            session_id=self.result.session_id if is_known else None,
        )


@dataclass(frozen=True, slots=True)
class Question:
    """The routed message that a `stream` answer replies to.

    Attributes:
        source: Where its answer goes; None if there is no chat to answer.
        was_given_up: It is marked as not answered, because no worker had acknowledged it.
    """

    id: UUID
    source: Source | None
    is_of_person: bool = True
    was_given_up: bool = False


def open_turn(
    session: Session,
    at: datetime,
    trigger: bytes,
    effects: Effects,
    *,
    rest: timedelta | None = None,
) -> Turn:
    """Open a turn for an idle session and notify the agent's workers, at once or after `rest`.

    Args:
        trigger: Digest of the message, or id of the result, that makes the turn necessary.
        rest: How long after the commit workers are not to be notified.
    """
    if session.staff_until is not None and session.staff_until > at:
        # One of our people talks to the person.
        rest = max(rest or timedelta(0), session.staff_until - at)
    turn = Turn(
        id=derived_id(at, trigger + session.id.bytes, "turn"),
        session_id=session.id,
        agent=session.agent,
        state="ready",
    )
    session.active_turn = turn.id
    effects.new_turns.append(turn)
    if rest is None:
        _notify(turn, at, effects)
    else:
        turn.dispatch = 0
        turn.rest, turn.due_in = "resting", rest
        effects.due_within(rest)
    return turn


def repeat_notice(turn: Turn, effects: Effects) -> None:
    """Notify the workers again of an unclaimed turn.

    The dispatch number changes the message id: the stream would drop a repeated id.
    """
    turn.dispatch += 1
    turn.state = "ready"
    turn.rest = "rested" if turn.rest else None
    _notify(turn, time_of(turn.id), effects)
    effects.changed_turns.append(turn)


def _notify(turn: Turn, at: datetime, effects: Effects) -> None:
    turn.due_in = _REPEATS[min(turn.dispatch, len(_REPEATS)) - 1]
    notice_id = f"turn:{turn.id}:{turn.dispatch}"
    notice = turn_notice(notice_id, at, turn.id, turn.session_id, turn.agent, turn.dispatch)
    effects.publications.append(
        Publication(turn.session_id, "TURNS", turn_subject(turn.agent), notice_id, notice)
    )
    effects.count((CountName.TURNS_DISPATCHED, turn.agent))


def expire_lease(
    turn: Turn,
    session: Session,
    *,
    max_attempts: int,
    has_waiting: bool,
    notices: Notices,
    effects: Effects,
) -> None:
    """End an expired lease: dispatch the turn again, or fail it after the last attempt.

    A cancelled turn ends with its lease. If attempt after attempt of a session is lost, whatever
    the turn, the session is suspended and the turn fails: the content of the session may be what
    crashes the workers. An attempt that never began, because its claim was answered too late, does
    not count.
    """
    effects.count((CountName.TURNS_EXPIRED, turn.agent))
    if turn.cancel is not None:
        void_turn(turn, session, has_waiting=has_waiting, effects=effects)
        return
    if not turn.is_begun:
        turn.unbegun += 1
        _wait_after_loss(turn, session, effects)
        return
    turn.interruptions += 1
    count_interruption(session)
    if session.interruptions >= max(_STUCK_AFTER, max_attempts):
        suspend_session(session, time_of(turn.id))
        error = "interrupted again and again; the session is suspended"
        text = notices.text(NoticeId.TURN_STUCK)
        failure = TurnFailed(TurnFailure.SUSPENDED, error, text)
        fail_turn(turn, session, failure, has_waiting=has_waiting, effects=effects)
    elif turn.tries >= max_attempts:
        text = notices.text(NoticeId.TURN_FAILED)
        failure = TurnFailed(TurnFailure.LOST, "lease expired", text)
        fail_turn(turn, session, failure, has_waiting=has_waiting, effects=effects)
    else:
        _wait_after_loss(turn, session, effects)


def _wait_after_loss(turn: Turn, session: Session, effects: Effects) -> None:
    note_waiting(turn, session, time_of(turn.id), WaitReason.LOST, effects)
    repeat_notice(turn, effects)


def settle(
    arrived: ArrivedResult,
    session: Session,
    turn: Turn | None,
    *,
    agent: Agent,
    has_waiting: bool,
    notices: Notices,
    effects: Effects,
) -> None:
    """Apply the result of a turn once; late, repeated and invalid results change no turn."""
    result = arrived.result
    if turn is None or turn.session_id != session.id:
        arrived.reject(DeadReason.UNKNOWN_TURN, effects)
    elif turn.agent != arrived.agent:
        arrived.reject(DeadReason.AGENT_MISMATCH, effects)
    elif turn.result_id == result.id:
        effects.count((CountName.DUPLICATES, "results"))
    elif not _is_current(result, turn):
        _keep_late(arrived, effects)
    else:
        # A worker that sends a result has begun, even if no renewal said so.
        go_on(turn)
        turn.is_begun = True
        _end(
            arrived,
            session,
            turn,
            agent=agent,
            has_waiting=has_waiting,
            notices=notices,
            effects=effects,
        )
        note_end(turn, session, arrived.stored_at)


def note_end(turn: Turn, session: Session, at: datetime) -> None:
    """Restart the idle time of a session at the end of a turn that answered a person."""
    if turn.is_asked and not turn.is_live:
        _note_answer(session, at)


def _note_answer(session: Session, at: datetime) -> None:
    last = session.asked_turn_ended_at
    session.asked_turn_ended_at = at if last is None else max(at, last)


def _end(
    arrived: ArrivedResult,
    session: Session,
    turn: Turn,
    *,
    agent: Agent,
    has_waiting: bool,
    notices: Notices,
    effects: Effects,
) -> None:
    """End the current attempt with its result, and the turn unless it is retried."""
    result = arrived.result
    if turn.is_trial is not None and turn.cancel is None and not result.retry:
        effects.available.add(turn.agent)
    if turn.cancel is not None or result.outcome is not Outcome.FAILED:
        _finish(arrived, session, turn, has_waiting=has_waiting, effects=effects)
        return
    effects.use(session.id, result)
    turn.result_id = result.id
    if _is_handed_back(result, agent):
        _hand_back(
            arrived,
            session,
            turn,
            agent=agent,
            has_waiting=has_waiting,
            notices=notices,
            effects=effects,
        )
    elif result.retry and turn.tries < agent.max_attempts:
        _retry_later(turn, session, arrived, effects, agent.retry_pause)
    else:
        _note_steps(arrived, session, turn, effects)
        text = notices.text(NoticeId.TURN_FAILED)
        failed = TurnFailed(TurnFailure.ERROR, result.error or "failed", text, result)
        fail_turn(turn, session, failed, has_waiting=has_waiting, effects=effects)


def _note_steps(arrived: ArrivedResult, session: Session, turn: Turn, effects: Effects) -> None:
    """Add tool calls and other steps of a failed attempt to the transcript: they did take place."""
    if arrived.result.transcript:
        answer = _answer_parts(arrived)
        effects.messages.extend(_transcript(arrived, session, turn, answer))


def _is_handed_back(result: ResultMessage, agent: Agent) -> bool:
    """Return whether an attempt does not count.

    An agent whose turns never begin twice gets none again that its worker has begun. A worker whose
    agent is unavailable says that nothing has happened.
    """
    if result.hand_back is None or not result.retry:
        return False
    return result.hand_back is HandBack.UNAVAILABLE or agent.max_attempts > 1


def _hand_back(
    arrived: ArrivedResult,
    session: Session,
    turn: Turn,
    *,
    agent: Agent,
    has_waiting: bool,
    notices: Notices,
    effects: Effects,
) -> None:
    """Take a turn back without counting the attempt; offer it at once, or when its agent is back."""
    result = arrived.result
    _note_steps(arrived, session, turn, effects)
    turn.unbegun += 1
    turn.token = turn.claim_id = None
    turn.error = result.error
    if result.hand_back is HandBack.STOPPING:
        effects.count((CountName.TURNS_HANDED_BACK, turn.agent, HandBack.STOPPING))
        note_waiting(turn, session, arrived.stored_at, WaitReason.HANDED_BACK, effects)
        repeat_notice(turn, effects)
        return
    effects.count((CountName.TURNS_HANDED_BACK, turn.agent, HandBack.UNAVAILABLE))
    wait = _DEFAULT_WAIT
    if result.again_in_ms is not None:
        wait = max(_SHORTEST_WAIT, timedelta(milliseconds=result.again_in_ms))
    wait = min(wait, max(_SHORTEST_WAIT, agent.max_wait))
    effects.unavailable[turn.agent] = max(wait, effects.unavailable.get(turn.agent, wait))
    waiting = UnavailableAgent(wait, agent.max_wait, turn.source)
    if not wait_for_agent(
        turn, session, waiting, arrived.stored_at, notices=notices, effects=effects
    ):
        error, text = "the agent was unavailable for too long", notices.text(NoticeId.TURN_FAILED)
        failed = TurnFailed(TurnFailure.UNAVAILABLE, error, text)
        fail_turn(turn, session, failed, has_waiting=has_waiting, effects=effects)


class UnavailableAgent(NamedTuple):
    """How long a turn is to wait for its agent now, at most in all, and the chat to tell."""

    wait: timedelta
    max_wait: timedelta
    target: Source | None


def wait_for_agent(
    turn: Turn,
    session: Session,
    unavailable: UnavailableAgent,
    at: datetime,
    *,
    notices: Notices,
    effects: Effects,
) -> bool:
    """Let a turn wait for its agent, and tell the chat once if that takes long.

    Returns:
        False if the turn has waited for too long already; nothing has changed then.
    """
    since = turn.waits_since or at
    waited = max(timedelta(0), at - since)
    if waited >= unavailable.max_wait:
        return False
    wait = min(unavailable.wait, unavailable.max_wait - waited)
    turn.state = "ready"
    turn.waits_since = since
    turn.due_in = wait
    effects.changed_turns.append(turn)
    effects.due_within(wait)
    note_waiting(turn, session, at, WaitReason.UNAVAILABLE, effects, until=at + wait)
    if not turn.wait_told and waited + wait >= _TOLD_FROM and unavailable.target is not None:
        turn.wait_told = True
        notice_id = derived_id(time_of(turn.id), turn.id.bytes, "unavailable notice")
        target, kind = unavailable.target, OutboundKind.NOTICE
        speaking = Speaking(session, turn.agent, target, at, turn.id, kind)
        text = notices.text(NoticeId.AGENT_UNAVAILABLE)
        speaking.say(Part(text=text), notice_id, effects)
    return True


def _is_current(result: ResultMessage, turn: Turn) -> bool:
    return (
        turn.is_live
        and turn.token is not None
        and (turn.attempt, turn.token)
        == (
            result.attempt,
            result.token,
        )
    )


def recall_claim(turn: Turn, result: ResultMessage) -> None:
    """Restore the claim that a result proves and that this database has lost.

    Only a commit hands out an attempt. So a worker with a later attempt than the turn counts has it
    from a database that was ahead of this one.
    """
    turn.state = "claimed"
    turn.attempt = result.attempt or turn.attempt
    turn.token = result.token
    turn.claim_id = turn.rest = None
    turn.is_begun = True


def _retry_later(
    turn: Turn, session: Session, arrived: ArrivedResult, effects: Effects, pause: timedelta
) -> None:
    result = arrived.result
    turn.state = "ready"
    turn.token = None
    turn.claim_id = None
    turn.error = result.error
    turn.waits_since = None
    turn.due_in = pause * turn.tries
    effects.changed_turns.append(turn)
    at = arrived.stored_at
    note_waiting(turn, session, at, WaitReason.ERROR, effects, until=at + turn.due_in)
    effects.count((CountName.TURNS_RETRIED, turn.agent))


def _finish(
    arrived: ArrivedResult, session: Session, turn: Turn, *, has_waiting: bool, effects: Effects
) -> None:
    """End a turn with the result of its worker; a cancelled turn ends so whatever the outcome."""
    result = arrived.result
    answer = _answer_parts(arrived)
    has_answer = turn.has_spoken or (answer and result.outcome is Outcome.OK)
    outcome = Outcome.OK if has_answer else Outcome.NO_REPLY
    turn.state = "done"
    turn.result_id = result.id
    turn.outcome = outcome
    turn.error = result.error or turn.error
    effects.changed_turns.append(turn)
    effects.use(session.id, result)
    leave_note(session, result.carry_over)
    if turn.cancel is None:
        count_answer(session)
    rows = _transcript(arrived, session, turn, answer)
    effects.messages.extend(rows)
    if turn.cancel is not None and not (turn.has_spoken or any(_is_answer(row) for row in rows)):
        effects.unanswered.append(UnansweredTurn(turn.id, Unanswered(turn.cancel)))
    speaking = Speaking(session, turn.agent, turn.source, arrived.stored_at, turn.id)
    # After the end of its session the chat has moved on and expects no answer.
    sent = {} if turn.cancel is CancelReason.SESSION_ENDED else answer
    for number, (message_id, part) in enumerate(sent.items()):
        # A message that edits an earlier one cannot also take the place of a draft.
        draft = None if number or part.edits is not None else turn.draft
        speaking.say(part, message_id, effects, number, draft)
    note_ended(
        turn,
        session,
        arrived.stored_at,
        TurnOutcome(outcome) if turn.cancel is None else TurnOutcome.CANCELLED,
        effects,
        result=result,
        outbound_ids=list(sent),
    )
    effects.count((CountName.TURNS_FINISHED, turn.agent, outcome or ""))
    _free(
        session,
        arrived.stored_at,
        result.id.encode(),
        has_waiting=has_waiting,
        effects=effects,
    )


class TurnFailed(NamedTuple):
    """Why a turn failed for good.

    Attributes:
        error: Reason for operators.
        notice: Text for the chat.
        result: The last result, with what it reports as used.
    """

    failure: TurnFailure
    error: str
    notice: str
    result: ResultMessage | None = None


def fail_turn(
    turn: Turn, session: Session, failed: TurnFailed, *, has_waiting: bool, effects: Effects
) -> None:
    """Fail a turn: record a dead letter, send the notice to the chat, and free the session."""
    at = time_of(turn.id)
    effects.unanswered.append(UnansweredTurn(turn.id, Unanswered.FAILED))
    turn.state = "failed"
    turn.outcome = Outcome.FAILED
    turn.error = failed.error
    effects.changed_turns.append(turn)
    pointer = {"turn_id": turn.id, "session_id": session.id, "attempts": turn.tries}
    add_dead_letter(
        effects,
        stage=Stage.TURNS,
        reason=DeadReason.TURN_FAILED,
        at=at,
        trigger=turn.id.bytes,
        body=to_json(pointer),
        detail=f"turn {turn.id} after {turn.tries} attempts"
        + ("; its session is suspended" if session.suspended_at else ""),
        session_id=session.id,
    )
    notice_id = derived_id(at, turn.id.bytes, "failure notice")
    speaking = Speaking(session, turn.agent, turn.source, at, turn.id, OutboundKind.NOTICE)
    speaking.say(Part(text=failed.notice), notice_id, effects, draft=turn.draft)
    note_ended(
        turn,
        session,
        at,
        TurnOutcome.FAILED,
        effects,
        failure=failed.failure,
        notice=failed.notice,
        result=failed.result,
        outbound_ids=[notice_id],
    )
    effects.count((CountName.TURNS_FINISHED, turn.agent, Outcome.FAILED))
    _free(session, at, turn.id.bytes, has_waiting=has_waiting, effects=effects)


def void_turn(
    turn: Turn,
    session: Session,
    *,
    has_waiting: bool,
    effects: Effects,
    reason: CancelReason | None = None,
) -> None:
    """End a turn that is not to be answered or has no messages left.

    Args:
        has_waiting: Whether messages wait with which the session continues.
        reason: Why its messages are not answered, if not for the reason that cancelled it.
    """
    reason = reason or turn.cancel
    if reason is not None and not turn.is_unclaimed:
        effects.unanswered.append(UnansweredTurn(turn.id, Unanswered(reason)))
    turn.state = "void"
    effects.changed_turns.append(turn)
    note_ended(turn, session, time_of(turn.id), TurnOutcome.CANCELLED, effects)
    _free(session, time_of(turn.id), turn.id.bytes, has_waiting=has_waiting, effects=effects)


def _free(
    session: Session, at: datetime, trigger: bytes, *, has_waiting: bool, effects: Effects
) -> None:
    session.active_turn = None
    if has_waiting:
        open_turn(session, at, trigger, effects)


def answer_stream(
    arrived: ArrivedResult,
    session: Session,
    question: Question | None,
    known_result_id: str | None,
    effects: Effects,
) -> None:
    """Apply a `stream` answer: the first one per routed message and part wins.

    Args:
        question: None when the session holds no such message.
        known_result_id: Envelope id of the answer that already won, if any.
    """
    result = arrived.result
    if question is None:
        arrived.reject(DeadReason.INVALID, effects, "reply_to names no message of the session")
    elif session.agent != arrived.agent:
        arrived.reject(DeadReason.AGENT_MISMATCH, effects)
    elif known_result_id == result.id:
        effects.count((CountName.DUPLICATES, "results"))
    elif known_result_id is not None:
        _keep_late(arrived, effects)
    else:
        _answer(arrived, session, question, effects)


def _answer(arrived: ArrivedResult, session: Session, question: Question, effects: Effects) -> None:
    result = arrived.result
    effects.use(session.id, result)
    leave_note(session, result.carry_over)
    if result.part == 0:
        count_answer(session)
    if question.was_given_up:
        effects.answered_after_all.append(question.id)
    if question.is_of_person:
        _note_answer(session, arrived.stored_at)
    if is_blank(result.text or "") and not result.attachments and not result.buttons:
        return
    part = Part(
        text=result.text,
        attachments=result.attachments,
        format=result.format,
        buttons=result.buttons,
    )
    answer_id = derived_id(arrived.stored_at, result.id.encode(), "answer")
    effects.messages.append(
        MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            role=Role.ASSISTANT,
            content=result.text,
            created_at=arrived.stored_at,
            details=without_nulls({"result_id": result.id} | shown_details(part)),
            id=answer_id,
            reply_to=question.id,
            part=result.part,
        )
    )
    speaking = Speaking(session, session.agent, question.source, arrived.stored_at)
    speaking.say(part, answer_id, effects, result.part)
    effects.count((CountName.STREAM_ANSWERS, session.agent))


def _answer_parts(arrived: ArrivedResult) -> dict[UUID, Part]:
    """Return the parts of an answer that say something, by id: of the message and of the row."""
    answers = [
        part
        for part in arrived.result.parts
        if part.attachments or part.buttons or not is_blank(part.text or "")
    ]
    trigger = arrived.result.id.encode()
    return {
        derived_id(arrived.stored_at, trigger, "answer", number): part
        for number, part in enumerate(answers)
    }


def _is_answer(row: MessageRow) -> bool:
    return row.role == Role.ASSISTANT and not is_blank(row.content or "")


def _transcript(
    arrived: ArrivedResult, session: Session, turn: Turn, answer: Mapping[UUID, Part]
) -> list[MessageRow]:
    """Return the rows that a result adds to the transcript.

    A row with a message to the chat has the id of that message, so that a reply to it finds the row.
    """
    result = arrived.result

    def row(
        role: str, content: str | None, details: dict[str, object], row_id: UUID | None
    ) -> MessageRow:
        return MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            role=role,
            content=content,
            created_at=arrived.stored_at,
            id=row_id,
            details=without_nulls(details),
            turn_id=turn.id,
        )

    if not result.transcript:
        return [
            row(Role.ASSISTANT, part.text, shown_details(part), answer_id)
            for answer_id, part in answer.items()
        ]
    unplaced = {answer_id: part.text for answer_id, part in answer.items()}
    rows = []
    for entry in result.transcript:
        # Model endpoints refuse blank messages. A tool may have a blank result.
        if entry.role is not Role.TOOL and not entry.tool_calls and is_blank(entry.content or ""):
            continue
        is_said = entry.role is Role.ASSISTANT and entry.content
        same = (id_ for id_, text in unplaced.items() if is_said and text == entry.content)
        answer_id = next(same, None)
        if answer_id is not None:
            del unplaced[answer_id]
        details: dict[str, object] = {
            "tool_calls": entry.tool_calls,
            "tool_call_id": entry.tool_call_id,
            "tool_name": entry.tool_name,
            "reasoning": reasoning_details(entry, turn.agent),
        }
        rows.append(row(entry.role, entry.content, details, answer_id))
    return rows


def reasoning_details(row: TranscriptRow, agent: str) -> dict[str, object] | None:
    """Return the reasoning of a row as it is stored; None without any."""
    if row.reasoning is None:
        return None
    return row.reasoning.model_dump(mode="json", exclude_none=True) | {"agent": agent}


def shown_details(part: Part) -> dict[str, object]:
    """Return the fields of a message that its transcript row keeps besides the text."""
    return {
        "attachments": part.attachments or None,
        "buttons": part.buttons,
        "edits": part.edits,
    }


def add_message(speaking: Speaking, said: Part, message_id: UUID, effects: Effects) -> None:
    """Add a message of the agent to the transcript of a locked session, and publish it.

    The row has the id of the message, so that a reply to it finds the row.
    """
    session = speaking.session
    effects.messages.append(
        MessageRow(
            session_id=session.id,
            seq=session.take_seq(),
            role=Role.ASSISTANT,
            content=said.text,
            created_at=speaking.at,
            id=message_id,
            details=without_nulls(shown_details(said)),
            turn_id=speaking.turn_id,
        )
    )
    speaking.say(said, message_id, effects)


def _keep_late(arrived: ArrivedResult, effects: Effects) -> None:
    result = arrived.result
    effects.late.append(
        LateRow(
            id=result.id,
            session_id=result.session_id,
            turn_id=result.turn_id,
            attempt=result.attempt,
            reply_to=result.reply_to,
            body=arrived.body,
        )
    )
    effects.count((CountName.LATE_RESULTS, arrived.agent))


_STRENGTH: Final = {reason: place for place, reason in enumerate(CancelReason)}


def stop_turn(
    turn: Turn,
    session: Session,
    reason: CancelReason,
    at: datetime,
    *,
    has_waiting: bool,
    effects: Effects,
) -> bool:
    """Cancel a turn, and return whether its worker still has to confirm that.

    A worker that holds the turn confirms with its result. Until then, or until its lease ends,
    the session stays busy, so that two turns of it never run at once. A turn that is unclaimed,
    or whose lease ended, is void at once.

    Args:
        has_waiting: Whether messages wait with which the session continues.
    """
    if turn.state != "claimed":
        void_turn(turn, session, has_waiting=has_waiting, effects=effects, reason=reason)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
        return False
    if turn.cancel is None or _STRENGTH[reason] > _STRENGTH[turn.cancel]:
        turn.cancel = reason
        effects.changed_turns.append(turn)
        effects.count((CountName.TURNS_CANCELLED, turn.agent, reason))
    withdraw_question(turn, session, at, effects)
    effects.controls.append(_cancelling(turn.id, turn.agent, turn.cancel, at))
    return True


def interrupting(
    turn: TurnPointer,
    asked: AskedQuestion | None,
    session: Session,
    at: datetime,
    effects: Effects,
) -> None:
    """Send the worker of a turn the control message that a newer message replaces the turn."""
    effects.count((CountName.TURNS_CANCELLED, turn.agent, CancelReason.INTERRUPTED))
    if asked is not None:
        note_question_over(turn, asked, session, at, effects, outcome=QuestionEnd.WITHDRAWN)
    effects.controls.append(_cancelling(turn.id, turn.agent, CancelReason.INTERRUPTED, at))


def _cancelling(turn_id: UUID, agent: str, reason: CancelReason, at: datetime) -> Control:
    notice = TurnControl(id=f"control:{turn_id}:{reason}", at=at, turn_id=turn_id, cancel=reason)
    return Control(control_subject(agent, turn_id), encode(notice))


def answered(turn_id: UUID, agent: str, at: datetime) -> Control:
    """Build the control message that a question of the running turn has its answer."""
    notice = TurnControl(id=f"control:{turn_id}:answered", at=at, turn_id=turn_id, answered=True)
    return Control(control_subject(agent, turn_id), encode(notice))


def steering(turn_id: UUID, agent: str, at: datetime) -> Control:
    """Build the control message that input for the running turn is available."""
    notice = TurnControl(id=f"control:{turn_id}:steer", at=at, turn_id=turn_id, steer=True)
    return Control(control_subject(agent, turn_id), encode(notice))
