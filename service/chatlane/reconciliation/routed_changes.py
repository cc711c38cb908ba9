"""Apply edits and deletions to routed messages that no worker has received yet.

ROUTED holds a message of a stream agent as it was routed. A transaction that edits or deletes its
row in the transcript also notes the change, and this module applies it. It deletes a deleted
message from the stream. It replaces an edited message together with the later messages of its
session, so that they stay in order. It does not touch a message that was delivered to a worker: if
it were deleted, the server would deliver the next message of the session concurrently.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
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
from chatlane_schemas.topology.streams import StreamName, routed_durable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Agent
    from chatlane.domain.states import Session
    from chatlane.nats.jetstream import StoredMessage
    from chatlane.nats.routed_slots import RoutedSlots
    from chatlane.postgres.pool import Transaction
    from chatlane.privacy.stream_erasure import StreamErasure
    from chatlane.reconciliation.stream_contents import StreamContents
    from chatlane.store.routed_changes import RoutedRow

_CHANGES_AT_ONCE: Final = 200
# More unread messages of one session than this stay as they were routed.
_MOST_UNREAD: Final = 500
# Shorter than the pause of a slot on the server.
_PAUSED_AT_MOST: Final = timedelta(seconds=3)
# A message is stored in its log before it is routed, by the clock of another leader.
_CLOCKS: Final = timedelta(seconds=10)

_log = get_logger("routed_changes")


class _Plan(NamedTuple):
    """Changes to make to the routed messages of a session.

    Attributes:
        deleted: Messages to delete from the stream.
        again: Rows to publish again, in order.
        bodies: Stored messages that were found, by message id.
    """

    deleted: list[StoredMessage]
    again: list[RoutedRow]
    bodies: Mapping[UUID, StoredMessage]


class RoutedChanges:
    """Applies noted changes; several routers may do so at once.

    Args:
        slots: The durables of stream agents.
        contents: Returns the ids of messages in a stream.
        streams: Deletes messages of streams.
        transaction: Opens a transaction.
        writer: Opens the transactions that publish messages again.
        agents: The agents by name.
        slot_count: Number of slots for the messages of a stream agent.
    """

    def __init__(
        self,
        slots: RoutedSlots,
        contents: StreamContents,
        streams: StreamErasure,
        transaction: Transaction,
        writer: UnitOfWorkFactory,
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
        """Return the periodic job, which runs in addition to the run after each noted change."""
        return Job("routed changes", timedelta(seconds=1), self.settle)

    async def settle(self) -> int:
        """Apply the noted changes; return the number of sessions.

        Raises:
            StoreUnavailableError: The next run repeats it.
        """
        async with self._transaction() as connection:
            pending = await routed_changes.pending(connection, _CHANGES_AT_ONCE)
        for session_id in pending:
            try:
                await self._settle(session_id)
            except TransientError as error:
                _log.warning("routed_change_postponed", session_id=session_id, reason=str(error))
            except Exception:  # noqa: BLE001 - one session must not block the others
                _log.exception("routed_change_failed", session_id=session_id)
        return len(pending)

    async def _settle(self, session_id: UUID) -> None:
        newest = await self._slots.newest(session_id)
        durable = None if newest is None else _durable_of(newest.subject)
        if durable is not None and await self._slots.delivered(durable) is None:
            # Its agent or its slot no longer exists: no worker receives the message.
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
        """Update the stream to match the rows, under the lock of the session."""
        effects = Effects()
        async with self._writer.begin() as unit_of_work:
            connection = unit_of_work.connection
            locked = await sessions.lock(connection, [session_id])
            if await outbox.is_in_line(connection, session_id, StreamName.ROUTED):
                # A later run applies the change, once the row is in the stream.
                return
            session = locked.get(session_id)
            if session is not None and session.agent in self._agents:
                rows = await routed_changes.unanswered(connection, session_id, _MOST_UNREAD)
                plan = await self._plan(session_id, rows, newest, durable)
                await self._delete(plan.deleted)
                for row in plan.again:
                    self._publish(session, row, plan.bodies.get(row.id), effects)
            await routed_changes.settle(connection, session_id)
            await unit_of_work.write(effects)

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
            # Replace all rows from the first edited one on, so that they stay in order.
            if row.id in unread:
                deleted[row.id] = unread[row.id]
            if not row.is_deleted:
                again.append(row)
        return _Plan(list(deleted.values()), again, unread)

    async def _is_unread(
        self, session_id: UUID, row: RoutedRow, unread: Mapping[UUID, StoredMessage]
    ) -> bool:
        """Return True if no worker has received a message.

        If the stream does not hold it, a router deleted it and died before publishing it again.
        """
        if row.id in unread:
            return True
        held = await self._contents.ids_since(
            StreamName.ROUTED,
            f"chat.v1.routed.*.*.{session_id}",
            row.stored.created_at - _CLOCKS,
            limit=_MOST_UNREAD,
        )
        return held.is_all and not any(
            message_id.startswith(_names(row.id)) for message_id in held.ids
        )

    async def _delete(self, messages: Sequence[StoredMessage]) -> None:
        if not messages:
            return
        noted = [
            ErasedRow(StreamName.ROUTED, message.sequence, message.stored_at)
            for message in messages
        ]
        async with self._transaction() as connection:
            await erasure_list_sql.note_messages(connection, noted)
        await delete_noted(self._transaction, self._streams, noted, overwrite=True)

    def _publish(
        self, session: Session, row: RoutedRow, message: StoredMessage | None, effects: Effects
    ) -> None:
        # Use a new message id each time: the stream may still recognise the previous ones.
        name = f"again:{row.id}:{uuid4().hex}"
        if message is None:
            route_again(
                session,
                row.stored,
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
    routed = from_json(body) | {"text": row.stored.content}
    routed["attachments"] = from_json(row.stored.details or "{}").get("attachments", [])
    # Validate through JSON: the contract is strict about Python types and lenient about JSON types.
    return encode(RoutedMessage.model_validate_json(to_json(routed)))


def _id_of(message: StoredMessage) -> UUID | None:
    try:
        return UUID(decode(RoutedMessage, message.body).id)
    except (DecodeError, ValueError):
        return None


def _names(message_id: UUID) -> tuple[str, str]:
    """Return the prefixes of the message ids that a message may have on the stream."""
    return str(message_id), f"again:{message_id}"


def _durable_of(subject: str) -> str:
    _, _, _, agent, slot, _ = subject.split(".")
    return routed_durable(agent, int(slot))
