"""Measure the share of a log that each account or agent holds, and purge its oldest messages."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from chatlane.domain.limits.shares import owner_of
from chatlane.nats.jetstream import JetStream, StreamState, stream_state
from chatlane.nats.stream_scan import open_pass
from chatlane.nats.topology import LOG_STREAMS
from chatlane_schemas.topology import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nats.aio.client import Client

    from chatlane.domain.log import LogName

UNPARTITIONED: Final = "unpartitioned"
"""The owner of all events that were published with a wildcard in place of a chat."""

# The server stores an event under a partition, unless a token of its subject is a wildcard.
NOT_PARTITIONED: Final = f"{subjects.ROOT}.inbound.>"

# Number of messages that are read to find owners that are not declared, or not any longer.
_OWNER_SAMPLES: Final = 32
# Number of messages of one owner that are read to estimate the mean size.
_SIZE_SAMPLES: Final = 8
# Approximate bytes that the server adds to a message on disk, including the publish headers.
_OVERHEAD_BYTES: Final = 120
_INACTIVE: Final = timedelta(seconds=10)
_PATIENCE: Final = timedelta(seconds=30)


class LogSize(NamedTuple):
    """Size of a log; `max_bytes` is 0 if there is no limit."""

    state: StreamState
    held_bytes: int
    max_bytes: int


class OwnerUsage(NamedTuple):
    """Share of a log that one owner holds: an exact message count and an estimated mean size."""

    messages: int
    message_bytes: int

    @property
    def held_bytes(self) -> int:
        """Return the estimated total size in bytes."""
        return self.messages * self.message_bytes


class LogShares:
    """Measures and purges the messages of one owner in a log.

    It keeps no state between two calls. The figures therefore include messages that no router has
    read yet, and stay correct after a purge or a restore.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # A purge of many messages may take a second.
        self._jetstream = JetStream(client, _PATIENCE)

    async def find_size(self, log: LogName) -> LogSize | None:
        """Return the size of a log, or None if there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{LOG_STREAMS[log]}")
        if info is None:
            return None
        max_bytes = max(0, int(info["config"].get("max_bytes", 0)))
        return LogSize(stream_state(info), int(info["state"]["bytes"]), max_bytes)

    async def measure(
        self, log: LogName, state: StreamState, declared: Iterable[str]
    ) -> Mapping[str, OwnerUsage]:
        """Return the share of each owner; owners without messages are absent.

        Args:
            log: The log.
            state: State of its stream.
            declared: Owners that are always measured. Sampling finds other owners, with a
                probability that grows with the number of their messages.
        """
        owners = set(declared)
        for _ in range(_OWNER_SAMPLES):
            found = await self._sample(log, state, _stored_as(log))
            if found is not None:
                owners.add(owner_of(log, found[0]))
        holdings: dict[str, OwnerUsage] = {}
        for owner in sorted(owners):
            if messages := await self._count(log, owner):
                holdings[owner] = OwnerUsage(messages, await self._mean_bytes(log, state, owner))
        return holdings

    async def find_first(self, log: LogName, owner: str) -> int | None:
        """Return the sequence of the oldest message of an owner."""
        found = await self._jetstream.find_next_message(LOG_STREAMS[log], 1, _filter(log, owner))
        return found.sequence if found else None

    async def purge(self, log: LogName, owner: str, below: int) -> int:
        """Purge the messages of an owner before a sequence; return their number."""
        answer = await self._jetstream.request(
            f"STREAM.PURGE.{LOG_STREAMS[log]}", {"filter": _filter(log, owner), "seq": below}
        )
        return int(answer["purged"])

    async def _count(self, log: LogName, owner: str) -> int:
        # Create a consumer for its pending count. The subject list would hold an entry per chat.
        config = {
            "name": f"shares-{uuid4().hex}",
            "filter_subject": _filter(log, owner),
            "deliver_policy": "all",
        }
        async with open_pass(
            self._client, self._jetstream, LOG_STREAMS[log], config, inactive=_INACTIVE
        ) as reading:
            return reading.pending

    async def _mean_bytes(self, log: LogName, state: StreamState, owner: str) -> int:
        found = [await self._sample(log, state, _filter(log, owner)) for _ in range(_SIZE_SAMPLES)]
        sizes = [size for sample in found if sample is not None for size in sample[1:]]
        return sum(sizes) // len(sizes) if sizes else _OVERHEAD_BYTES

    async def _sample(
        self, log: LogName, state: StreamState, subject: str
    ) -> tuple[str, int] | None:
        if state.first_sequence > state.last_sequence:
            return None
        sequence = random.randint(state.first_sequence, state.last_sequence)  # noqa: S311 # a sample
        stream = LOG_STREAMS[log]
        found = await self._jetstream.find_next_message(stream, sequence, subject)
        if found is None:
            found = await self._jetstream.find_next_message(stream, 1, subject)
        return None if found is None else (found.subject, len(found.body) + _OVERHEAD_BYTES)


def _stored_as(log: LogName) -> str:
    return subjects.wildcards(subjects.LOG if log == "inbound" else subjects.RLOG)


def _filter(log: LogName, owner: str) -> str:
    if owner == UNPARTITIONED:
        return NOT_PARTITIONED
    if log == "results":
        return subjects.wildcards(subjects.RLOG, agent=owner)
    platform, _, account = owner.partition("/")
    return subjects.wildcards(subjects.LOG, platform=platform, account=account)
