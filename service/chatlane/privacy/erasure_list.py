"""Keep erased data from returning: the router's checks and jobs for the erasure list.

A message that an erased person wrote before the erasure has no effect, whether it comes from the
log, from a restored log, or from a repeated publish. The router notes it, and a sweep deletes it
from its stream. The same applies to results that answer erased messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane.errors import SchemaMismatchError
from chatlane.jobs import Job
from chatlane.nats.topology import LOG_STREAMS
from chatlane.observability.logs import get_logger
from chatlane.privacy import erasure_list_sql
from chatlane.privacy.erasure import delete_noted
from chatlane.store.logs import log_trims
from chatlane.store.logs.log_trims import Holes
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogName
    from chatlane.postgres.pool import Transaction
    from chatlane.privacy.stream_erasure import StreamErasure

_AT_ONCE: Final = 200
_LOGS: Final = frozenset({StreamName.INBOUND, StreamName.RESULTS})

_log = get_logger("forgetting")


async def require_keys(connection: PoolConnectionProxy, key: ErasureKey | None) -> None:
    """Refuse to route without the key of the erasure list, because that would undo erasures.

    Raises:
        SchemaMismatchError: The key is missing, or is another one.
    """
    known = await erasure_list_sql.key_ids(connection)
    if known - {key.id if key else None}:
        problem = (
            "people were erased under another erasure.key: set it to the secret that was in use "
            "then, or what they wrote can come back"
        )
        raise SchemaMismatchError((problem,))


async def deleted_of_log(
    transaction: Transaction, log: LogName, generation: str, first: int, last: int
) -> Holes:
    """Return how many messages of a log the service deleted for erasures or to make room."""
    async with transaction() as connection:
        erased = await erasure_list_sql.count_holes(
            connection, LOG_STREAMS[log], generation, first, last
        )
        trimmed = await log_trims.count_holes(connection, log, generation, first, last)
    return Holes(erased.noted + trimmed.noted, erased.deleted + trimmed.deleted)


class ErasedMessageCleaner:
    """Registers the router as a reader of the erasure list, and deletes noted messages.

    Args:
        streams: The logs; the erasure itself deletes from the other streams.
    """

    def __init__(
        self, transaction: Transaction, streams: StreamErasure, router: UUID, key: ErasureKey | None
    ) -> None:
        self._transaction = transaction
        self._streams = streams
        self._router = router
        self._key = key

    def jobs(self) -> Iterable[Job]:
        """Return the periodic jobs."""
        yield Job("erased messages", timedelta(seconds=1), self.delete_noted)
        if self._key is not None:
            yield Job("erasure list", timedelta(seconds=1), self.heed)

    async def heed(self) -> None:
        """Record that this router checks the erasure list under its key."""
        if self._key is not None:
            async with self._transaction() as connection:
                await erasure_list_sql.heed(connection, self._router, self._key.id)

    async def delete_noted(self) -> int:
        """Delete noted messages from the logs; return their number.

        Raises:
            TransientError: The next run repeats it.
        """
        async with self._transaction() as connection:
            pending = await erasure_list_sql.pending_messages(connection, sorted(_LOGS), _AT_ONCE)
        for stream in sorted(_LOGS):
            rows = [row for row in pending if row.stream == stream]
            there = [
                row
                for row in rows
                # A log that was replaced since holds other messages at these sequences.
                if await self._streams.find_stored_at(stream, row.sequence) == row.stored_at
            ]
            if there:
                await delete_noted(self._transaction, self._streams, there, overwrite=True)
                _log.info("erased_messages_deleted", stream=stream, count=len(there))
            if missing := [row for row in rows if row not in there]:
                async with self._transaction() as connection:
                    await erasure_list_sql.messages_gone(connection, missing)
        return len(pending)
