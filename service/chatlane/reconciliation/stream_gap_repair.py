"""Detect lost messages in the streams that routers write to, and publish them again.

As long as nothing is lost, this reads only the state of two streams and the messages at their
marks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from chatlane.domain.counts import Inconsistency, StreamLoss
from chatlane.domain.effects import Effects
from chatlane.domain.ids import first_id_at, time_of
from chatlane.domain.turns.retries import route_again
from chatlane.observability.logs import get_logger
from chatlane.privacy import erasure_list_sql
from chatlane.reconciliation import stream_marks_sql
from chatlane.reconciliation.stream_marks import find_loss
from chatlane.reconciliation.stream_marks_sql import Marked
from chatlane.store.conversations import sessions
from chatlane.store.logs import log_trims
from chatlane.store.logs.log_trims import NO_HOLES, Holes
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.outbound import OutboundMessage
from chatlane_schemas.routed import RoutedMessage
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Agent
    from chatlane.domain.limits.shares import SharedStream
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction
    from chatlane.reconciliation.stream_contents import Look, StreamContents
    from chatlane.reconciliation.stream_marks import StreamMark

_COMPARED: Final = (StreamName.ROUTED, StreamName.OUTBOUND)
_TRIMS: Final[Mapping[StreamName, SharedStream]] = {
    StreamName.ROUTED: "routed",
    StreamName.OUTBOUND: "outbound",
}
# Number of messages since the mark that are checked against the database.
_SAMPLES: Final = 4
_ROWS_AT_ONCE: Final = 2000
_IDS_AT_ONCE: Final = 50_000
_PIECES_AT_ONCE: Final = 5
_SESSIONS_AT_ONCE: Final = 100
# How far before the mark a server may have lost messages that it had not synced when it died.
_UNSYNCED: Final = timedelta(minutes=10)
# A message is stored in its log before it is routed, by the clock of another leader.
_CLOCKS: Final = timedelta(seconds=10)
_SUBJECT_OF_SESSION: Final = "chat.v1.routed.*.*.{}"

_log = get_logger("lost_messages")


class LostMessages:
    """Compares ROUTED and OUTBOUND with their marks, and searches ROUTED for lost messages.

    Args:
        contents: The streams.
        transaction: Opens a transaction.
        writer: Opens the transactions that publish messages again.
        metrics: Counts losses and repairs.
        agents: The agents by name.
        slots: Number of slots for the messages of a `stream` agent.
        patience: Younger messages may still be on their way.
    """

    def __init__(
        self,
        contents: StreamContents,
        transaction: Transaction,
        writer: UnitOfWorkFactory,
        metrics: Metrics,
        *,
        agents: Mapping[str, Agent],
        slots: int,
        patience: timedelta,
    ) -> None:
        self._contents = contents
        self._transaction = transaction
        self._writer = writer
        self._metrics = metrics
        self._agents = {name: agent for name, agent in agents.items() if agent.delivery == "stream"}
        self._slots = slots
        self._patience = patience

    async def compare(self) -> Counter[str]:
        """Compare the streams, repair losses and write new marks; return the findings.

        Raises:
            TransientError: No mark was written; the next comparison finds the same.
        """
        async with self._transaction() as connection:
            marks = await stream_marks_sql.read(connection)
        found: Counter[str] = Counter()
        for stream in _COMPARED:
            look = await self._contents.look(stream)
            if look is None:
                continue
            before = marks.get(stream)
            if before is None:
                mark = look.mark
                erased = await self._erased(stream, mark, mark.first_seq, mark.last_seq)
                marked = Marked(_explained(mark, erased.deleted))
            else:
                marked = await self._judge(stream, before, look)
                found[Inconsistency.STREAM_AHEAD] += await self._count_unknown(
                    stream, before.mark.last_seq + 1, look.mark.last_seq
                )
            if stream is StreamName.ROUTED:
                marked, lost = await self._search(marked, look.answered_at)
                found[Inconsistency.ROUTED_LOST] += lost
            async with self._transaction() as connection:
                await stream_marks_sql.write(connection, stream, marked)
        return found

    async def _judge(self, stream: StreamName, before: Marked, look: Look) -> Marked:
        """Report the loss of a stream, if any, and return its new mark with the range to search."""
        now, clock = look.mark, look.answered_at
        stored = None if before.mark.is_empty else await self._at_mark(stream, before, look)
        erased = await self._erased(stream, now, now.first_seq, now.last_seq)
        cut = NO_HOLES
        if now.first_seq > before.mark.first_seq:
            cut = await self._erased(stream, now, before.mark.first_seq, now.first_seq - 1)
        loss = find_loss(
            before.mark,
            _explained(now, erased.noted),
            at_mark=stored,
            max_age=look.max_age,
            clock=clock,
            erased_first=cut.noted,
        )
        now = _explained(now, erased.deleted)
        if loss is not None:
            self._metrics.stream_losses.labels(stream, loss).inc()
            _log.critical("stream_lost_messages", stream=stream, reason=loss)
        marked = Marked(now, before.search_after, before.search_until)
        since: datetime | None = None
        match loss:
            case StreamLoss.CUT_OFF:
                # A person, or a limit that a person changed, removed them, perhaps on purpose.
                pass
            case StreamLoss.REPLACED | StreamLoss.HOLES:
                since = clock - (look.max_age or _UNSYNCED)
            case StreamLoss.TAIL_LOST | StreamLoss.TIME_AT_MARK:
                since = _unsynced_since(min(before.mark.last_at, now.last_at), look)
            case None if before.mark.host != now.host:
                # A message that was stored after the mark and then lost leaves no other trace.
                since = _unsynced_since(before.mark.last_at, look)
            case None:
                pass
        if since is None:
            return marked
        after = first_id_at(since)
        if before.search_after is not None:
            after = min(after, before.search_after)
        return Marked(now, after, first_id_at(clock))

    async def _erased(self, stream: StreamName, now: StreamMark, first: int, last: int) -> Holes:
        if not now.holes and first == now.first_seq:
            return NO_HOLES
        async with self._transaction() as connection:
            erased = await erasure_list_sql.count_holes(
                connection, stream, now.generation, first, last
            )
            trimmed = await log_trims.count_holes(
                connection, _TRIMS[stream], now.generation, first, last
            )
        return Holes(erased.noted + trimmed.noted, erased.deleted + trimmed.deleted)

    async def _at_mark(self, stream: StreamName, before: Marked, look: Look) -> datetime | None:
        if before.mark.last_seq > look.mark.last_seq:
            return None
        message = await self._contents.find(stream, before.mark.last_seq)
        return message.stored_at if message else None

    async def _count_unknown(self, stream: StreamName, first: int, last: int) -> int:
        """Return how many of a few sampled new messages the database does not know."""
        step = max(1, (last - first + 1) // _SAMPLES)
        samples = [
            await self._contents.find(stream, sequence) for sequence in range(first, last + 1, step)
        ]
        routed: list[tuple[UUID, UUID]] = []
        sent: list[tuple[UUID, int]] = []
        for body in (sample.body for sample in samples if sample is not None):
            try:
                if stream is StreamName.ROUTED:
                    routed_message = decode(RoutedMessage, body)
                    routed.append((routed_message.session_id, UUID(routed_message.id)))
                else:
                    outbound_message = decode(OutboundMessage, body)
                    sent.append((outbound_message.session_id, outbound_message.out_seq))
            except (DecodeError, ValueError):
                continue
        if not routed and not sent:
            return 0
        async with self._transaction() as connection:
            unknown = await stream_marks_sql.count_unknown_routed(connection, routed)
            return unknown + await stream_marks_sql.count_unsaid(connection, sent)

    async def _search(self, marked: Marked, clock: datetime) -> tuple[Marked, int]:
        """Search some further batches for messages that ROUTED has lost, and publish them again."""
        lost = 0
        latest = first_id_at(clock - self._patience)
        for _ in range(_PIECES_AT_ONCE):
            after, until = marked.search_after, marked.search_until
            if after is None or until is None or not self._agents:
                return Marked(marked.mark), lost
            if (now := min(until, latest)) <= after:
                break
            async with self._transaction() as connection:
                piece = await stream_marks_sql.find_awaited(
                    connection, after, now, self._agents, _ROWS_AT_ONCE
                )
            missing, through = await self._find_missing(piece.awaited)
            lost += len(missing)
            await self._publish(missing)
            marked = marked.searched(through or piece.through or now)
        return marked, lost

    async def _find_missing(
        self, awaited: Mapping[UUID, UUID]
    ) -> tuple[dict[UUID, UUID], UUID | None]:
        """Return the messages that ROUTED does not hold, with their sessions.

        Also return the id of the last message that this settles; None if it settles all.
        """
        if not awaited:
            return {}, None
        since = time_of(min(awaited)) - _CLOCKS
        until = time_of(max(awaited)) + self._patience
        all_routed = subjects.wildcards(subjects.ROUTED)
        held = await self._contents.ids_since(
            StreamName.ROUTED, all_routed, since, until, limit=_IDS_AT_ONCE
        )
        absent, through = _of_few_sessions(_without(awaited, held.ids))
        # Some may have been published late: search for these by session, to the end of the stream.
        missing: dict[UUID, UUID] = {}
        for session_id in sorted(set(absent.values())):
            found = await self._contents.ids_since(
                StreamName.ROUTED,
                _SUBJECT_OF_SESSION.format(session_id),
                since,
                limit=_IDS_AT_ONCE,
            )
            if found.is_all:
                of_it = {
                    message_id: session_id
                    for message_id, session in absent.items()
                    if session == session_id
                }
                missing |= _without(of_it, found.ids)
        return missing, through

    async def _publish(self, missing: Mapping[UUID, UUID]) -> None:
        if not missing:
            return
        effects = Effects()
        async with self._writer.begin() as unit_of_work:
            locked = await sessions.lock(unit_of_work.connection, set(missing.values()))
            places = {
                id_: subjects.routed(session.agent, subjects.slot_of(id_, self._slots), id_)
                for id_, session in locked.items()
                if session.agent in self._agents
            }
            aside = await stream_marks_sql.find_set_aside(
                unit_of_work.connection, [*places.values()]
            )
            lost = await stream_marks_sql.confirm_lost(
                unit_of_work.connection,
                missing,
                [id_ for id_, place in places.items() if place not in aside],
            )
            for message in lost:
                session = locked[message.session_id]
                route_again(
                    session,
                    message.row,
                    message.id,
                    seq=message.seq,
                    agent=self._agents[session.agent],
                    slots=self._slots,
                    effects=effects,
                )
            await unit_of_work.write(effects)
        self._metrics.reconciled.labels(Inconsistency.ROUTED_LOST).inc(len(lost))


def _unsynced_since(written_at: datetime, look: Look) -> datetime:
    """Return since when messages may be lost of a stream that was last written at this time."""
    if written_at.year == 1:
        # Nothing was ever written.
        return look.answered_at - (look.max_age or _UNSYNCED)
    return written_at - _UNSYNCED


def _explained(mark: StreamMark, erased: int) -> StreamMark:
    return replace(mark, holes=max(0, mark.holes - erased))


def _of_few_sessions(
    messages: Mapping[UUID, UUID],
) -> tuple[dict[UUID, UUID], UUID | None]:
    """Return the first messages of a limited number of sessions, and the last id; None if all."""
    some: dict[UUID, UUID] = {}
    known: set[UUID] = set()
    for message_id, session_id in sorted(messages.items()):
        if session_id not in known and len(known) == _SESSIONS_AT_ONCE:
            return some, max(some)
        known.add(session_id)
        some[message_id] = session_id
    return some, None


def _without(messages: Mapping[UUID, UUID], ids: Iterable[str]) -> dict[UUID, UUID]:
    """Return the messages whose id, plain or of a repeat, is not among the ids of a stream."""
    there = {held_id.removeprefix("again:").partition(":")[0] for held_id in ids}
    return {
        message_id: session
        for message_id, session in messages.items()
        if str(message_id) not in there
    }
