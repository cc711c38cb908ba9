"""Purge the oldest messages of the largest owners when a stream is filling up.

Without this one adapter could fill INBOUND, and NATS would reject every other account until the
end of the replay window. Only messages before the least cursor are purged: all of them are
decided. The cost is a shorter replay window, and only for the owner of the messages.

In OUTBOUND an adapter that delivers nothing, or traffic above what `streams.max_bytes` allows for,
would stop the answers of every account. What was delivered is purged first. What was not is purged
only of an account that fills more than half of the stream with it while others use it, too.

In ROUTED an agent that reads nothing would stop the messages to every other agent. What workers
acknowledged is purged; what they did not stays. While that is not enough, an agent that has more
than its equal part of the stream unread gets nothing more: `crowding` names it.

Notifications in TURNS are repeated from the database, so any of them may be purged.
"""

from __future__ import annotations

import asyncio
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from chatlane.domain.limits.shares import bytes_to_trim, label_of
from chatlane.domain.log import LOGS
from chatlane.jobs import Job
from chatlane.nats.log_shares import UNPARTITIONED
from chatlane.observability.logs import get_logger
from chatlane.observability.metrics import show
from chatlane.store.logs import log_trims, partitions
from chatlane.store.logs.log_trims import Trim

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from chatlane.domain.limits.shares import SharedStream
    from chatlane.domain.log import LogName
    from chatlane.nats.log_shares import LogShares, LogSize, OwnerUsage
    from chatlane.observability.metrics import Metrics
    from chatlane.postgres.pool import Transaction

_EVERY: Final = timedelta(seconds=1)
# Part of the limit to trim to: more than necessary, so that few new messages do not trim again.
_TRIMMED_TO: Final = 0.8
# While the server purges, it stores nothing else. A purge has a high fixed cost and a low cost for
# each message, so few large purges are better; a pause after each lets the server store as long.
_PLACES_AT_ONCE: Final = 50_000
_LEAST_PLACES: Final = 10
# Part of OUTBOUND that one account may fill with undelivered messages.
_MOST_UNDELIVERED: Final = 0.5

_TRIMMED: Final[tuple[SharedStream, ...]] = (*LOGS, "outbound", "turns", "routed")

_log = get_logger("log_trimmer")


class _Purgeable(NamedTuple):
    """Messages of one owner that may be purged: how many, and before which sequence they are."""

    messages: int
    below: int


@dataclass
class LogTrimmer:
    """Purge decided and delivered messages early while a stream is filling up.

    Several routers may do this at once: a router does not find what another one has purged.

    Attributes:
        shares: Access to the streams.
        metrics: Exports the shares and the number of purged messages.
        owners: The declared accounts and agents, by stream.
        trim_above: A stream is trimmed when it exceeds this part of its size limit.
        has_other_agents: Whether the service has more than one agent, of any delivery.

    Attributes:
        crowding: Agents that get nothing more in ROUTED until workers read what they have.
    """

    shares: LogShares
    transaction: Transaction
    metrics: Metrics
    owners: InitVar[Mapping[SharedStream, Collection[str]]]
    trim_above: float
    has_other_agents: bool = True
    crowding: frozenset[str] = field(default=frozenset(), init=False)

    def __post_init__(self, owners: Mapping[SharedStream, Collection[str]]) -> None:
        self._owners: dict[SharedStream, set[str]] = {
            log: set(owners.get(log, ())) for log in _TRIMMED
        }
        self._owners["inbound"].add(UNPARTITIONED)

    def jobs(self) -> tuple[Job, ...]:
        """Return the periodic jobs."""
        return (Job("log trimming", _EVERY, self.run),)

    async def run(self) -> int:
        """Trim the streams that are filling up; return how many messages were purged.

        Raises:
            BusUnavailableError: The next run retries.
            StoreUnavailableError: The next run retries.
        """
        shares: dict[tuple[str, ...], float] = {}
        purged = sum([await self._trim(log, shares) for log in _TRIMMED])
        show(self.metrics.log_share, shares)
        return purged

    async def _trim(self, log: SharedStream, shares: dict[tuple[str, ...], float]) -> int:
        size = await self.shares.find_size(log)
        if (
            size is None
            or not size.max_bytes
            or size.held_bytes <= self.trim_above * size.max_bytes
        ):
            if log == "routed":
                self._set_crowding(frozenset())
            return 0
        held = await self.shares.measure(log, size.state, self._owners[log])
        for owner, holding in held.items():
            labels = log, self._label(log, owner)
            shares[labels] = shares.get(labels, 0) + holding.held_bytes
        excess = size.held_bytes - int(_TRIMMED_TO * self.trim_above * size.max_bytes)
        purgeable = await self._purgeable(log, size, held, excess)
        sizes = {
            owner: part.messages * held[owner].message_bytes for owner, part in purgeable.items()
        }
        purged = 0
        for owner, wanted in bytes_to_trim(sizes, excess).items():
            messages = -(-wanted // held[owner].message_bytes)
            below = purgeable[owner].below
            purged += await self._trim_owner(log, owner, messages, below, size.state.generation)
        return purged

    async def _purgeable(
        self, log: SharedStream, size: LogSize, held: Mapping[str, OwnerUsage], excess: int
    ) -> dict[str, _Purgeable]:
        match log:
            case "outbound":
                return await self._delivered(size, held, excess)
            case "routed":
                return await self._acknowledged(size, held)
            case "turns":
                below = size.state.last_sequence + 1
                return {owner: _Purgeable(usage.messages, below) for owner, usage in held.items()}
            case _:
                return await self._decided(log, size, held)

    async def _decided(
        self, log: LogName, size: LogSize, held: Mapping[str, OwnerUsage]
    ) -> dict[str, _Purgeable]:
        below = await self._find_bound(log, size.state.generation)
        if below is None or below <= size.state.first_sequence:
            return {}
        return {owner: _Purgeable(usage.messages, below) for owner, usage in held.items()}

    async def _delivered(
        self, size: LogSize, held: Mapping[str, OwnerUsage], excess: int
    ) -> dict[str, _Purgeable]:
        found: dict[str, _Purgeable] = {}
        for owner, usage in held.items():
            below = await self.shares.find_undelivered(owner) or 0
            undelivered = (
                await self.shares.count("outbound", owner, below) if below else usage.messages
            )
            found[owner] = _Purgeable(usage.messages - undelivered, below)
        delivered = sum(part.messages * held[owner].message_bytes for owner, part in found.items())
        if delivered >= excess or len(held) == 1:
            return found
        most = _MOST_UNDELIVERED * size.max_bytes
        for owner, usage in held.items():
            if usage.held_bytes - found[owner].messages * usage.message_bytes > most:
                found[owner] = _Purgeable(usage.messages, size.state.last_sequence + 1)
        return found

    async def _acknowledged(
        self, size: LogSize, held: Mapping[str, OwnerUsage]
    ) -> dict[str, _Purgeable]:
        """Return what the workers of each agent have acknowledged; note who crowds the stream."""
        found: dict[str, _Purgeable] = {}
        unread_bytes: dict[str, int] = {}
        for agent, usage in held.items():
            below = await self.shares.find_unread(agent, size.state.last_sequence) or 0
            unread = await self.shares.count("routed", agent, below) if below else usage.messages
            found[agent] = _Purgeable(max(0, usage.messages - unread), below)
            unread_bytes[agent] = unread * usage.message_bytes
        equal_part = self.trim_above * size.max_bytes / max(1, len(self._owners["routed"]))
        crowding = (agent for agent, unread in unread_bytes.items() if unread > equal_part)
        self._set_crowding(frozenset(crowding) if self.has_other_agents else frozenset())
        return found

    def _set_crowding(self, agents: frozenset[str]) -> None:
        for agent in sorted(agents - self.crowding):
            _log.error("share_exceeded", log="routed", owner=self._label("routed", agent))
        for agent in sorted(self.crowding - agents):
            _log.warning("share_regained", log="routed", owner=self._label("routed", agent))
        self.crowding = agents

    async def _find_bound(self, log: LogName, generation: str) -> int | None:
        """Return the least cursor, or None if a partition has a cursor in another generation."""
        async with self.transaction() as connection:
            return await partitions.least_cursor(connection, log, generation)

    async def _trim_owner(
        self, log: SharedStream, owner: str, wanted: int, below: int, generation: str
    ) -> int:
        """Purge the oldest messages of an owner until about `wanted` are purged."""
        purged = 0
        first_purged = last_purged = 0
        while purged < wanted:
            first = await self.shares.find_first(log, owner)
            if first is None or first >= below:
                break
            # A sequence holds one message at most, so this rarely purges more than wanted.
            places = max(_LEAST_PLACES, min(wanted - purged, _PLACES_AT_ONCE))
            end = min(first + places, below)
            trim = Trim(log, generation, owner, first, end - 1)
            # Recorded before the purge, so that a reader that misses them finds the reason.
            async with self.transaction() as connection:
                await log_trims.note(connection, trim)
            began = monotonic()
            count = await self.shares.purge(log, owner, end)
            took = monotonic() - began
            async with self.transaction() as connection:
                await log_trims.confirm(connection, trim, count)
            first_purged, last_purged = first_purged or first, end - 1
            purged += count
            await asyncio.sleep(took)
        if purged:
            self.metrics.log_trimmed.labels(log, self._label(log, owner)).inc(purged)
            _log.warning(
                "log_trimmed",
                log=log,
                owner=self._label(log, owner),
                count=purged,
                first_seq=first_purged,
                last_seq=last_purged,
            )
        return purged

    def _label(self, log: SharedStream, owner: str) -> str:
        return label_of(owner, self._owners[log])
