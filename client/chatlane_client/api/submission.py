"""The outcome of a submitted message: the turn that answers it, and the answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from chatlane_schemas.live_turns import TurnEnded, TurnOutcome
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.session_api.transcripts import TranscriptEntry, Unanswered


@dataclass(frozen=True, slots=True)
class Submission:
    """A message that was submitted to a session.

    Attributes:
        session: The session that received it.
        message_id: Id of the message, as turns and transcripts name it.
        turn_id: The turn that answered it, or whose question it answered; None for other messages
            unless the caller waited.
        outcome: How that turn ended.
        answer: What the agent answered, from the transcript; None without an answer.
        notice: What the chat was told if the turn failed; None if the caller missed the event.
    """

    session: SessionView
    message_id: UUID
    turn_id: UUID | None = None
    outcome: TurnOutcome | None = None
    answer: str | None = None
    notice: str | None = None


def answered(
    submission: Submission,
    rows: Sequence[TranscriptEntry],
    ended: Mapping[UUID, TurnEnded],
    *,
    is_busy: bool,
) -> Submission | None:
    """Return a submission with its answer; None if the answer is still to come.

    Args:
        submission: The submission.
        rows: The newest rows of the session, oldest first, back to the message if it is there.
        ended: The turns whose end is known.
        is_busy: Whether the session had a turn before the rows were read.
    """
    own = next((row for row in rows if row.message_id == submission.message_id), None)
    turn_id = submission.turn_id if own is None or own.turn_id is None else own.turn_id
    if own is None or (turn_id is None and own.unanswered is None):
        return None
    # What the turn said before, as its question, is no answer to this message.
    of_turn = [
        row for row in rows if turn_id is not None and row.turn_id == turn_id and row.seq > own.seq
    ]
    texts = [row.content for row in of_turn if row.role is Role.ASSISTANT and row.content]
    outcome, notice = _outcome_of(own, has_answer=bool(texts)), None
    end = None if turn_id is None else ended.get(turn_id)
    if end is not None:
        outcome, notice = end.outcome, end.notice
    elif own.unanswered is None and is_busy and not _is_over(rows, own, turn_id):
        return None
    return replace(
        submission,
        turn_id=turn_id,
        outcome=outcome,
        answer="\n\n".join(texts) or None,
        notice=notice,
    )


def _outcome_of(own: TranscriptEntry, *, has_answer: bool) -> TurnOutcome:
    if own.unanswered is not None:
        is_failed = own.unanswered is Unanswered.FAILED
        return TurnOutcome.FAILED if is_failed else TurnOutcome.CANCELLED
    return TurnOutcome.OK if has_answer else TurnOutcome.NO_REPLY


def _is_over(rows: Sequence[TranscriptEntry], own: TranscriptEntry, turn_id: UUID | None) -> bool:
    """Return whether a turn is over: a later turn began.

    Its own rows prove nothing, because a turn may speak before its answer.
    """
    return any(row.turn_id not in {None, turn_id} and row.seq > own.seq for row in rows)
