"""Retry or drop dead letters at the request of an operator."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never
from uuid import UUID

from pydantic_core import from_json

from chatlane.domain.addressing.alias_rows import lookups, person_lookups
from chatlane.domain.addressing.sources import address_of
from chatlane.domain.effects import Effects, Publication
from chatlane.domain.log import MOST_PARTITIONS
from chatlane.domain.turns.lifecycle import repeat_notice
from chatlane.errors import ChatlaneError
from chatlane.store import audit, dead_letters, outbox, turns
from chatlane.store.addressing import identities
from chatlane.store.conversations import sessions
from chatlane.store.history import edits, messages
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason, Stage
from chatlane_schemas.inbound import InboundEvent
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import DEFAULT_SLOTS, StreamName
from chatlane_schemas.topology.subjects import SubjectError, parse_log, parse_rlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import DeadRow
    from chatlane.domain.states import Session
    from chatlane.postgres.pool import Store
    from chatlane_schemas.turns import TurnMessage

_STREAMS: Final[Mapping[str, StreamName]] = {
    "routed": StreamName.ROUTED,
    "turn": StreamName.TURNS,
    "outbound": StreamName.OUTBOUND,
    "event": StreamName.EVENTS,
    "dead": StreamName.DEAD,
}


_BUSY_INTERVAL: Final = timedelta(milliseconds=200)
_LOGGED: Final = frozenset({Stage.INBOUND, Stage.RESULTS})
# Number of tokens before the partition token in a subject of a log.
_BEFORE_PARTITION: Final = 3


class NotRetriedError(ChatlaneError):
    """A dead letter was not retried or dropped; the text gives the reason."""


class ConversationBusyError(NotRetriedError):
    """A failed turn was not retried, because a turn of its conversation has not ended."""


class Handed(NamedTuple):
    """A dead letter that was handed over for publishing.

    Attributes:
        outbox_id: Id of the outbox row that a router will publish; None if it is published.
    """

    letter: DeadRow
    outbox_id: int | None


class Retrying:
    """Retries and drops dead letters one by one.

    A message of a router goes to the outbox in the transaction that deletes the letter, and the
    sweep of any router publishes it. A message of a log is published here, as its publisher would
    do, and the letter is deleted afterwards. If this process dies in between, the next attempt
    publishes it again under the same id, and the routers drop the duplicate.

    Args:
        publish: Returns once a stream has stored the message; if it raises, the letter stays.
        actor: The operator, for the audit.
        slots: Number of slots for the messages of a `stream` agent.
    """

    def __init__(
        self,
        store: Store,
        publish: Callable[[Publication], Awaitable[None]],
        actor: str | None = None,
        *,
        slots: int = DEFAULT_SLOTS,
    ) -> None:
        self._slots = slots
        self._actor = actor
        self._store = store
        self._publish = publish

    async def retry(self, letter_id: UUID, *, out_of_order: bool = False) -> Handed:
        """Hand a letter over for publishing.

        A message of a log is appended to that log, so it comes after everything that its chat has
        sent since. Older letters of the same chat or session must go first.

        Raises:
            NotRetriedError: This letter cannot be retried, or not now; others may.
            StoreUnavailableError: Nothing changed.
        """
        async with self._store.transaction() as connection:
            letter = await dead_letters.lock(connection, letter_id)
            if letter is None:
                raise NotRetriedError(f"there is no dead letter {letter_id}")
            outbox_id = await hand_over(
                connection, letter, self._publish, self._slots, out_of_order=out_of_order
            )
            await settle(connection, letter, "dead_letter_retried", actor=self._actor)
        return Handed(letter, outbox_id)

    async def retry_when_idle(
        self, letter_id: UUID, patience: timedelta, *, out_of_order: bool = False
    ) -> Handed:
        """Hand a letter over as soon as no turn of its conversation is in work.

        Raises:
            NotRetriedError: It cannot be retried, or its conversation was in work for too long.
            StoreUnavailableError: Nothing changed.
        """
        ends_at = monotonic() + patience.total_seconds()
        while True:
            try:
                return await self.retry(letter_id, out_of_order=out_of_order)
            except ConversationBusyError:
                if monotonic() >= ends_at:
                    raise
            await asyncio.sleep(_BUSY_INTERVAL.total_seconds())

    async def drop(self, letter_id: UUID) -> DeadRow:
        """Delete a letter; an audit entry without the body remains.

        Raises:
            NotRetriedError: There is no such letter.
            StoreUnavailableError: Nothing changed.
        """
        async with self._store.transaction() as connection:
            letter = await dead_letters.lock(connection, letter_id)
            if letter is None:
                raise NotRetriedError(f"there is no dead letter {letter_id}")
            await settle(connection, letter, "dead_letter_dropped", actor=self._actor)
        return letter

    async def is_published(self, handed: Handed) -> bool:
        """Return True if a letter that was handed over is published."""
        if handed.outbox_id is None:
            return True
        async with self._store.transaction() as connection:
            return not await outbox.exists(connection, handed.outbox_id)


def is_logged(letter: DeadRow) -> bool:
    """Return whether the message of a letter goes to a log, whose publishers are not routers."""
    return letter.stage in _LOGGED


async def publication_of(connection: PoolConnectionProxy, letter: DeadRow) -> Publication | None:
    """Return the way to retry the message of a log; None for other letters.

    Raises:
        NotRetriedError: The letter cannot be retried, or not now.
    """
    await _require_oldest(connection, letter)
    if letter.stage == Stage.TURNS:
        return None
    publication = _publication(letter)
    if letter.stage not in _LOGGED:
        return None
    await _require_same_people(connection, letter)
    return publication


async def hand_over(
    connection: PoolConnectionProxy,
    letter: DeadRow,
    publish: Callable[[Publication], Awaitable[None]],
    slots: int,
    *,
    out_of_order: bool = False,
) -> int | None:
    """Hand a locked letter over for publishing; `settle` deletes it afterwards.

    Returns:
        Id of the outbox row that a router will publish; None if it is published.

    Raises:
        NotRetriedError: It cannot be retried, or not now. Nothing is written.
    """
    if not out_of_order:
        await _require_oldest(connection, letter)
    if letter.stage == Stage.TURNS:
        return await _reopen_turn(connection, letter)
    publication = _publication(letter)
    if letter.stage in _LOGGED:
        await _require_same_people(connection, letter)
        await publish(publication)
        return None
    if letter.session_id is not None:
        # Outbox ids set the order of the session's messages, so insert under its lock.
        locked = await sessions.lock(connection, {letter.session_id})
        if letter.session_id not in locked:
            raise NotRetriedError("its conversation is removed")
        if letter.stage == Stage.ROUTED:
            publication = _routed(publication, locked[letter.session_id], slots)
    return await outbox.leave(connection, publication)


async def settle(
    connection: PoolConnectionProxy, letter: DeadRow, action: str, *, actor: str | None
) -> None:
    """Delete a letter; an audit entry without the body remains."""
    await dead_letters.delete(connection, letter.id)
    detail = {
        "id": letter.id,
        "stage": letter.stage,
        "reason": letter.reason,
        "log": letter.log,
        "sequence": letter.sequence,
        "digest": letter.digest.hex(),
    }
    await audit.write(connection, action, letter.session_id, detail, actor=actor, outcome="done")


async def written_in(connection: PoolConnectionProxy, letter: DeadRow) -> Sequence[TurnMessage]:
    """Return the messages of people in the turn of a letter; nothing for other letters."""
    if letter.stage != Stage.TURNS or letter.body is None:
        return ()
    turn_id = UUID(from_json(letter.body)["turn_id"])
    return (await messages.of_turns(connection, [turn_id])).get(turn_id, ())


async def first_texts(connection: PoolConnectionProxy, letter: DeadRow) -> list[str]:
    """Return the present text of the message whose id a letter has; empty for other reasons."""
    if letter.reason != DeadReason.MESSAGE_ID_REUSED or letter.session_id is None:
        return []
    try:
        message_id = decode(InboundEvent, letter.body or b"").message_id
    except DecodeError:
        return []
    found = await edits.find(connection, [(letter.session_id, message_id)] if message_id else [])
    return [first.original.content or "" for first in found]


def _routed(publication: Publication, session: Session, slots: int) -> Publication:
    """Readdress a message to the session's current slot, since the slot count may have changed."""
    _require_agent(session, publication.subject.split(".")[3])
    slot = subjects.slot_of(session.id, slots)
    return publication._replace(subject=subjects.routed(session.agent, slot, session.id))


async def _reopen_turn(connection: PoolConnectionProxy, letter: DeadRow) -> int:
    pointer = from_json(letter.body or b"{}")
    turn_id = pointer.get("turn_id")
    session_ids = await turns.find_sessions(connection, [turn_id] if turn_id else [])
    locked = await sessions.lock(connection, set(session_ids.values()))
    found = await turns.lock(connection, session_ids)
    if not found:
        raise NotRetriedError("its turn is gone")
    (turn,) = found.values()
    session = locked[turn.session_id]
    if session.ended_at is not None:
        raise NotRetriedError("its conversation has ended")
    if session.active_turn is not None:
        raise ConversationBusyError("its conversation is in work: try again when that is answered")
    _require_agent(session, turn.agent)
    effects = Effects()
    turn.outcome = turn.error = turn.result_id = turn.token = turn.claim_id = None
    turn.waits_since, turn.wait_told = None, False
    session.active_turn = turn.id
    repeat_notice(turn, effects)
    await sessions.update(connection, [session])
    await turns.update(connection, effects.changed_turns)
    await messages.reopen_turn(connection, turn.id)
    (notice,) = effects.publications
    return await outbox.leave(connection, notice)


async def _require_oldest(connection: PoolConnectionProxy, letter: DeadRow) -> None:
    older = await _find_older(connection, letter)
    if older is not None:
        raise NotRetriedError(
            f"{older} is older and of the same conversation: retry or drop it first"
        )


async def _require_same_people(connection: PoolConnectionProxy, letter: DeadRow) -> None:
    """Raise if an id of the message's author belongs to another person now."""
    if letter.stage != Stage.INBOUND or letter.stored_at is None or letter.body is None:
        return
    try:
        address = address_of(decode(InboundEvent, letter.body))
    except DecodeError:
        return
    ids = lookups(address, persons=True) | person_lookups(address)
    if await identities.are_handed_on(connection, ids, letter.stored_at):
        raise NotRetriedError(
            "an id in it belongs to another person now, who would be taken for its author"
        )


def _require_agent(session: Session, agent: str) -> None:
    if session.agent != agent:
        raise NotRetriedError(f"its conversation is served by {session.agent} now")


async def _find_older(connection: PoolConnectionProxy, letter: DeadRow) -> UUID | None:
    """Return an older letter of the same chat (in a log) or of the same session (otherwise)."""
    if letter.stage not in _LOGGED:
        return await dead_letters.find_older_of_session(connection, letter.id)
    if letter.subject is None:
        return None
    return await dead_letters.find_older(connection, letter.id, _wherever(letter.subject))


def _wherever(subject: str) -> Sequence[str]:
    """Return the subjects of a chat or session in its log, for any number of partitions."""
    match subject.split(".", 4):
        case [*head, _, tail] if len(head) == _BEFORE_PARTITION:
            return [".".join((*head, str(number), tail)) for number in range(MOST_PARTITIONS)]
        case _:
            return [subject]


def _publication(letter: DeadRow) -> Publication:
    """Build the publication with a new id, because a stream may still recognise the old one."""
    if letter.reason == DeadReason.DELIVERY_FAILED:
        raise NotRetriedError("its platform refused it for good: send another message")
    if letter.reason == DeadReason.MESSAGE_ID_REUSED:
        raise NotRetriedError("another message has its id: publish it with an id of its own")
    if not letter.body or letter.subject is None:
        raise NotRetriedError("there is nothing of it to try again: its body is gone")
    if letter.stage not in tuple(Stage):
        raise NotRetriedError("a newer release set it aside: retry it with that one")
    stage = Stage(letter.stage)
    try:
        stream, subject = _place(stage, letter.subject)
    except (SubjectError, LookupError) as exc:
        raise NotRetriedError("its subject leads nowhere: publish a corrected event") from exc
    return Publication(letter.session_id, stream, subject, f"retry:{letter.id}", letter.body)


def _place(stage: Stage, subject: str) -> tuple[StreamName, str]:
    """Return the stream, and the subject as the original publisher wrote it."""
    match stage:
        case Stage.INBOUND:
            event = parse_log(subject)
            return StreamName.INBOUND, subjects.inbound(event.platform, event.account, event.chat)
        case Stage.RESULTS:
            result = parse_rlog(subject)
            return StreamName.RESULTS, subjects.result(result.agent, result.session_id)
        case Stage.ROUTED | Stage.OUTBOX:
            return _STREAMS[subject.split(".")[2]], subject
        case Stage.TURNS:
            raise LookupError(stage)
        case _:
            assert_never(stage)
