"""Deliver the outbound messages of an account to their chats, in order and without duplicates.

The stream delivers every message at least once. The reader drops duplicates by id, waits for
missing numbers of a session, and acknowledges a message once the platform has it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import ConsumerInfo

from chatlane_client.delivery.chat_queues import ChatQueues, ShowPause, set_back_seconds
from chatlane_client.delivery.delivery_order import DeliveryNumbers, Place, SessionOrder
from chatlane_client.delivery.message_sender import Delivery, MessageSender
from chatlane_client.errors import ConnectionClosedError
from chatlane_client.transport.connection import closed_error_first, until_connected
from chatlane_client.transport.connection_log import RepeatLimit
from chatlane_client.transport.pull import Pull, open_pull
from chatlane_client.transport.retry import Backoff, CancellationGuard, was_set_within
from chatlane_schemas import DecodeError, OutboundMessage, decode
from chatlane_schemas.topology.streams import StreamName, outbound_durable

_log = logging.getLogger("chatlane_client")

GAP_PATIENCE: Final = timedelta(seconds=5)
# Messages in flight when a connection breaks return only after `ack_wait`, so few are in flight.
_AT_ONCE: Final = 1
# While the server keeps messages of this process: it delivers those that return before newer ones,
# and a busy machine that reads them one by one would get no further than to them.
_AT_ONCE_BESIDE_RETURNS: Final = 16
_PULL_FOR: Final = timedelta(seconds=1)
_SHORTEST_PULL: Final = timedelta(milliseconds=50)
_SET_BACK_FOR: Final = timedelta(seconds=30)
_LOOK_FOR: Final = timedelta(seconds=2)
# A cluster may still give messages to a request of a lost connection.
_FORMER_REQUESTS_LAST: Final = timedelta(seconds=2)
_SETTLE_MARGIN: Final = timedelta(seconds=1)
_SHARING_SAID_EVERY: Final = timedelta(minutes=1)
# Messages in memory; beyond that, the server keeps the others.
_MOST_HELD: Final = 4096


@dataclass(frozen=True, slots=True)
class _Orphans:
    """Messages that the server gave to a reader that will never acknowledge them.

    That reader is a process that died, or a broken connection of this process. The server
    redelivers these messages after `ack_wait`, later than newer messages, and in any order: one that
    it took out for a request that was over goes to the end of those that wait.

    Attributes:
        through: Stream sequence of the newest of them.
        count: How many have not arrived yet.
        until: Monotonic time when all must have arrived.
    """

    through: int = 0
    count: int = 0
    until: float = 0.0

    def include(self, raw: Msg) -> bool:
        """Return whether a message is one of them."""
        return self.count > 0 and raw.metadata.sequence.stream <= self.through

    def less_one(self, next_within: float) -> "_Orphans":
        """Return the state after one of them has arrived.

        Args:
            next_within: Seconds for the next one to arrive, which a slow machine may need.
        """
        until = max(self.until, monotonic() + next_within)
        return replace(self, count=max(0, self.count - 1), until=until)


class OutboundReader:
    """Reads the durable of one account; only one process at a time may do so."""

    def __init__(
        self,
        client: Client,
        sender: MessageSender,
        *,
        platform: str,
        account: str,
        gap_patience: timedelta,
        stopping: asyncio.Event,
        show_pause: ShowPause,
    ) -> None:
        self._client = client
        self._jetstream = client.jetstream()
        self._account = (platform, account)
        self._durable = outbound_durable(platform, account)
        self._gap_patience = gap_patience.total_seconds()
        self._stopping = stopping
        self._unavailable = RepeatLimit()
        self._order: SessionOrder[Delivery] = SessionOrder()
        self._queues = ChatQueues(client, sender, stopping, show_pause)
        self._orphans = _Orphans()
        # Monotonic time until which the server keeps a message that this process cannot decode, by
        # its stream sequence.
        self._not_understood: dict[int, float] = {}
        self._numbers = DeliveryNumbers()
        # Longest time until the server redelivers an unacknowledged message; read from the durable.
        self._redelivered_within = 0.0
        self._looked_at = self._connected_at = float("-inf")
        self._reconnects_seen: int | None = None
        self._delivered_on: int | None = None
        self._sharing_said_at: float | None = None

    async def run(self) -> None:
        """Deliver until stopped.

        Raises:
            ConnectionClosedError: The connection is closed for good.
        """
        guard = CancellationGuard()
        with closed_error_first():
            async with (
                open_pull(self._client, StreamName.OUTBOUND, self._durable) as source,
                asyncio.TaskGroup() as tasks,
            ):
                pauses = Backoff().pauses()
                while not self._stopping.is_set():
                    guard.check()
                    if not await self._read(source, tasks):
                        await was_set_within(self._stopping, next(pauses))
                await source.give_back()
            await self._queues.set_back_all()

    async def _read(self, source: Pull, tasks: asyncio.TaskGroup) -> bool:
        """Take at most one message; return whether the durable could be read."""
        try:
            await until_connected(self._client)
            await self._look_for_orphans(source)
            if self._queues.bodies < _MOST_HELD:
                room = _AT_ONCE_BESIDE_RETURNS if self._queues.set_back else _AT_ONCE
                raw = await source.take(room, timedelta(seconds=self._pull_seconds()))
                await self._queue(await self._arrive(raw, source), tasks)
            else:
                await was_set_within(self._stopping, _SHORTEST_PULL.total_seconds())
        except nats.errors.TimeoutError:
            pass
        except nats.errors.ConnectionClosedError as exc:
            raise ConnectionClosedError from exc
        except nats.errors.Error as exc:
            # The durable does not exist, or the server is not ready yet.
            if self._unavailable.allows(str(exc)):
                text = (
                    "outbound_unavailable: durable %s on stream OUTBOUND (%s); check that "
                    "chatlane.toml declares account %s of platform %s, and run `chatlane admin apply`"
                )
                platform, account = self._account
                about = {"platform": platform, "account": account, "error": str(exc)}
                _log.error(text, self._durable, exc, account, platform, extra=about)
            return False
        await self._queue(await self._overdue(source), tasks)
        return True

    async def _arrive(self, raw: Msg, source: Pull) -> tuple[Delivery, ...]:
        """Return the deliveries that may go to their chat after the arrival of this message."""
        self._watch_for_others(raw)
        try:
            message = decode(OutboundMessage, raw.data)
        except DecodeError as exc:
            # The message may be of a newer release: kept for an adapter that understands it.
            _log.error("outbound_not_understood", extra={"error": str(exc)})
            await self._set_aside(raw)
            return ()
        if (message.target.platform, message.target.account) != self._account:
            # No permission keeps JetStream from storing messages of another account here.
            _log.error("outbound_foreign", extra=_delivery(message, raw).about())
            self._note_orphan(raw)
            await raw.term()
            return ()
        held = self._queues.held.get(message.id)
        # A message that was decided again under another number is stored twice.
        if held is not None and held.sequence == raw.metadata.sequence.stream:
            await self._queues.take_copy(held, message, raw)
            return ()
        delivery = _delivery(message, raw)
        would_lead = self._order.would_lead(message.session_id, message.out_seq)
        if would_lead and self._numbers.missed and not self._orphans.include(raw):
            await self._count_missed(source, raw)
        return await self._admit(delivery)

    def _watch_for_others(self, raw: Msg) -> None:
        """Warn when the server gave deliveries of this account to another process.

        The server numbers the deliveries, so over one connection a single reader gets every number.
        """
        skipped = self._numbers.count(raw.metadata.sequence.consumer)
        before, self._delivered_on = self._delivered_on, self._client.stats["reconnects"]
        if not skipped or before != self._delivered_on:
            return
        now, said_at = monotonic(), self._sharing_said_at
        if now - self._connected_at < _FORMER_REQUESTS_LAST.total_seconds():
            return
        if said_at is not None and now - said_at < _SHARING_SAID_EVERY.total_seconds():
            return
        self._sharing_said_at = now
        platform, account = self._account
        _log.error(
            "outbound_read_by_another",
            extra={
                "platform": platform,
                "account": account,
                "advice": "another process delivers for this account, so chats may get answers "
                "twice or out of order: let only one run",
            },
        )

    def _note_orphan(self, raw: Msg) -> None:
        """Record that a message has arrived if it is one that the server gave to a lost reader."""
        if self._orphans.include(raw):
            self._orphans = self._orphans.less_one(_SETTLE_MARGIN.total_seconds())

    async def _set_aside(self, raw: Msg) -> None:
        """Give a message back that this process cannot decode; it is no message of a lost reader."""
        if self._not_understood.pop(raw.metadata.sequence.stream, None) is None:
            self._note_orphan(raw)
        until = monotonic() + (_SET_BACK_FOR + _SETTLE_MARGIN).total_seconds()
        self._not_understood[raw.metadata.sequence.stream] = until
        await raw.nak(delay=_SET_BACK_FOR.total_seconds())

    async def _admit(self, delivery: Delivery) -> tuple[Delivery, ...]:
        self._note_orphan(delivery.raw)
        place, ready = self._order.admit(
            delivery.session_id,
            delivery.out_seq,
            delivery.id,
            delivery,
            patient_until=max(monotonic() + self._gap_patience, self._orphans.until),
            may_lead=not self._orphans.count,
        )
        if place is Place.REPEAT:
            await self._queues.acknowledge(delivery)
            return ready
        if place is Place.LATE:
            _log.warning("outbound_late", extra=delivery.about())
        if place is Place.REUSED:
            # The database of the routers was restored to an earlier time.
            _log.warning("outbound_number_reused", extra=delivery.about())
        self._queues.hold(delivery)
        return ready

    async def _overdue(self, source: Pull) -> tuple[Delivery, ...]:
        """Return the deliveries that have waited long enough for missing messages before them.

        A delivery waits at most once more for redelivered messages. The limit also holds if there
        are always more of them, as with another process that reads this durable.
        """
        now = monotonic()
        if now >= self._orphans.until:
            self._orphans = _Orphans()
        passed = [] if self._orphans.count else self._order.lead_unknown()
        deadline = self._order.next_deadline()
        if deadline is not None and deadline <= now:
            is_given_up = await self._is_given_up(source, deadline)
            passed += self._order.pass_overdue(
                now if is_given_up else now - self._redelivered_within
            )
        for gap in passed:
            if gap.missing:
                extra = {"session_id": str(gap.session_id), "missing": str(gap.missing)}
                _log.warning("outbound_gap_passed", extra=extra)
        return tuple(delivery for gap in passed for delivery in gap.ready)

    async def _is_given_up(self, source: Pull, deadline: float) -> bool:
        """Return whether no lost reader holds the messages that were missing at a deadline.

        The servers of a cluster may give a message to a request of a lost connection for as long as
        the request lasts. The message is then redelivered later than its successors. The reader
        waits once for it.
        """
        if self._looked_at < deadline:
            with contextlib.suppress(nats.errors.Error):
                await self._count_orphans(source)
        return self._orphans.count == 0

    async def _queue(self, deliveries: Iterable[Delivery], tasks: asyncio.TaskGroup) -> None:
        for delivery in deliveries:
            await self._queues.put(delivery, tasks)

    async def _look_for_orphans(self, source: Pull) -> None:
        """Count the messages of lost readers after every connect."""
        reconnects = self._client.stats["reconnects"]
        if reconnects != self._reconnects_seen:
            await self._count_orphans(source)
            self._reconnects_seen = reconnects
            self._connected_at = monotonic()

    async def _count_orphans(self, source: Pull) -> None:
        info = await self._find_consumer()
        self._looked_at = monotonic()
        if info is None or info.delivered is None:
            return
        self._numbers.restart(info.delivered.consumer_seq)
        count = self._count_foreign(info, source)
        if count > 0:
            until = monotonic() + self._redelivered_within
            through = info.delivered.stream_seq
            self._orphans = _Orphans(through, count, until)
            _log.info("outbound_orphans_expected", extra={"count": count})

    async def _count_missed(self, source: Pull, newest: Msg) -> None:
        """Count the unacknowledged messages that the server gave to other requests.

        Args:
            source: The pull, with messages that arrived and were not taken.
            newest: The message that arrived last, and is not held yet.
        """
        count = self._orphans.count + self._numbers.missed
        with contextlib.suppress(nats.errors.Error):
            info = await self._find_consumer()
            if info is not None and info.delivered is not None:
                # Only the second number includes messages that are still in flight to this process.
                count = min(count, self._count_foreign(info, source) - 1)
        self._numbers.missed = 0
        if count > 0:
            through = newest.metadata.sequence.stream - 1
            if self._orphans.count:
                through = max(self._orphans.through, through)
            until = monotonic() + self._redelivered_within
            self._orphans = _Orphans(through, count, until)
            _log.info("outbound_orphans_expected", extra={"count": count})
        else:
            self._orphans = _Orphans()

    def _count_foreign(self, info: ConsumerInfo, source: Pull) -> int:
        """Return how many unacknowledged messages this process does not know."""
        self._queues.ack_wait = info.config.ack_wait or self._queues.ack_wait
        # Another process may have given messages back for that long.
        longest = set_back_seconds(self._queues.ack_wait, info.num_ack_pending or 0)
        self._redelivered_within = longest + _SETTLE_MARGIN.total_seconds()
        through = info.delivered.consumer_seq if info.delivered else 0
        now = monotonic()
        # After that time another process has the message, or it is gone.
        self._not_understood = {
            sequence: until for sequence, until in self._not_understood.items() if until > now
        }
        # What has arrived may be another copy of a message that the server keeps for this process.
        mine = {delivery.sequence for delivery in self._queues.held.values()}
        mine |= self._not_understood.keys()
        mine |= {
            it.metadata.sequence.stream
            for it in source.arrived
            if it.metadata.sequence.consumer <= through
        }
        return (info.num_ack_pending or 0) - len(mine)

    async def _find_consumer(self) -> ConsumerInfo | None:
        """Return the state of the durable, or None if this process may not see it."""
        try:
            info: ConsumerInfo = await self._jetstream.consumer_info(
                StreamName.OUTBOUND, self._durable, timeout=_LOOK_FOR.total_seconds()
            )
        except nats.errors.TimeoutError:
            _log.warning("outbound_orphans_unknown")
            return None
        return info

    def _pull_seconds(self) -> float:
        deadline = self._order.next_deadline()
        longest = _PULL_FOR.total_seconds()
        if deadline is None:
            return longest
        return min(longest, max(deadline - monotonic(), _SHORTEST_PULL.total_seconds()))


def _delivery(message: OutboundMessage, raw: Msg) -> Delivery:
    return Delivery(
        id=message.id,
        session_id=message.session_id,
        out_seq=message.out_seq,
        message=message,
        raw=raw,
        was_handed=raw.metadata.num_delivered > 1,
    )
