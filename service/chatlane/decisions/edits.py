"""Find the messages that edits, deletes and late files change, and end turns that became empty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import digest_of
from chatlane.domain.edits import Originals
from chatlane.domain.resolved_message import details_json
from chatlane.domain.turns.claims import NONE, rest_of_line
from chatlane.domain.turns.lifecycle import MAX_TURN_MESSAGES, repeat_notice, void_turn
from chatlane.errors import SupersededError
from chatlane.store import pending_messages, turns
from chatlane.store.history import edits, messages
from chatlane_schemas.inbound import Kind
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.edits import Original
    from chatlane.domain.effects import Effects
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Lane, Session
    from chatlane.store.history.edits import Found, SessionMark


def targets_of(arrived: Iterable[ResolvedMessage]) -> set[bytes]:
    """Return the digests of all messages that are edited or deleted; usually there are none."""
    return {digest for message in arrived for digest in message.targets}


async def find_sessions(connection: PoolConnectionProxy, targets: Iterable[bytes]) -> set[UUID]:
    """Return the sessions to lock before messages in them can change."""
    marks = await edits.find_marks(connection, targets)
    return {mark.session_id for found in marks.values() for mark in found}


async def find_questions(
    connection: PoolConnectionProxy, arrived: Iterable[ResolvedMessage]
) -> dict[bytes, list[UUID]]:
    """Return the sessions to lock for opened threads and arrived files, by message digest.

    They are the sessions of messages on which threads were opened or which wait for their files.
    """
    digests = {digest for message in arrived for digest in message.thread_of or message.files_of}
    marks = await edits.find_marks(connection, digests) if digests else {}
    return {
        digest: [mark.session_id for mark in found if not mark.is_copy]
        for digest, found in marks.items()
    }


async def load(
    connection: PoolConnectionProxy,
    arrived: Sequence[ResolvedMessage],
    awaited: set[bytes],
    *,
    bound: Mapping[str, Lane],
    locked_sessions: set[UUID],
) -> Originals:
    """Return the messages that the edits and deletes of a batch change.

    Args:
        awaited: Digests of messages of which only edits have arrived; the decisions update it.
        locked_sessions: Ids of the sessions to lock, including ids that do not exist.

    Raises:
        SupersededError: A message is in a session that is not locked.
    """
    changing = [message for message in arrived if message.targets]
    marks = await edits.find_marks(connection, targets_of(changing))
    if not locked_sessions.issuperset(
        mark.session_id for group in marks.values() for mark in group
    ):
        raise SupersededError("seen")
    wanted = {
        (session_id, message.event.message_id or "")
        for message in changing
        for session_id in _sessions_of(message, marks, bound)
    }
    there: dict[tuple[UUID, str], list[Found]] = {}
    archived: dict[tuple[UUID, str], list[Found]] = {}
    for found in await edits.find(connection, wanted) if wanted else ():
        stored = found.original
        here = archived if stored.removal else there
        here.setdefault((stored.session_id, stored.platform_message_id), []).append(found)
    early = await edits.find_early(connection, awaited) if awaited else {}
    loaded = Originals(awaited=awaited, early=early)
    for message in changing:
        original = _chosen(message, there, marks, bound)
        removed = [
            candidate.original
            for session_id in sorted(_sessions_of(message, marks, bound))
            for candidate in archived.get((session_id, message.event.message_id or ""), ())
            if candidate.digest in _addresses(message)
        ]
        if original is None and removed:
            # It comes back as it is now if the change that removed it is undone.
            original = removed.pop(0)
        if original is not None:
            original.copies += removed
            loaded.found.update(dict.fromkeys(message.targets, original))
    return loaded


def _marks_of(
    message: ResolvedMessage, marks: Mapping[bytes, Sequence[SessionMark]]
) -> list[SessionMark]:
    return [mark for digest in message.targets for mark in marks.get(digest, ())]


def _sessions_of(
    message: ResolvedMessage,
    marks: Mapping[bytes, Sequence[SessionMark]],
    bound: Mapping[str, Lane],
) -> set[UUID]:
    lane = bound.get(message.session_key)
    here = set() if lane is None else {lane.session_id}
    return here | {mark.session_id for mark in _marks_of(message, marks)}


def _chosen(
    message: ResolvedMessage,
    found: Mapping[tuple[UUID, str], Sequence[Found]],
    marks: Mapping[bytes, Sequence[SessionMark]],
    bound: Mapping[str, Lane],
) -> Original | None:
    """Return the message that an edit or a delete changes, with its copies in branches."""
    number = message.event.message_id or ""
    marked = _marks_of(message, marks)
    copies = [
        candidate.original
        for session_id in dict.fromkeys(mark.session_id for mark in marked if mark.is_copy)
        for candidate in found.get((session_id, number), ())
        # Messages that were written in the branch itself have a message id.
        if candidate.original.message_id is None and candidate.digest in _addresses(message)
    ]
    lane = bound.get(message.session_key)
    here = () if lane is None else found.get((lane.session_id, number), ())
    original = _itself(message, found, [mark for mark in marked if not mark.is_copy], here)
    if original is None and copies:
        # It was removed from the session where it was written, and exists in branches only.
        original = copies[0]
    if original is not None:
        original.copies = [copy for copy in copies if copy is not original]
    return original


def _itself(
    message: ResolvedMessage,
    found: Mapping[tuple[UUID, str], Sequence[Found]],
    marked: Sequence[SessionMark],
    here: Sequence[Found],
) -> Original | None:
    """Return the original message in its current session.

    The dedupe mark of the message names its session. A session can contain two chats that use the
    same message ids, so the message has to match by arrival or by address, or be the only one
    with its id. Marks expire after some days; then the session of the lane (`here`) is searched by
    address.
    """
    number = message.event.message_id or ""
    sessions = dict.fromkeys(mark.session_id for mark in marked)
    there = [
        candidate for session_id in sessions for candidate in found.get((session_id, number), ())
    ]
    arrivals = {(mark.session_id, mark.arrival) for mark in marked}
    for candidate in there:
        where = (candidate.original.session_id, candidate.original.place)
        if candidate.original.is_waiting and where in arrivals:
            return candidate.original
    addresses = _addresses(message)
    for candidate in (*there, *here):
        if candidate.digest in addresses:
            return candidate.original
    return there[0].original if len(there) == 1 else None


def _addresses(message: ResolvedMessage) -> set[bytes]:
    """Return the digests under which the sources of messages name the message in its chat.

    Marks of a message in a DM with a reassigned id are stored under the name of its person.
    """
    return {*message.targets, digest_of(source_of(message.event))}


async def void_emptied(
    connection: PoolConnectionProxy,
    emptied: Iterable[UUID],
    sessions: Mapping[UUID, Session],
    effects: Effects,
) -> None:
    """End turns that have no messages left and that no worker has claimed.

    A running turn continues, because its worker may have caused effects already. If it fails, it
    is not retried.

    Args:
        emptied: Turns that lost a message; the deletes are written already.
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


async def bring_files(
    connection: PoolConnectionProxy,
    message: ResolvedMessage,
    here: Session,
    others: Sequence[Session],
    effects: Effects,
) -> ResolvedMessage:
    """Attach the files and words of an event to its message, and return what remains to place.

    Earlier decisions of the batch have to be in the database. A message is pending in the session
    in which it was written, even if its lane points to another session since. Files that arrive
    after a turn has run with their message become a separate message. Files of a message that
    will not be answered are added to its row and start no turn. An event without any says that none
    will come: the message waits no longer.

    Args:
        message: An event of kind `attachments` that is no duplicate.
        here: The session to which its lane points; locked, like the others.
        others: Other sessions in which the message may be pending.
    """
    message_id = message.event.message_id
    if message_id is None:
        return message
    words = message.event.text
    files = [
        attachment.model_dump(mode="json", exclude_none=True)
        for attachment in message.event.attachments
    ]
    for session in (here, *others):
        if await pending_messages.bring_files(
            connection,
            session.id,
            message_id,
            files,
            words=words,
            size_bytes=message.size_bytes,
        ):
            await _wake(connection, session, effects)
            return message
        if files and await messages.bring_files(connection, session.id, message_id, files, words):
            return message
    if message.event.is_empty or not await messages.has_platform_message(
        connection, here.id, message_id
    ):
        return message
    late = message.event.model_copy(update={"kind": Kind.MESSAGE})
    return message._replace(event=late, details=details_json(late))


async def _wake(connection: PoolConnectionProxy, session: Session, effects: Effects) -> None:
    """Announce a turn to the workers if it was debounced for these files only."""
    if session.active_turn is None:
        return
    found = await turns.lock(connection, [session.active_turn])
    turn = found.get(session.active_turn)
    if turn is None or turn.rest != "resting":
        return
    heads = await pending_messages.heads(connection, [session.id], MAX_TURN_MESSAGES)
    turn.due_in = min(turn.due_in, rest_of_line(heads.get(session.id, ()), turn))
    if turn.due_in == NONE:
        repeat_notice(turn, effects)
    else:
        effects.due_within(turn.due_in)
    # Not deferred: later messages of the same batch may read the turn again.
    await turns.update(connection, [turn])
