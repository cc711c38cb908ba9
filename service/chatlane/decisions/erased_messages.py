"""Messages of people who were erased: they have no effect, and are noted for deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.addressing.dedupe import digests
from chatlane.domain.counts import CountName
from chatlane.domain.effects import Effects, ErasedRow, SeenRow
from chatlane.privacy import erasure_list_sql
from chatlane.store.addressing import dedupe_marks
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.inbound_decoder import Prepared
    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogMessage
    from chatlane.privacy.erasure_rules import Listed


def note_erased(effects: Effects, stream: StreamName, sequence: int, stored_at: datetime) -> None:
    """Let a message that had no effect be deleted from its stream."""
    effects.erased.append(ErasedRow(stream, sequence, stored_at))
    effects.count((CountName.ERASED, stream))


async def leave_out_erased(
    connection: PoolConnectionProxy,
    key: ErasureKey,
    prepared: Sequence[Prepared],
    effects: Effects,
) -> tuple[list[Prepared], dict[LogMessage, datetime]]:
    """Return what is to be decided, and, of people who were forgotten, up to when they were.

    The list is read in the transaction that has moved the cursors: whoever changes it waits for
    those that moved theirs before.
    """
    names = {id(one): key.digests_of(one.heard.address) for one in prepared}
    every = frozenset().union(*names.values())
    found = await erasure_list_sql.who_is_listed(connection, every) if every else []
    if not found:
        return list(prepared), {}
    listed: dict[bytes, list[Listed]] = {}
    for entry in found:
        listed.setdefault(entry.digest, []).append(entry)
    kept: list[Prepared] = []
    marks: set[bytes] = set()
    forgotten: dict[LogMessage, datetime] = {}
    for one in prepared:
        entries = [entry for digest in names[id(one)] for entry in listed.get(digest, ())]
        message, event = one.heard.message, one.heard.event
        # Where an id is somebody else's by now, nothing that goes on was the forgotten one's.
        ends = [entry.until for entry in entries if not entry.is_past]
        if any(entry.covers(message.stored_at, event.sent_at) for entry in entries):
            # Should it be published once more after days, its mark tells.
            marks.update(digests(event, one.heard.address))
            note_erased(effects, StreamName.INBOUND, message.sequence, message.stored_at)
        else:
            kept.append(one)
            if ends:
                forgotten[message] = max(ends)
    # Not with the others: it may have been marked when it came first, or come twice in a batch.
    await dedupe_marks.insert_new(connection, [SeenRow(mark, None, None) for mark in marks])
    return kept, forgotten
