"""Expire turn leases and resend unclaimed notifications."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.effects import Effects
from chatlane.domain.turns.lifecycle import (
    expire_lease,
    note_end,
    repeat_notice,
    void_turn,
)
from chatlane.errors import TransientError
from chatlane.failpoints import RouterPoint, hit
from chatlane.observability.logs import get_logger
from chatlane.store import pending_messages, turns
from chatlane.store.conversations import sessions, timed_resets
from chatlane.store.history import edits

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from uuid import UUID

    from chatlane.decisions.unit_of_work import UnitOfWork, UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.states import Session, Turn
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
            async with self.writer.begin() as unit_of_work:
                await self._expire(unit_of_work, ids)
        except TransientError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug with one turn must not block all others
            if len(ids) == 1:
                _log.exception("turn_not_swept", turn_id=ids[0])
                return
            _log.warning("turns_swept_alone", turns=len(ids), reason=type(error).__name__)
            for turn_id in ids:
                await self._expire_all([turn_id])

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
        for turn in due:
            session, has_waiting = locked[turn.session_id], turn.session_id in busy
            if turn.id in emptied:
                void_turn(turn, session, has_waiting=has_waiting, effects=effects)
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

    def _end(self, turn: Turn, session: Session, has_waiting: bool, effects: Effects) -> None:  # noqa: FBT001
        if turn.state == "ready" and turn.cancel is not None:
            void_turn(turn, session, has_waiting=has_waiting, effects=effects)
            return
        if turn.state == "ready":
            if turn.is_unclaimed and self._serves_turns(session.agent):
                turn.agent = session.agent
            repeat_notice(turn, effects)
            return
        agent = self.catalog.agents.get(turn.agent)
        expire_lease(
            turn,
            session,
            max_attempts=agent.max_attempts if agent else 1,
            has_waiting=has_waiting,
            notices=self.catalog.notices_of(session.platform),
            effects=effects,
        )

    def _serves_turns(self, agent: str) -> bool:
        declared = self.catalog.agents.get(agent)
        return declared is not None and declared.delivery == "turns"
