"""Build the events about a turn, on subjects that name the account whose chat is answered.

The bodies are written without their models, as in `fast_json`: every turn has these events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic_core import to_json

from chatlane.domain.effects import Publication
from chatlane_schemas.content.questions import QuestionEnd
from chatlane_schemas.envelope import VERSION
from chatlane_schemas.fields import amount_text
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from chatlane.domain.effects import Effects
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.content.questions import QuestionKind
    from chatlane_schemas.live_turns import TurnFailure, TurnOutcome, WaitReason
    from chatlane_schemas.results import ResultMessage
    from chatlane_schemas.source import Source


class TurnPointer(NamedTuple):
    """The fields of a turn that its events repeat."""

    id: UUID
    attempt: int
    agent: str
    source: Source | None


class _Asked(Protocol):
    """A question: its id, and the newest outbound message that asks."""

    @property
    def id(self) -> UUID: ...

    @property
    def message_id(self) -> UUID: ...


def live_turn_path(session: Session, source: Source) -> subjects.LiveTurnPath:
    """Return the part of a subject that tells whose turn it is.

    A turn belongs to the account that its answer goes to. A session without an owner is shared.
    """
    audience: subjects.Audience = "shared" if session.owner is None else "person"
    return subjects.LiveTurnPath(source.platform, source.account, audience, session.id)


def turn_started(
    turn: Turn, session: Session, at: datetime, message_ids: Iterable[UUID | None]
) -> Publication | None:
    """Return the event that a worker began the current attempt at a turn."""
    source = turn.source_text
    if source is None:
        return None
    fields: dict[str, object] = {"message_ids": [id_ for id_ in message_ids if id_ is not None]}
    if turn.draft is not None:
        fields["draft"] = turn.draft
    event = _event("started", turn, session, at, fields)
    return event and event._replace(
        payload=b'%b,"source":%b}' % (event.payload[:-1], source.encode())
    )


def note_waiting(
    turn: Turn,
    session: Session,
    at: datetime,
    reason: WaitReason,
    effects: Effects,
    *,
    until: datetime | None = None,
) -> None:
    """Publish that a turn waits for another attempt."""
    fields: dict[str, object] = {"reason": reason}
    if until is not None:
        fields["until"] = until
    withdraw_question(turn, session, at, effects)
    event = _event("waiting", turn, session, at, fields)
    if event is not None:
        effects.publications.append(event)


def note_ended(
    turn: Turn,
    session: Session,
    at: datetime,
    outcome: TurnOutcome,
    effects: Effects,
    *,
    failure: TurnFailure | None = None,
    notice: str | None = None,
    result: ResultMessage | None = None,
    outbound_ids: Sequence[UUID] = (),
) -> None:
    """Publish that a turn is over; a turn that no worker has claimed ends without an event."""
    withdraw_question(turn, session, at, effects)
    fields: dict[str, object] = {"outcome": outcome}
    if failure is not None:
        fields |= {"failure": failure, "notice": notice}
    if result is not None:
        costs = {name: amount_text(amount) for name, amount in result.costs.items()}
        used = {"usage": result.usage, "costs": costs, "gauges": result.gauges}
        fields |= {name: values for name, values in used.items() if values}
    if outbound_ids:
        fields["outbound_ids"] = outbound_ids
    event = _event("ended", turn, session, at, fields)
    if event is not None:
        effects.publications.append(event)


def note_asked(
    turn: Turn | TurnPointer,
    question: _Asked,
    session: Session,
    at: datetime,
    effects: Effects,
    *,
    kind: QuestionKind,
    due_at: datetime,
    is_parked: bool = False,
) -> None:
    """Publish that a turn asks something, and whether it waits for the answer without a worker."""
    fields = {
        "question_id": question.id,
        "kind": kind,
        "due_at": due_at,
        "message_id": question.message_id,
        **({"parked": True} if is_parked else {}),
    }
    event = _event("asked", turn, session, at, fields, message_id=f"turn.asked:{question.id}")
    if event is not None:
        effects.publications.append(event)


def note_question_over(
    turn: Turn | TurnPointer,
    question: _Asked,
    session: Session,
    at: datetime,
    effects: Effects,
    *,
    outcome: QuestionEnd,
) -> None:
    """Publish that a question is not open any more."""
    fields = {
        "question_id": question.id,
        "outcome": outcome,
        "message_id": question.message_id,
    }
    event = _event("answered", turn, session, at, fields, message_id=f"turn.answered:{question.id}")
    if event is not None:
        effects.publications.append(event)


def withdraw_question(turn: Turn, session: Session, at: datetime, effects: Effects) -> None:
    """Publish the end of a question whose attempt ends; `turns.update` ends the question itself."""
    if turn.open_question is not None:
        outcome = QuestionEnd.WITHDRAWN
        note_question_over(turn, turn.open_question, session, at, effects, outcome=outcome)
        turn.open_question = None


def _event(
    verb: str,
    turn: Turn | TurnPointer,
    session: Session,
    at: datetime,
    fields: Mapping[str, object],
    *,
    message_id: str | None = None,
) -> Publication | None:
    if turn.source is None:
        return None
    message_id = message_id or f"turn.{verb}:{turn.id}:{turn.attempt}"
    body = {
        "v": VERSION,
        "id": message_id,
        "at": at,
        "turn_id": turn.id,
        "session_id": session.id,
        "agent": turn.agent,
        "attempt": turn.attempt,
        **fields,
    }
    subject = subjects.turn_event(verb, live_turn_path(session, turn.source))
    return Publication(session.id, "EVENTS", subject, message_id, to_json(body))
