"""Apply the results of workers to their turns and transcripts.

Pure, as `lifecycle`: callers pass in locked sessions and turns and get effects back.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.counts import CountName
from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import Effects, LateRow, MessageRow, UnansweredTurn, without_nulls
from chatlane.domain.ids import derived_id
from chatlane.domain.notices import NoticeId
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.session_flags import count_answer, leave_note
from chatlane.domain.turns.claims import go_on
from chatlane.domain.turns.lifecycle import (
    TurnFailed,
    UnavailableAgent,
    fail_turn,
    free_session,
    note_answer,
    note_end,
    repeat_notice,
    wait_for_agent,
)
from chatlane.domain.turns.turn_events import note_ended, note_waiting
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.live_turns import TurnFailure, TurnOutcome, WaitReason
from chatlane_schemas.results import HandBack, Outcome, Part, Role
from chatlane_schemas.session_api.transcripts import Unanswered
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.catalog import Agent
    from chatlane.domain.log import Trace
    from chatlane.domain.notices import Notices
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.results import ResultMessage, TranscriptRow
    from chatlane_schemas.source import Source

# A worker that gives no time is asked again after this one.
_DEFAULT_WAIT: Final = timedelta(seconds=15)
_SHORTEST_WAIT: Final = timedelta(seconds=1)


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
    free_session(
        session,
        arrived.stored_at,
        result.id.encode(),
        has_waiting=has_waiting,
        effects=effects,
    )


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
        note_answer(session, arrived.stored_at)
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
