"""List the accounts and agents that recently exceeded their share, for the status of a router.

A notice does not mean that the service is unhealthy; it concerns only the owner that it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from chatlane.domain.counts import Inconsistency
from chatlane.domain.limits.shares import label_of
from chatlane.jobs import Job
from chatlane.nats.log_shares import NOT_PARTITIONED, UNPARTITIONED
from chatlane.store import dead_letter_shares
from chatlane.store.logs import log_trims
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from chatlane.domain.limits.shares import SharedStream
    from chatlane.postgres.pool import Transaction

_EVERY: Final = timedelta(seconds=10)
_RECENT: Final = timedelta(hours=1)
# Index of the platform in `chat.v1.inbound.<platform>.<account>.<chat>`.
_FIRST_NAME: Final = 3


class Contents(Protocol):
    """Access to the contents of streams that the notices need."""

    async def count_by_subject(self, stream: StreamName, subject: str) -> Mapping[str, int]:
        """Return how many messages a stream holds under each subject that matches a filter."""
        ...


@dataclass(slots=True)
class ShareNotices:
    """Keep the notices up to date; all routers have the same.

    Attributes:
        contents: Counts messages outside all partitions.
        found: Returns the findings of the last comparison of database and streams.
        owners: The declared accounts and agents, by stream.
        find_crowding: Returns the agents that get nothing more in ROUTED.

    Attributes:
        notices: One for each kind, log and owner: `log_trimmed inbound telegram/main`.
    """

    transaction: Transaction
    contents: Contents
    found: Callable[[], Mapping[str, int]]
    owners: Mapping[SharedStream, Collection[str]]
    find_crowding: Callable[[], Collection[str]] = tuple
    notices: tuple[str, ...] = field(default=(), init=False)

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (Job("share notices", _EVERY, self.look),)

    async def look(self) -> None:
        """Read the events of the last hour, of all routers.

        Raises:
            TransientError: The next run retries.
        """
        async with self.transaction() as connection:
            trims = await log_trims.list_recent(connection, _RECENT)
            dropped = await dead_letter_shares.list_recent(connection, _RECENT)
        named = {f"log_trimmed {trim.log} {self._label(trim.log, trim.owner)}" for trim in trims}
        named |= {f"dead_letters_dropped {share.log} {share.owner}" for share in dropped}
        named |= {
            f"share_exceeded routed {self._label('routed', agent)}"
            for agent in self.find_crowding()
        }
        if self.found().get(Inconsistency.UNPARTITIONED):
            named |= await self._unpartitioned()
        self.notices = tuple(sorted(named))

    async def _unpartitioned(self) -> set[str]:
        counts = await self.contents.count_by_subject(StreamName.INBOUND, NOT_PARTITIONED)
        accounts = {"/".join(subject.split(".")[_FIRST_NAME:][:2]) for subject in counts}
        return {f"unpartitioned inbound {self._label('inbound', account)}" for account in accounts}

    def _label(self, log: str, owner: str) -> str:
        known = {
            name for owner_log, names in self.owners.items() if owner_log == log for name in names
        }
        return label_of(owner, {*known, UNPARTITIONED})
