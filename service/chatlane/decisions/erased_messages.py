"""Drop messages of erased people, and record them for deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.counts import CountName
from chatlane.domain.effects import Effects, ErasedRow, SeenRow
from chatlane.privacy import erasure_list_sql
from chatlane.store.addressing import dedupe_marks
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.inbound_decoder import ValidatedEvent
    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogMessage
    from chatlane.privacy.erasure_rules import Listed


def note_erased(effects: Effects, stream: StreamName, sequence: int, stored_at: datetime) -> None:
    """Record a message that had no effect for deletion from its stream."""
    effects.erased.append(ErasedRow(stream, sequence, stored_at))
    effects.count((CountName.ERASED, stream))


async def leave_out_erased(
    connection: PoolConnectionProxy,
    key: ErasureKey,
    prepared: Sequence[ValidatedEvent],
    effects: Effects,
) -> tuple[list[ValidatedEvent], dict[LogMessage, datetime]]:
    """Return the messages to decide, and the end of the erasure for those of erased people.

    The erasure list is read in the transaction that has moved the cursors: a change of the list
    waits for transactions that moved their cursors before.
    """
    names = {id(candidate): key.digests_of(candidate.declared.address) for candidate in prepared}
    all_digests = frozenset().union(*names.values())
    found = await erasure_list_sql.who_is_listed(connection, all_digests) if all_digests else []
    if not found:
        return list(prepared), {}
    listed: dict[bytes, list[Listed]] = {}
    for entry in found:
        listed.setdefault(entry.digest, []).append(entry)
    kept: list[ValidatedEvent] = []
    marks: set[bytes] = set()
    forgotten: dict[LogMessage, datetime] = {}
    for candidate in prepared:
        entries = [entry for digest in names[id(candidate)] for entry in listed.get(digest, ())]
        message, event = candidate.declared.message, candidate.declared.event
        # If an id belongs to another person by now, no open session was the erased person's.
        ends = [entry.until for entry in entries if not entry.is_past]
        if any(entry.covers(message.stored_at, event.sent_at) for entry in entries):
            # The mark detects the message if it is published again days later.
            marks.update(digests(event, candidate.declared.address))
            note_erased(effects, StreamName.INBOUND, message.sequence, message.stored_at)
        else:
            kept.append(candidate)
            if ends:
                forgotten[message] = max(ends)
    # Separate from the other marks: a mark may exist from the first arrival, or occur twice here.
    await dedupe_marks.insert_new(connection, [SeenRow(mark, None, None) for mark in marks])
    return kept, forgotten
