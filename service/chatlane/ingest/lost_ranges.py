"""Report a range of messages that was lost from a log before it was read, once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic_core import to_json

from chatlane.domain.dead import add_dead_letter
from chatlane.domain.effects import Effects
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.logs import get_logger
from chatlane.privacy import erasure_list_sql
from chatlane.store import dead_letters, outbox
from chatlane_schemas.dead import DeadReason, Stage

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.log import PartitionId
    from chatlane.nats.log_inspection import LogTruncated

_log = get_logger("losses")


async def record_lost_range(
    connection: PoolConnectionProxy, partition: PartitionId, loss: LogTruncated
) -> bool:
    """Write the dead letter of a missing range, in the transaction that skips it.

    The content is unknown; the body of the dead letter holds the sequences. A range that was
    deleted entirely by erasures gets no dead letter.

    Returns:
        Whether something was lost.
    """
    stream = LOG_STREAMS[partition.log]
    erased = await erasure_list_sql.count_holes(
        connection, stream, loss.generation, loss.first_missing, loss.cursor
    )
    if erased.noted > loss.cursor - loss.first_missing:
        return False
    missing = {"first": loss.first_missing, "last": loss.cursor}
    effects = Effects()
    add_dead_letter(
        effects,
        stage=Stage.INBOUND if partition.log == "inbound" else Stage.RESULTS,
        reason=DeadReason.LOG_TRUNCATED,
        at=datetime.now(UTC),
        trigger=f"{loss.generation}:{partition.log}:{partition.number}:{loss.first_missing}".encode(),
        body=to_json(missing),
        detail=f"sequences {loss.first_missing} to {loss.cursor}",
        log=partition.log,
        partition=partition.number,
        sequence=loss.first_missing,
    )
    await dead_letters.insert(connection, effects.dead)
    # The reader has no place in the order of the outbox, so the sweep publishes this row.
    await outbox.insert(connection, None, effects.publications)
    _log.critical(
        "log_truncated", log=partition.log, partition=partition.number, sequence=loss.first_missing
    )
    return True
