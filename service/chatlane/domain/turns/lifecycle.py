"""Decide the lifecycle of a turn: open, notify, lose a lease, wait, fail, and free the session.

Pure, as `lanes`: callers pass in locked sessions and turns and get effects back.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import to_json

from chatlane.domain.counts import CountName
from chatlane.domain.dead_letters import add_dead_letter
from chatlane.domain.effects import Effects, Publication, UnansweredTurn
from chatlane.domain.fast_json import turn_notice
from chatlane.domain.ids import derived_id, time_of
from chatlane.domain.notices import NoticeId
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.sessions.session_flags import count_interruption, suspend_session
from chatlane.domain.states import Session, Turn
from chatlane.domain.turns.turn_events import note_ended, note_waiting
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.live_turns import TurnFailure, TurnOutcome, WaitReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Outcome, Part
from chatlane_schemas.session_api.transcripts import Unanswered
from chatlane_schemas.topology.subjects import turn as turn_subject

if TYPE_CHECKING:
    from datetime import datetime

    from chatlane.domain.notices import Notices
    from chatlane_schemas.results import ResultMessage
    from chatlane_schemas.source import Source
    from chatlane_schemas.turns import CancelReason

# How long an unclaimed turn waits for its next notification, by notifications sent so far. A worker
# claims what it has fetched at once; without a claim by the first repeat it is dead (ADR 0023).
_REPEATS: Final = tuple(timedelta(seconds=s) for s in (3, 10, 30, 60, 120, 300))
MAX_TURN_MESSAGES: Final = 50
MAX_TURN_BYTES: Final = 256 * 1024
# The chat gets a notice of a turn that waits at least this long for its agent.
_NOTICE_AFTER: Final = timedelta(seconds=10)
# Attempts in a row, over all turns of a session, that may be lost with their workers.
_STUCK_AFTER: Final = 3


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


def note_end(turn: Turn, session: Session, at: datetime) -> None:
    """Restart the idle time of a session at the end of a turn that answered a person."""
    if turn.is_asked and not turn.is_live:
        note_answer(session, at)


def note_answer(session: Session, at: datetime) -> None:
    """Restart the idle time of a session at an answer to a person."""
    last = session.asked_turn_ended_at
    session.asked_turn_ended_at = at if last is None else max(at, last)


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
    if not turn.wait_told and waited + wait >= _NOTICE_AFTER and unavailable.target is not None:
        turn.wait_told = True
        notice_id = derived_id(time_of(turn.id), turn.id.bytes, "unavailable notice")
        target, kind = unavailable.target, OutboundKind.NOTICE
        speaking = Speaking(session, turn.agent, target, at, turn.id, kind)
        text = notices.text(NoticeId.AGENT_UNAVAILABLE)
        speaking.say(Part(text=text), notice_id, effects)
    return True


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
    free_session(session, at, turn.id.bytes, has_waiting=has_waiting, effects=effects)


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
    free_session(session, time_of(turn.id), turn.id.bytes, has_waiting=has_waiting, effects=effects)


def free_session(
    session: Session, at: datetime, trigger: bytes, *, has_waiting: bool, effects: Effects
) -> None:
    """End the active turn of a session, and open the next one if messages wait."""
    session.active_turn = None
    if has_waiting:
        open_turn(session, at, trigger, effects)
