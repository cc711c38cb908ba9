"""Changes routed messages in their stream when they are edited or deleted before a worker has them.

A message of a stream agent stands in ROUTED as it was routed. When its row in the transcript is
edited or deleted, that is noted in the same transaction, and settled here: a deleted message is
deleted from the stream, and an edited one is replaced, together with the messages of its session
behind it, so that they stay in order. A message that a worker was given stays as the worker has
it: were it deleted, the server would give out the next one of its session beside it.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID, uuid4

from pydantic_core import from_json, to_json

from chatlane.domain.effects import Effects, ErasedRow, Publication
from chatlane.domain.turns.retries import route_again
from chatlane.errors import BusUnavailableError, TransientError
from chatlane.jobs import Job
from chatlane.observability.logs import get_logger
from chatlane.privacy import erasure_list_sql
from chatlane.privacy.erasure import delete_noted
from chatlane.store import outbox, routed_changes
from chatlane.store.conversations import sessions
from chatlane_schemas.codec import DecodeError, decode, encode
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.streams import StreamName, routed_durable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import Writer
    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Session
    from chatlane.nats.jetstream import StoredMessage
    from chatlane.privacy.person_data import Streams
    from chatlane.reconciliation.stream_gap_repair import Contents
    from chatlane.store.routed_changes import RoutedRow

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

_CHANGES_AT_ONCE: Final = 200
# More unread messages of one session than this stay as they were routed.
_MOST_UNREAD: Final = 500
# Less than the server pauses a slot for.
_PAUSED_AT_MOST: Final = timedelta(seconds=3)
# A message is stored in its log before it is routed, by another leader's clock.
_CLOCKS: Final = timedelta(seconds=10)

_log = get_logger("routed_changes")


class Slots(Protocol):
    """What is still to be delivered, as this sees it."""

    async def newest(self, session_id: UUID) -> StoredMessage | None:
        """Return the newest message of a session."""
        ...

    async def delivered(self, durable: str) -> int | None:
        """Return the sequence of the newest message that workers were given, if it is there."""
        ...

    async def stored(self, subject: str, first: int, limit: int) -> list[StoredMessage]:
        """Return messages of a subject from a sequence on, in order."""
        ...

    def paused(self, durable: str) -> AbstractAsyncContextManager[None]:
        """Have nothing delivered through a durable for the length of the block."""
        ...


class _Plan(NamedTuple):
    """What is to be done about the messages of a session.

    Attributes:
        deleted: Messages to delete from the stream.
        again: Rows to publish again, in order.
        bodies: The bodies of the messages that were found, by message id.
    """

    deleted: list[StoredMessage]
    again: list[RoutedRow]
    bodies: Mapping[UUID, StoredMessage]


class RoutedChanges:
    """Settles noted changes; any number of routers may do so at once.

    Args:
        slots: The durables of stream agents.
        contents: Tells which messages a stream holds.
        streams: Deletes messages of streams.
        transaction: Opens one.
        writer: For what is published again.
        agents: By name.
        slot_count: How many slots a stream agent's messages are spread over.
    """

    def __init__(
        self,
        slots: Slots,
        contents: Contents,
        streams: Streams,
        transaction: Transaction,
        writer: Writer,
        *,
        agents: Mapping[str, Agent],
        slot_count: int,
    ) -> None:
        self._slots = slots
        self._contents = contents
        self._streams = streams
        self._transaction = transaction
        self._writer = writer
        self._agents = {name: agent for name, agent in agents.items() if agent.delivery == "stream"}
        self._slot_count = slot_count

    def job(self) -> Job:
        """Return what to do how often, besides when something was noted."""
        return Job("routed changes", timedelta(seconds=1), self.settle)

    async def settle(self) -> int:
        """Settle what is noted; returns of how many sessions.

        Raises:
            StoreUnavailableError: Next time.
        """
        async with self._transaction() as connection:
            pending = await routed_changes.pending(connection, _CHANGES_AT_ONCE)
        for session_id in pending:
            try:
                await self._settle(session_id)
            except TransientError as error:
                _log.warning("routed_change_postponed", session_id=session_id, reason=str(error))
            except Exception:  # noqa: BLE001 - one session must not keep the others waiting
                _log.exception("routed_change_failed", session_id=session_id)
        return len(pending)

    async def _settle(self, session_id: UUID) -> None:
        newest = await self._slots.newest(session_id)
        durable = None if newest is None else _durable_of(newest.subject)
        if durable is not None and await self._slots.delivered(durable) is None:
            # Its agent, or its slot, is gone: nobody is given the message.
            durable = None
        async with self._transaction() as connection:
            rows = await routed_changes.unanswered(connection, session_id, _MOST_UNREAD)
        plan = await self._plan(session_id, rows, newest, durable)
        if durable is None or not (plan.again or plan.deleted):
            await self._apply(session_id, newest, durable)
            return
        async with self._slots.paused(durable):
            try:
                async with asyncio.timeout(_PAUSED_AT_MOST.total_seconds()):
                    await self._apply(session_id, newest, durable)
            except TimeoutError as error:
                raise BusUnavailableError("a slot was paused too long") from error

    async def _apply(
        self, session_id: UUID, newest: StoredMessage | None, durable: str | None
    ) -> None:
        """Bring the stream up to the rows, under the lock of the session."""
        effects = Effects()
        async with self._writer.writing() as writing:
            connection = writing.connection
            locked = await sessions.lock(connection, [session_id])
            if await outbox.is_in_line(connection, session_id, StreamName.ROUTED):
                # To be settled once it is in the stream.
                return
            session = locked.get(session_id)
            if session is not None and session.agent in self._agents:
                rows = await routed_changes.unanswered(connection, session_id, _MOST_UNREAD)
                plan = await self._plan(session_id, rows, newest, durable)
                await self._delete(plan.deleted)
                for row in plan.again:
                    self._publish(session, row, plan.bodies.get(row.id), effects)
            await routed_changes.settle(connection, session_id)
            await writing.write(effects)

    async def _plan(
        self,
        session_id: UUID,
        rows: Sequence[RoutedRow],
        newest: StoredMessage | None,
        durable: str | None,
    ) -> _Plan:
        if not any(row.is_changed for row in rows):
            return _Plan([], [], {})
        unread: dict[UUID, StoredMessage] = {}
        if newest is not None and durable is not None:
            first = (await self._slots.delivered(durable) or 0) + 1
            stored = await self._slots.stored(newest.subject, first, _MOST_UNREAD)
            unread = {id_: message for message in stored if (id_ := _id_of(message)) is not None}
        deleted = {row.id: unread[row.id] for row in rows if row.is_deleted and row.id in unread}
        again: list[RoutedRow] = []
        for row in rows:
            if not again and not (row.is_edited and await self._is_unread(session_id, row, unread)):
                continue
            # From the first one that is replaced on, so that they stay in order.
            if row.id in unread:
                deleted[row.id] = unread[row.id]
            if not row.is_deleted:
                again.append(row)
        return _Plan(list(deleted.values()), again, unread)

    async def _is_unread(
        self, session_id: UUID, row: RoutedRow, unread: Mapping[UUID, StoredMessage]
    ) -> bool:
        """Return whether no worker was given a message.

        One that the stream does not hold was deleted by a router that died before it published
        it again.
        """
        if row.id in unread:
            return True
        held = await self._contents.ids_since(
            StreamName.ROUTED,
            f"chat.v1.routed.*.*.{session_id}",
            row.said.created_at - _CLOCKS,
            limit=_MOST_UNREAD,
        )
        return held.is_all and not any(one.startswith(_names(row.id)) for one in held.ids)

    async def _delete(self, messages: Sequence[StoredMessage]) -> None:
        if not messages:
            return
        noted = [ErasedRow(StreamName.ROUTED, its.sequence, its.stored_at) for its in messages]
        async with self._transaction() as connection:
            await erasure_list_sql.note_messages(connection, noted)
        await delete_noted(self._transaction, self._streams, noted, overwrite=True)

    def _publish(
        self, session: Session, row: RoutedRow, message: StoredMessage | None, effects: Effects
    ) -> None:
        # Another name each time: the stream may still know the ones before.
        name = f"again:{row.id}:{uuid4().hex}"
        if message is None:
            route_again(
                session,
                row.said,
                row.id,
                seq=row.seq,
                agent=self._agents[session.agent],
                slots=self._slot_count,
                effects=effects,
            )
            effects.publications[-1] = effects.publications[-1]._replace(message_id=name)
            return
        body = _edited(message.body, row) if row.is_changed else message.body
        effects.publications.append(
            Publication(session.id, StreamName.ROUTED, message.subject, name, body)
        )


def _edited(body: bytes, row: RoutedRow) -> bytes:
    """Return a routed message as its row says it is."""
    routed = from_json(body) | {"text": row.said.content}
    routed["attachments"] = from_json(row.said.details or "{}").get("attachments", [])
    # By way of JSON: the contract is strict about Python types and lenient about JSON's.
    return encode(RoutedMessage.model_validate_json(to_json(routed)))


def _id_of(message: StoredMessage) -> UUID | None:
    try:
        return UUID(decode(RoutedMessage, message.body).id)
    except (DecodeError, ValueError):
        return None


def _names(message_id: UUID) -> tuple[str, str]:
    """Return what the names of a message on the stream begin with."""
    return str(message_id), f"again:{message_id}"


def _durable_of(subject: str) -> str:
    _, _, _, agent, slot, _ = subject.split(".")
    return routed_durable(agent, int(slot))
