"""Point lanes to other sessions: to existing sessions, or to branches of them.

API requests and messages both use this; the caller holds the locks and writes the decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatlane.domain.addressing.keys import parse_session_key
from chatlane.domain.sessions.refusals import conflict, invalid, is_read_only
from chatlane.domain.sessions.session_flags import branch_of, end_session, reopen_session
from chatlane.store.addressing import lanes
from chatlane.store.conversations import lineage, session_changes
from chatlane_schemas.events import EndReason
from chatlane_schemas.fields import MAX_INT64

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.effects import Effects
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.states import Lane, Session
    from chatlane_schemas.session_api.sessions import ApiError


@dataclass(frozen=True, slots=True)
class Rebinding:
    """Point lanes to other sessions within a transaction in progress.

    Sessions and lanes change in memory, and the caller writes them with the effects. A reopened
    session and a branch are written here, because only these two operations do that.

    Attributes:
        locked: The sessions that this transaction has locked, by id.
        effects: The effects to add to. A batch writes its earlier effects first, because a branch
            copies the rows that its parent has in the database.
    """

    connection: PoolConnectionProxy
    catalog: Catalog
    locked: Mapping[UUID, Session]
    effects: Effects
    at: datetime

    async def switch(self, lane: Lane, target: Session) -> ApiError | None:
        """Point a lane to an existing session, or return the reason for a refusal.

        Running turns and pending messages of the previous session are still answered there. That
        session ends unless another lane points to it, and a lane can be switched back to it. The
        target's last activity is set to now; otherwise its policy would end it with the next
        message.

        Args:
            target: The locked session in which `lineage.find_tips` found the conversation to
                continue.
        """
        if refusal := _unfit(lane, target):
            return refusal
        await self._leave(lane, target)
        reopen_session(target, self.at, policy_of(self.catalog, lane.session_key))
        await session_changes.reopen(self.connection, target)
        lane.session_id = target.id
        return None

    async def fork(
        self,
        parent: Session,
        *,
        trigger: bytes,
        through_seq: int | None = None,
        lane: Lane | None = None,
    ) -> Session | ApiError:
        """Create a session that starts as a copy of another one.

        Args:
            parent: The locked session to copy. It does not change, but it ends if `lane` leaves
                it and no other lane points to it.
            through_seq: The place of the last row to copy; None copies all rows.
            lane: A lane that points to `parent`, and to the branch afterwards.
        """
        last = MAX_INT64 if through_seq is None else through_seq
        found = await lineage.find_last_row(self.connection, parent.id, last)
        if through_seq is not None and found != through_seq:
            return invalid("through_seq: there is no such row")
        key = parent.session_key if lane is None else lane.session_key
        branch = branch_of(
            parent,
            session_key=key,
            through_seq=found or 0,
            at=self.at,
            trigger=trigger,
            policy=policy_of(self.catalog, key),
            effects=self.effects,
        )
        await lineage.insert_branch(self.connection, parent, branch)
        if lane is not None:
            await self._leave(lane, branch)
            lane.session_id = branch.id
        return branch

    async def _leave(self, lane: Lane, target: Session) -> None:
        """End the session that a lane is about to leave, if no other lane points to it."""
        left = self.locked.get(lane.session_id)
        if left is None or left.ended_at is not None or left.id == target.id:
            return
        # Pointing another lane there takes the lock of the session, which this transaction holds.
        others = await lanes.find_keys_of(self.connection, left.id)
        if others <= {lane.session_key}:
            end_session(left, self.at, EndReason.SWITCHED, self.effects)


def policy_of(catalog: Catalog, session_key: str) -> ResetPolicy:
    """Return the reset policy in force on a lane."""
    key = parse_session_key(session_key)
    return catalog.reset_policy_for(key.platform, key.chat_class)


def _unfit(lane: Lane, target: Session) -> ApiError | None:
    if target.read_only:
        return is_read_only()
    here, there = map(parse_session_key, (lane.session_key, target.session_key))
    if here.profile != there.profile:
        return conflict("the session is another profile's")
    if here.chat_class == "group" and there.chat_class == "dm":
        # This includes the owner's own session: everyone in the group reads the answers.
        return conflict("the session is a private one, and the chat has other readers")
    return None
