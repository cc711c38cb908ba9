"""Expire turn leases and resend unclaimed notifications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.catalog import Agent
from chatlane.domain.effects import Effects
from chatlane.domain.notices import NoticeId
from chatlane.domain.turns.claims import claimable, place_messages
from chatlane.domain.turns.lifecycle import (
    MAX_TURN_BYTES,
    MAX_TURN_MESSAGES,
    TurnFailed,
    UnavailableAgent,
    expire_lease,
    fail_turn,
    note_end,
    repeat_notice,
    void_turn,
    wait_for_agent,
)
from chatlane.domain.turns.parked_turns import expire_question
from chatlane.errors import TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.observability.logs import get_logger
from chatlane.store import agent_pauses, pending_messages, questions, turns
from chatlane.store.conversations import sessions, timed_resets
from chatlane.store.history import edits
from chatlane_schemas.live_turns import TurnFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Session, Turn
    from chatlane.domain.turns.claims import WaitingHead
    from chatlane.postgres.pool import Store
    from chatlane.store.turns import DueTurn

_MOST_AT_ONCE: Final = 200
_UNREAD_PAUSE: Final = timedelta(seconds=15)

_log = get_logger("deadlines")


@dataclass(slots=True)
class Deadlines:
    """Find turns that are due and act on them; several routers may do so at once.

    Attributes:
        unread: Counts the notifications that the workers of an agent have not read yet. While
            there are any, a repeated notification would only lengthen their queue.
    """

    store: Store
    writer: UnitOfWorkFactory
    catalog: Catalog
    unread: Callable[[str], Awaitable[int]]

    async def sweep(self) -> int:
        """Act on all turns that are due; return how many were found."""
        async with self.store.transaction() as connection:
            due = await turns.find_due(connection, _MOST_AT_ONCE)
        if due:
            await self._act(due, await self._agents_with_unread(due))
        return len(due)

    async def _agents_with_unread(self, due: Sequence[DueTurn]) -> set[str]:
        agents = {turn.agent for turn in due if turn.may_be_unread}
        return {agent for agent in agents if await self.unread(agent) > 0}

    async def _act(self, due: Sequence[DueTurn], unread: set[str]) -> None:
        later = {turn.id for turn in due if turn.may_be_unread and turn.agent in unread}
        if later:
            async with self.store.transaction() as connection:
                await turns.postpone(connection, later, _UNREAD_PAUSE)
        now = [turn.id for turn in due if turn.id not in later]
        if now:
            await self._expire_all(now)

    async def _expire_all(self, ids: Sequence[UUID]) -> None:
        """Expire turns in one transaction, or one by one if that transaction fails."""
        try:
            await self._expire_together(ids)
        except TransientError:
            raise
        except Exception as error:
            if len(ids) == 1:
                raise
            _log.warning("turns_swept_alone", turns=len(ids), reason=type(error).__name__)
            for turn_id in ids:
                await self._expire_alone(turn_id)

    async def _expire_alone(self, turn_id: UUID) -> None:
        try:
            await self._expire_together([turn_id])
        except TransientError:
            raise
        except Exception:  # noqa: BLE001 - a bug with one turn must not block all others
            _log.exception("turn_not_swept", turn_id=turn_id)

    async def _expire_together(self, ids: Sequence[UUID]) -> None:
        async with self.writer.begin() as unit_of_work:
            await self._expire(unit_of_work, ids)

    async def _expire(self, unit_of_work: UnitOfWork, ids: Sequence[UUID]) -> None:
        connection = unit_of_work.connection
        session_ids = await turns.find_sessions(connection, ids)
        locked = await sessions.lock_free(connection, set(session_ids.values()))
        found = await turns.lock(
            connection, [turn_id for turn_id in ids if session_ids.get(turn_id) in locked]
        )
        busy = await pending_messages.sessions_with_waiting(connection, locked)
        effects = Effects()
        # Check again under the lock: a turn may have been renewed or finished meanwhile.
        due = [turn for turn in found.values() if turn.is_live and turn.due_in == timedelta(0)]
        begun = [turn.id for turn in due if turn.attempt]
        emptied = await edits.emptied(connection, begun) if begun else set()
        await self._expire_questions(connection, due, emptied, locked, effects)
        held_back = await self._hold_back(connection, due, locked)
        for turn in due:
            session, has_waiting = locked[turn.session_id], turn.session_id in busy
            if turn.id in emptied:
                void_turn(turn, session, has_waiting=has_waiting, effects=effects)
            elif turn.id in held_back and turn.cancel is None:
                await self._wait(
                    connection, turn, session, held_back[turn.id], has_waiting, effects
                )
            else:
                self._end(turn, session, has_waiting, effects)
        ended = [turn for turn in due if turn.is_asked and not turn.is_live]
        if ended:
            now = await timed_resets.now(connection)
            for turn in ended:
                note_end(turn, locked[turn.session_id], now)
        await unit_of_work.write(effects, sessions_of=locked.values())
        if effects.changed_turns:
            hit(RouterPoint.LEASES_ENDED)

    async def _expire_questions(
        self,
        connection: PoolConnectionProxy,
        due: Sequence[Turn],
        emptied: Collection[UUID],
        locked: Mapping[UUID, Session],
        effects: Effects,
    ) -> None:
        """Wake the parked turns whose questions were not answered in time."""
        woken = [
            turn
            for turn in due
            if turn.is_parked and turn.cancel is None and turn.id not in emptied
        ]
        if not woken:
            return
        await questions.expire_parked(connection, [turn.id for turn in woken])
        now = await timed_resets.now(connection)
        for turn in woken:
            turn.has_steps = True
            expire_question(turn, locked[turn.session_id], now, effects)

    async def _hold_back(
        self, connection: PoolConnectionProxy, due: Sequence[Turn], locked: Mapping[UUID, Session]
    ) -> dict[UUID, timedelta]:
        """Return how long unclaimed and retried turns have to wait for an unavailable agent."""
        ready = [turn for turn in due if turn.state == "ready" and turn.cancel is None]
        for turn in ready:
            agent = locked[turn.session_id].agent
            if turn.is_unclaimed and self._serves_turns(agent):
                turn.agent = agent
        agents = {turn.agent for turn in ready}
        pauses = await agent_pauses.lock(connection, agents) if agents else {}
        waits = {}
        for turn in ready:
            if (pause := pauses.get(turn.agent)) is not None:
                wait = pause.admit(turn.id, self._declared(turn.agent).lease)
                if wait > timedelta(0):
                    waits[turn.id] = wait
        await agent_pauses.update_trials(connection, pauses.values())
        return waits

    async def _wait(  # noqa: PLR0917 - what `_end` needs, and the wait
        self,
        connection: PoolConnectionProxy,
        turn: Turn,
        session: Session,
        wait: timedelta,
        has_waiting: bool,  # noqa: FBT001
        effects: Effects,
    ) -> None:
        """Let a turn wait for its agent, or fail it if it has waited for too long."""
        notices = self.catalog.notices_of(session.platform)
        heads: Sequence[WaitingHead] = ()
        if turn.is_unclaimed:
            found = await pending_messages.heads(connection, [session.id], MAX_TURN_MESSAGES)
            heads = found.get(session.id, ())
        target = heads[-1].source if heads else turn.source
        agent = UnavailableAgent(wait, self._declared(turn.agent).max_wait, target)
        now = await timed_resets.now(connection)
        if wait_for_agent(turn, session, agent, now, notices=notices, effects=effects):
            return
        if heads:
            taken = claimable(heads, max_messages=MAX_TURN_MESSAGES, max_bytes=MAX_TURN_BYTES)
            has_waiting = len(taken) < await pending_messages.count(connection, session.id)
            # Failed turns have an attempt: a retry continues with the messages that they took.
            turn.attempt = turn.unbegun = 1
            await pending_messages.take(connection, [place_messages(turn, session, taken)])
        error, text = "the agent was unavailable for too long", notices.text(NoticeId.TURN_FAILED)
        failed = TurnFailed(TurnFailure.UNAVAILABLE, error, text)
        fail_turn(turn, session, failed, has_waiting=has_waiting, effects=effects)

    def _declared(self, name: str) -> Agent:
        return self.catalog.agents.get(name) or Agent(name, max_attempts=1)

    def _end(self, turn: Turn, session: Session, has_waiting: bool, effects: Effects) -> None:  # noqa: FBT001
        if turn.state == "ready" and turn.cancel is not None:
            void_turn(turn, session, has_waiting=has_waiting, effects=effects)
            return
        if turn.state == "ready":
            repeat_notice(turn, effects)
            return
        expire_lease(
            turn,
            session,
            max_attempts=self._declared(turn.agent).max_attempts,
            has_waiting=has_waiting,
            notices=self.catalog.notices_of(session.platform),
            effects=effects,
        )

    def _serves_turns(self, agent: str) -> bool:
        declared = self.catalog.agents.get(agent)
        return declared is not None and declared.delivery == "turns"
