"""Merge lanes and update addresses when two ids turn out to be one person or chat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.keys import ParsedKey, key_text, parse_session_key
from chatlane.domain.lanes import is_anothers
from chatlane.domain.sessions.session_flags import end_session
from chatlane.domain.states import Lane, Session
from chatlane.domain.turns.lifecycle import open_turn, void_turn
from chatlane.store import audit, turns
from chatlane.store.conversations import lane_merges, sessions
from chatlane.store.conversations.lane_merges import LaneRow
from chatlane_schemas.events import EndReason

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.addressing.sources import ChatClass
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.effects import Effects
    from chatlane.domain.resolved_message import ResolvedMessage

# For this time routed messages of an ended session may still be answered.
_ANSWERED_WITHIN: Final = timedelta(days=1)
_CLASSES: Final[tuple[ChatClass, ...]] = ("dm", "group")


@dataclass(slots=True)
class LaneMerger:
    """Merge lanes of one conversation that were created under different ids.

    The lanes were read before their sessions were locked. Until then another transaction may have
    ended a session and pointed its lane to a new one; no lane would point to that session once
    the lane is deleted. So each lane must still point to the session that was read.

    Attributes:
        lanes: The lanes of the batch by key, including those under former keys.
        locked: The sessions to which these lanes point, in their database state.
        owners: The owner names in older sessions of a person, by the owner of the new ones.
    """

    connection: PoolConnectionProxy
    lanes: dict[str, Lane]
    locked: dict[UUID, Session]
    effects: Effects
    owners: Mapping[str, frozenset[str]]

    async def join(self, message: ResolvedMessage) -> None:
        """Move or merge every lane under a former key of this message into its current key."""
        popped = (self.lanes.pop(former_key, None) for former_key in message.former_keys)
        # Session ids sort by time: the oldest of several lanes is kept.
        for lane in sorted(filter(None, popped), key=lambda lane: lane.session_id):
            await self._bring(message, lane)

    async def _bring(self, message: ResolvedMessage, lane: Lane) -> None:
        current = self.lanes.get(message.session_key)
        if current is None:
            await self._rename(message, lane)
            return
        newer = self.locked.get(lane.session_id)
        older = self.locked.get(current.session_id)
        await lane_merges.delete_lane(
            self.connection,
            LaneRow(lane.session_key, lane.session_id),
            LaneRow(current.session_key, current.session_id),
        )
        if newer is None or older is None or newer.ended_at is not None:
            return
        if any(is_anothers(message, session.owner, self.owners) for session in (newer, older)):
            # A damaged lane: the message opens a new session.
            self.effects.repaired_lanes.append(lane.session_key)
            return
        await self._merge(message, newer, older)

    async def _rename(self, message: ResolvedMessage, lane: Lane) -> None:
        row = LaneRow(lane.session_key, lane.session_id)
        await lane_merges.rename_lane(self.connection, row, message.session_key)
        self.lanes[message.session_key] = Lane(
            message.session_key, lane.session_id, bound_to=lane.session_id
        )
        session = self.locked.get(lane.session_id)
        if session is not None and not is_anothers(message, session.owner, self.owners):
            session.session_key = message.session_key

    async def _merge(self, message: ResolvedMessage, newer: Session, older: Session) -> None:
        moved = await lane_merges.move_waiting(
            self.connection, newer.id, older.id, message.session_key, older.next_arrival
        )
        older.next_arrival += moved
        older.last_activity_at = _later(older.last_activity_at, newer.last_activity_at)
        older.asked_turn_ended_at = _later(older.asked_turn_ended_at, newer.asked_turn_ended_at)
        await self._drop_unclaimed_turn(newer)
        end_session(newer, message.stored_at, EndReason.MERGED, self.effects)
        newer.parent_id = older.id
        newer.link_kind = "merged"
        if moved and older.active_turn is None:
            open_turn(older, message.stored_at, newer.id.bytes, self.effects)
        detail = {"into": older.id, "moved_messages": moved}
        await audit.write(self.connection, "session_merged", newer.id, detail)

    async def _drop_unclaimed_turn(self, session: Session) -> None:
        """Void an unclaimed turn, which has lost its messages; a running turn ends normally."""
        if session.active_turn is None:
            return
        found = await turns.lock(self.connection, [session.active_turn])
        for turn in found.values():
            if turn.is_unclaimed:
                void_turn(turn, session, has_waiting=False, effects=self.effects)


def _later(first: datetime | None, second: datetime | None) -> datetime | None:
    return max(filter(None, (first, second)), default=None)


async def update_addresses(
    connection: PoolConnectionProxy, message: ResolvedMessage, catalog: Catalog
) -> None:
    """Update the address of open answers to the new id of a chat that moved."""
    chat, new = message.event.chat, message.moves_to
    if chat is None or chat.id is None or new is None:
        return
    key, *former = map(parse_session_key, (message.session_key, *message.former_keys))
    # The chat may have moved before: lanes are named by its first id, or by a later id until a
    # message merges them, and addresses by any of these ids.
    ids = {chat.id, *(parsed.chat for parsed in (key, *former) if parsed.chat is not None)} - {new}
    prefixes = [
        key_text(ParsedKey(profile, key.platform, key.account, chat_class, chat_id))
        for profile in catalog.profiles
        for chat_class in _CLASSES
        for chat_id in ids
    ]
    # Lanes may point elsewhere by now, while turns of the old sessions are still answered.
    rows = await lane_merges.sessions_of_chats(
        connection, prefixes, message.stored_at - _ANSWERED_WITHIN
    )
    session_ids = {
        row.session_id for row in rows if parse_session_key(row.session_key).scope == key.scope
    }
    if session_ids:
        await sessions.lock(connection, session_ids)
        await lane_merges.update_addresses(connection, sorted(session_ids), sorted(ids), new)
