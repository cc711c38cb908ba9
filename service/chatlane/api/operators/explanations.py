"""Answer requests of operators that ask what the service would decide, and what a session waits for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.decisions import explanation
from chatlane.decisions.operations.switch_and_fork import policy_of
from chatlane.domain.lanes import not_before
from chatlane.domain.policy import next_reset
from chatlane.domain.sessions.refusals import no_session
from chatlane.domain.sessions.session_outlook import outlook_of
from chatlane.store.conversations import session_progress, sessions
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.operators.explanations import (
    ExplainedFact,
    ExplainEvent,
    ExplainEventReply,
    ExplainSession,
    ExplainSessionReply,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chatlane.api.endpoint import Reads
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.sessions.session_outlook import SessionProgress
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Store

_MAX_UNKNOWN: Final = 64
_MAX_VALUE_CHARACTERS: Final = 1000


class ExplanationQueries:
    """Answers requests that ask for explanations."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog

    def table(self) -> Reads:
        """Return the model of each request and the method that answers it."""
        return {
            "explain.event": (ExplainEvent, self._event),
            "explain.session": (ExplainSession, self._session),
        }

    async def _event(self, request: ExplainEvent) -> ExplainEventReply:
        body, now = request.event.encode(), datetime.now(UTC)
        async with self._store.transaction() as connection:
            facts = await explanation.explain(body, self._catalog, now, connection)
        session_id = facts.pop("session_id", None)
        return ExplainEventReply(
            id=new_envelope_id(),
            at=now,
            facts=tuple(_fact(name, value) for name, value in facts.items()),
            session_id=None if session_id is None else UUID(str(session_id)),
            refusal=explanation.refusal_text(facts),
            unknown_fields=tuple(explanation.unknown_fields(body)[:_MAX_UNKNOWN]),
        )

    async def _session(self, request: ExplainSession) -> ExplainSessionReply:
        async with self._store.transaction() as connection:
            session = await sessions.find(connection, request.session_id)
            agent = None if session is None else self._catalog.agents.get(session.agent)
            is_streamed = agent is not None and agent.delivery == "stream"
            progress = await session_progress.find(
                connection, request.session_id, is_streamed=is_streamed
            )
        now = datetime.now(UTC)
        if session is None or progress is None:
            return ExplainSessionReply(id=new_envelope_id(), at=now, error=no_session())
        outlook = outlook_of(progress)
        return ExplainSessionReply(
            id=new_envelope_id(),
            at=now,
            state=outlook.state,
            why=outlook.why,
            next=outlook.next,
            next_at=outlook.next_at,
            facts=tuple(self._facts(session, progress)),
        )

    def _facts(self, session: Session, progress: SessionProgress) -> Iterable[ExplainedFact]:
        turn = progress.turn
        reset = None
        if session.ended_at is None:
            now = not_before(progress.now, session.last_activity_at)
            reset = next_reset(session, policy_of(self._catalog, session.session_key), now)
        facts: dict[str, object] = {
            "agent_declared": session.agent in self._catalog.agents,
            "waiting_messages": progress.waiting or None,
            "waiting_since": progress.waiting_since,
            "turn_opened": None if turn is None else turn.created_at,
            "claimed": None if turn is None else turn.claimed_at,
            "worker": None if turn is None else turn.worker,
            "attempt": None if turn is None else turn.attempt,
            "agent_unavailable_until": _if_later(progress.agent_pause, progress.now),
            "team_talks_until": _if_later(progress.staff_until, progress.now),
            "held_until": _if_later(session.held_until, progress.now),
            "failed_turns": progress.failed_turns or None,
            "next_reset": None if reset is None else f"{reset.reason} at {reset.at.isoformat()}",
        }
        return (_fact(name, value) for name, value in facts.items() if value is not None)


def _if_later(at: datetime | None, now: datetime) -> datetime | None:
    return at if at is not None and at > now else None


def _fact(name: str, value: object) -> ExplainedFact:
    match value:
        case None:
            values: tuple[str, ...] = ()
        case bool():
            values = ("yes" if value else "no",)
        case datetime():
            values = (value.isoformat(),)
        case list() | tuple():
            values = tuple(map(str, value))
        case _:
            values = (str(value),)
    return ExplainedFact(name=name, values=tuple(text[:_MAX_VALUE_CHARACTERS] for text in values))
