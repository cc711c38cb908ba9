"""Decide requests that change a transcript, including retries and compactions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from chatlane.decisions.operations.rewind import retry
from chatlane.domain.addressing.keys import MalformedKeyError
from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects
from chatlane.requests.compaction import compact_to_child
from chatlane.store.addressing import identities
from chatlane.store.api_requests import answer_once
from chatlane.store.conversations import sessions
from chatlane.store.history import transcript_changes
from chatlane_schemas.envelope import new_envelope_id
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.session_api.transcripts import (
    TranscriptChanged,
    TranscriptCompact,
    TranscriptRetry,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Store
    from chatlane.store.history.transcript_changes import Answer
    from chatlane_schemas.session_api.transcripts import TranscriptChange


class _Case(NamedTuple):
    """A locked session whose transcript changes, and the context of the change."""

    unit_of_work: UnitOfWork
    session: Session
    at: datetime
    trigger: bytes


class TranscriptService:
    """Changes transcripts for callers of the API; makes each change once.

    Args:
        store: Opens the transactions of changes that publish nothing.
        writer: Opens the other transactions, which run one at a time with the router's batches.
        agents: The declared agents by name.
        slots: Number of slots for the messages of a `stream` agent.
    """

    def __init__(
        self, store: Store, writer: UnitOfWorkFactory, agents: Mapping[str, Agent], slots: int
    ) -> None:
        self._store = store
        self._writer = writer
        self._agents = agents
        self._slots = slots

    async def change(
        self, principal: str, request: TranscriptChange, digest: bytes
    ) -> TranscriptChanged:
        """Make a change once and return its answer, which is the same for every repetition.

        Args:
            principal: The caller; request ids are unique per principal.
            request: The change.
            digest: Digest of the request, to detect another request under the same id.

        Raises:
            TransientError: Nothing changed, or the outcome is unknown; the caller repeats it.
        """
        trigger = f"{principal}:{request.id}".encode()
        if _publishes(request):
            async with self._writer.begin() as unit_of_work:

                async def decide(at: datetime) -> TranscriptChanged:
                    return _reply(await self._decide(unit_of_work, request, at, trigger))

                reply = await answer_once(
                    unit_of_work.connection, principal, request, digest, TranscriptChanged, decide
                )
        else:
            async with self._store.transaction() as connection:

                async def write(_at: datetime) -> TranscriptChanged:
                    return _reply(await transcript_changes.change(connection, request))

                reply = await answer_once(
                    connection, principal, request, digest, TranscriptChanged, write
                )
        if reply.session_id is not None:
            self._writer.notify_written({reply.session_id, request.session_id})
        return reply

    async def _decide(
        self, unit_of_work: UnitOfWork, request: TranscriptChange, at: datetime, trigger: bytes
    ) -> Answer:
        session = await _lock_visible(unit_of_work, request)
        if session is None:
            return transcript_changes.not_found()
        if session.ended_at is not None:
            return transcript_changes.conflict("the session has ended")
        case = _Case(unit_of_work, session, at, trigger)
        match request:
            case TranscriptRetry():
                return await self._retry(case, request)
            case TranscriptCompact():
                return await compact_to_child(unit_of_work, session, request, at, case.trigger)
            case _:
                raise TypeError(type(request).__name__)

    async def _retry(self, case: _Case, request: TranscriptRetry) -> Answer:
        connection, session = case.unit_of_work.connection, case.session
        found = await transcript_changes.find_version(connection, session.id)
        if request.expected_version not in {None, found}:
            return transcript_changes.stale()
        if session.active_turn is not None:
            return transcript_changes.conflict("a turn is running")
        effects = Effects()
        agent = self._agents.get(session.agent) or Agent(session.agent)
        try:
            undone = await retry(
                connection,
                session,
                agent,
                at=case.at,
                trigger=case.trigger,
                slots=self._slots,
                effects=effects,
            )
        except MalformedKeyError:
            return transcript_changes.conflict("nothing tells where an answer would go")
        if undone is None:
            return transcript_changes.conflict("nobody has said anything")
        await case.unit_of_work.write(effects, sessions_of=[session])
        return TranscriptChanged(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            session_id=session.id,
            version=await transcript_changes.find_version(connection, session.id),
            removed_rows=undone.removed_rows,
            undone_text=undone.text,
            turn_id=session.active_turn,
        )


def _reply(answer: Answer) -> TranscriptChanged:
    if isinstance(answer, ApiError):
        return TranscriptChanged(id=new_envelope_id(), at=datetime.now(UTC), error=answer)
    return answer


def _publishes(request: TranscriptChange) -> bool:
    """Return True if a change publishes messages, besides the answer to its caller."""
    is_told_of = isinstance(request, TranscriptCompact) and request.in_child
    return is_told_of or isinstance(request, TranscriptRetry)


async def _lock_visible(unit_of_work: UnitOfWork, request: TranscriptChange) -> Session | None:
    """Lock and return the session of a request, or None if `acting_for` may not see it."""
    connection, person = unit_of_work.connection, request.acting_for
    owners = await identities.find_owners(connection, person)
    session = (await sessions.lock(connection, [request.session_id])).get(request.session_id)
    is_visible = session is not None and (owners is None or session.owner in owners)
    return session if is_visible else None
