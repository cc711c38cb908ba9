"""Leave messages in their log while the stream that they lead to is full.

An unread message costs nothing: the log keeps it, and a full log rejects its publishers. A
decided message that cannot be published would take memory and database space instead.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chatlane.decisions.inbound_decoder import ValidatedEvent
from chatlane.domain.lanes import STARTS_TURN
from chatlane.domain.turns.lifecycle import ArrivedResult
from chatlane.ingest.intake import Batch
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from chatlane.decisions.batch_decision import DecodedMessage
    from chatlane.domain.log import LogMessage
    from chatlane.ingest.intake import Slice


def split_by_capacity(
    batch: Batch, known: Mapping[LogMessage, DecodedMessage], full: Collection[str]
) -> tuple[Batch, Batch]:
    """Split a batch into the messages that can proceed and those that have to wait.

    The order within a partition is kept: every message after a waiting message waits as well.
    """
    on: list[Slice] = []
    held: list[Slice] = []
    for slice_ in batch.slices:
        free = next(
            (n for n, message in enumerate(slice_.messages) if _leads_to(known[message]) in full),
            len(slice_.messages),
        )
        if free:
            on.append(replace(slice_, messages=slice_.messages[:free]))
        if free < len(slice_.messages):
            held.append(replace(slice_, messages=slice_.messages[free:]))
    return Batch(tuple(on)), Batch(tuple(held))


def _leads_to(message: DecodedMessage) -> StreamName | None:
    """Return the stream to which the outcome of a message is published."""
    content = message.content
    if isinstance(content, ArrivedResult):
        return StreamName.OUTBOUND
    if not isinstance(content, ValidatedEvent):
        # Dead letters are database rows; their announcements are few and small.
        return None
    heard = content.heard
    if heard.event.kind not in STARTS_TURN or heard.is_ignored:
        return None
    if heard.command is not None and heard.command.is_for_router_only:
        return StreamName.OUTBOUND
    return StreamName.ROUTED if heard.agent.delivery == "stream" else StreamName.TURNS
