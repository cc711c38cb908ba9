"""Keeps what was erased from coming back: what routers do for people who were forgotten.

A message that somebody wrote before that has no effect, however often it comes: from the log, from
a log that was restored, or published once more. It is noted, and a sweep deletes it from its
stream. The same goes for results that answer what was erased.
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
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractAsyncContextManager
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogName
    from chatlane.privacy.person_data import Streams

    Transaction = Callable[[], AbstractAsyncContextManager[PoolConnectionProxy]]

_AT_ONCE: Final = 200
_LOGS: Final = frozenset({StreamName.INBOUND, StreamName.RESULTS})

_log = get_logger("forgetting")


async def require_keys(connection: PoolConnectionProxy, key: ErasureKey | None) -> None:
    """Refuse to route where the erasure list cannot be read: that would undo it.

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
    """Return how many messages of a log routers deleted: of erased people, or to make room."""
    async with transaction() as connection:
        erased = await erasure_list_sql.count_holes(
            connection, LOG_STREAMS[log], generation, first, last
        )
        trimmed = await log_trims.count_holes(connection, log, generation, first, last)
    return Holes(erased.noted + trimmed.noted, erased.gone + trimmed.gone)


class Forgetting:
    """What a router does besides: it says that it knows the list, and deletes what was noted.

    Args:
        streams: The logs; who erases deletes from the other streams.
    """

    def __init__(
        self, transaction: Transaction, streams: Streams, router: UUID, key: ErasureKey | None
    ) -> None:
        self._transaction = transaction
        self._streams = streams
        self._router = router
        self._key = key

    def jobs(self) -> Iterable[Job]:
        """Return what to do how often."""
        yield Job("erased messages", timedelta(seconds=1), self.delete_noted)
        if self._key is not None:
            yield Job("erasure list", timedelta(seconds=1), self.heed)

    async def heed(self) -> None:
        """Tell that this router asks the erasure list."""
        if self._key is not None:
            async with self._transaction() as connection:
                await erasure_list_sql.heed(connection, self._router, self._key.id)

    async def delete_noted(self) -> int:
        """Delete messages of the logs that had no effect; returns how many.

        Raises:
            TransientError: Next time.
        """
        async with self._transaction() as connection:
            pending = await erasure_list_sql.pending_messages(connection, sorted(_LOGS), _AT_ONCE)
        for stream in sorted(_LOGS):
            rows = [row for row in pending if row.stream == stream]
            there = [
                row
                for row in rows
                # A log that was replaced since has others at these places.
                if await self._streams.find_stored_at(stream, row.sequence) == row.stored_at
            ]
            if there:
                await delete_noted(self._transaction, self._streams, there, overwrite=True)
                _log.info("erased_messages_deleted", stream=stream, count=len(there))
            if gone := [row for row in rows if row not in there]:
                async with self._transaction() as connection:
                    await erasure_list_sql.messages_gone(connection, gone)
        return len(pending)
