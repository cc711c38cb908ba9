"""Measures what each account or agent holds of a log, and purges the oldest of it."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from chatlane.domain.limits.shares import owner_of
from chatlane.nats.jetstream import JetStream, StreamState, nanoseconds, stream_state
from chatlane.nats.topology import LOG_STREAMS
from chatlane_schemas import subjects

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nats.aio.client import Client

    from chatlane.domain.log import LogName

UNPARTITIONED: Final = "unpartitioned"
"""Stands for the owner of all that was published with a wildcard for a chat."""

# The server stores an event under a partition, but for those with a wildcard for a token.
NOT_PARTITIONED: Final = f"{subjects.ROOT}.inbound.>"

# Messages that are read to find owners that are not declared (any more).
_OWNER_SAMPLES: Final = 32
# Messages of one owner that are read to estimate the size of all of them.
_SIZE_SAMPLES: Final = 8
# What the server adds to a message on disk, headers of a publish included; about right is enough.
_OVERHEAD_BYTES: Final = 120
_INACTIVE: Final = timedelta(seconds=10)
_PATIENCE: Final = timedelta(seconds=30)


class LogSize(NamedTuple):
    """How full a log is; `max_bytes` is 0 without a limit."""

    state: StreamState
    held_bytes: int
    max_bytes: int


class Holding(NamedTuple):
    """What one owner holds of a log; the number of messages is exact, their size an estimate."""

    messages: int
    message_bytes: int

    @property
    def held_bytes(self) -> int:
        """About how many bytes all of it has."""
        return self.messages * self.message_bytes


class LogShares:
    """Asks the server about parts of a log that have one owner.

    Nothing is remembered between two questions: what is measured includes what no router has
    read yet, and stays right whatever was purged or restored.

    All methods raise BusUnavailableError when there is no answer in time.
    """

    def __init__(self, client: Client) -> None:
        # A purge of many messages may take a second.
        self._jetstream = JetStream(client, _PATIENCE)

    async def find_size(self, log: LogName) -> LogSize | None:
        """Return how full a log is, or None when there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{LOG_STREAMS[log]}")
        if info is None:
            return None
        max_bytes = max(0, int(info["config"].get("max_bytes", 0)))
        return LogSize(stream_state(info), int(info["state"]["bytes"]), max_bytes)

    async def measure(
        self, log: LogName, state: StreamState, declared: Iterable[str]
    ) -> Mapping[str, Holding]:
        """Return what each owner holds; who holds nothing is absent.

        Args:
            log: Which log.
            state: How far it goes.
            declared: Owners that are asked for in any case; others are found by chance, the
                more surely the more messages they have.
        """
        owners = set(declared)
        for _ in range(_OWNER_SAMPLES):
            found = await self._sample(log, state, _stored_as(log))
            if found is not None:
                owners.add(owner_of(log, found[0]))
        holdings: dict[str, Holding] = {}
        for owner in sorted(owners):
            if messages := await self._count(log, owner):
                holdings[owner] = Holding(messages, await self._mean_bytes(log, state, owner))
        return holdings

    async def find_first(self, log: LogName, owner: str) -> int | None:
        """Return the sequence of the oldest message of an owner."""
        found = await self._jetstream.find_next_message(LOG_STREAMS[log], 1, _filter(log, owner))
        return found.sequence if found else None

    async def purge(self, log: LogName, owner: str, below: int) -> int:
        """Purge the messages of an owner before a sequence; returns how many there were."""
        answer = await self._jetstream.request(
            f"STREAM.PURGE.{LOG_STREAMS[log]}", {"filter": _filter(log, owner), "seq": below}
        )
        return int(answer["purged"])

    async def _count(self, log: LogName, owner: str) -> int:
        # A consumer that reads nothing: the list of subjects would have an entry for each chat.
        stream, name, subject = LOG_STREAMS[log], f"shares-{uuid4().hex}", _filter(log, owner)
        config = {
            "name": name,
            "filter_subject": subject,
            "deliver_policy": "all",
            "ack_policy": "none",
            "inactive_threshold": nanoseconds(_INACTIVE),
            "num_replicas": 1,
            "mem_storage": True,
        }
        created = await self._jetstream.request(
            f"CONSUMER.CREATE.{stream}.{name}.{subject}",
            {"stream_name": stream, "action": "create", "config": config},
        )
        await self._jetstream.find(f"CONSUMER.DELETE.{stream}.{name}")
        return int(created["num_pending"])

    async def _mean_bytes(self, log: LogName, state: StreamState, owner: str) -> int:
        found = [await self._sample(log, state, _filter(log, owner)) for _ in range(_SIZE_SAMPLES)]
        sizes = [size for one in found if one is not None for size in one[1:]]
        return sum(sizes) // len(sizes) if sizes else _OVERHEAD_BYTES

    async def _sample(
        self, log: LogName, state: StreamState, subject: str
    ) -> tuple[str, int] | None:
        """Return subject and size of a message somewhere in a log."""
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
