"""Finds the messages that events are about, and ends turns that deletes left empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.domain.edits import Originals
from chatlane.domain.turns.lifecycle import void_turn
from chatlane.errors import SupersededError
from chatlane.store import pending_messages, turns
from chatlane.store.history import edits
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.edits import Original
    from chatlane.domain.effects import Effects
    from chatlane.domain.lanes import Arrived
    from chatlane.domain.states import Lane, Session
    from chatlane.store.history.edits import Found, Home


def targets_of(arrived: Iterable[Arrived]) -> set[bytes]:
    """Return the digests of all messages that are edited or deleted; most batches have none."""
    return {digest for one in arrived for digest in one.targets}


async def find_sessions(connection: PoolConnectionProxy, targets: Iterable[bytes]) -> set[UUID]:
    """Return the sessions to lock before messages in them can change."""
    homes = await edits.find_homes(connection, targets)
    return {home.session_id for found in homes.values() for home in found}


async def find_questions(
    connection: PoolConnectionProxy, arrived: Iterable[Arrived]
) -> dict[bytes, list[UUID]]:
    """Return by digest the sessions of the messages that threads were opened on; to be locked.

    Also of the messages that wait for their files.
    """
    digests = {digest for one in arrived for digest in one.thread_of or one.files_of}
    homes = await edits.find_homes(connection, digests) if digests else {}
    return {
        digest: [home.session_id for home in found if not home.is_copy]
        for digest, found in homes.items()
    }


async def load(
    connection: PoolConnectionProxy,
    arrived: Sequence[Arrived],
    awaited: set[bytes],
    *,
    bound: Mapping[str, Lane],
    homes_locked: set[UUID],
) -> Originals:
    """Return what the edits and deletes of a batch are about.

    Args:
        awaited: Digests whose marks say that only edits have come; kept up to date.
        homes_locked: Sessions whose locks were asked for, whether they are there or not.

    Raises:
        SupersededError: One of the messages went to another session.
    """
    changing = [one for one in arrived if one.targets]
    homes = await edits.find_homes(connection, targets_of(changing))
    if not homes_locked.issuperset(home.session_id for its in homes.values() for home in its):
        raise SupersededError("seen")
    wanted = {
        (session_id, one.event.message_id or "")
        for one in changing
        for session_id in _sessions_of(one, homes, bound)
    }
    there: dict[tuple[UUID, str], list[Found]] = {}
    for found in await edits.find(connection, wanted) if wanted else ():
        its = found.original
        there.setdefault((its.session_id, its.platform_message_id), []).append(found)
    early = await edits.find_early(connection, awaited) if awaited else {}
    loaded = Originals(awaited=awaited, early=early)
    for one in changing:
        original = _chosen(one, there, homes, bound)
        if original is not None:
            loaded.found.update(dict.fromkeys(one.targets, original))
    return loaded


def _homes_of(one: Arrived, homes: Mapping[bytes, Sequence[Home]]) -> list[Home]:
    return [home for digest in one.targets for home in homes.get(digest, ())]


def _sessions_of(
    one: Arrived, homes: Mapping[bytes, Sequence[Home]], bound: Mapping[str, Lane]
) -> set[UUID]:
    lane = bound.get(one.session_key)
    here = set() if lane is None else {lane.session_id}
    return here | {home.session_id for home in _homes_of(one, homes)}


def _chosen(
    one: Arrived,
    found: Mapping[tuple[UUID, str], Sequence[Found]],
    homes: Mapping[bytes, Sequence[Home]],
    bound: Mapping[str, Lane],
) -> Original | None:
    """Return the one message that an edit or a delete is about, with its copies in branches."""
    number = one.event.message_id or ""
    marked = _homes_of(one, homes)
    copies = [
        its.original
        for session_id in dict.fromkeys(home.session_id for home in marked if home.is_copy)
        for its in found.get((session_id, number), ())
        # What was said in the branch itself has an id of its own.
        if its.original.message_id is None and its.digest in _addresses(one)
    ]
    lane = bound.get(one.session_key)
    here = () if lane is None else found.get((lane.session_id, number), ())
    original = _itself(one, found, [home for home in marked if not home.is_copy], here)
    if original is None and copies:
        # It was taken back where it was said, and stands in branches.
        original = copies[0]
    if original is not None:
        original.copies = [copy for copy in copies if copy is not original]
    return original


def _itself(
    one: Arrived,
    found: Mapping[tuple[UUID, str], Sequence[Found]],
    marked: Sequence[Home],
    here: Sequence[Found],
) -> Original | None:
    """Return the message itself, where it is now.

    The mark of the message says where it went. A session can hold two chats that number alike,
    so a message there has to have its arrival or its address, or be the only one of its number.
    Where the mark is gone after some days, the session of the lane (`here`) is asked for its
    address.
    """
    number = one.event.message_id or ""
    sessions = dict.fromkeys(home.session_id for home in marked)
    there = [its for session_id in sessions for its in found.get((session_id, number), ())]
    arrivals = {(home.session_id, home.arrival) for home in marked}
    for its in there:
        where = (its.original.session_id, its.original.place)
        if its.original.is_waiting and where in arrivals:
            return its.original
    addresses = _addresses(one)
    for its in (*there, *here):
        if its.digest in addresses:
            return its.original
    return there[0].original if len(there) == 1 else None


def _addresses(one: Arrived) -> set[bytes]:
    """Return the digests of the message in its chat as sources of messages name that.

    Marks of a message in a DM whose id was handed on are under the name of its person.
    """
    return {*one.targets, digest_of(source_of(one.event))}


async def void_emptied(
    connection: PoolConnectionProxy,
    emptied: Iterable[UUID],
    sessions: Mapping[UUID, Session],
    effects: Effects,
) -> None:
    """End turns that have nothing left to answer and that nobody works on now.

    One that runs goes on: its worker may have done things already. Should it fail, nobody takes
    it up again.

    Args:
        emptied: Turns that lost a message; all of it is written.
    """
    empty = await edits.emptied(connection, emptied)
    found = await turns.lock(connection, empty) if empty else {}
    idle = [
        turn for turn in found.values() if turn.state == "ready" and turn.session_id in sessions
    ]
    busy = await pending_messages.sessions_with_waiting(
        connection, [turn.session_id for turn in idle]
    )
    for turn in idle:
        has_waiting = turn.session_id in busy
        void_turn(turn, sessions[turn.session_id], has_waiting=has_waiting, effects=effects)
