"""Measure the share of a stream that each account or agent holds; purge its oldest messages."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from chatlane.domain.limits.shares import owner_of
from chatlane.domain.log import LOGS
from chatlane.nats.jetstream import JetStream, StreamState, stream_state
from chatlane.nats.stream_scan import open_pass
from chatlane.nats.topology import LOG_STREAMS
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import (
    DEFAULT_SLOTS,
    SHARES_CONSUMER,
    StreamName,
    outbound_durable,
    routed_durable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nats.aio.client import Client

    from chatlane.domain.limits.shares import SharedStream

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
_STREAMS: Final[Mapping[SharedStream, StreamName]] = {
    "inbound": LOG_STREAMS["inbound"],
    "results": LOG_STREAMS["results"],
    "outbound": StreamName.OUTBOUND,
    "routed": StreamName.ROUTED,
    "turns": StreamName.TURNS,
}


class LogSize(NamedTuple):
    """Size of a stream; `max_bytes` is 0 if there is no limit."""

    state: StreamState
    held_bytes: int
    max_bytes: int


class OwnerUsage(NamedTuple):
    """Share of a stream that one owner holds: an exact message count and an estimated mean size."""

    messages: int
    message_bytes: int

    @property
    def held_bytes(self) -> int:
        """Return the estimated total size in bytes."""
        return self.messages * self.message_bytes


class LogShares:
    """Measures and purges the messages of one owner in a log, in OUTBOUND, ROUTED or TURNS.

    It keeps no state between two calls. The figures therefore include messages that no router has
    read yet, and stay correct after a purge or a restore.

    All methods raise BusUnavailableError when there is no answer in time.

    Args:
        client: The connection.
        slots: Number of slots for the messages of a `stream` agent.
    """

    def __init__(self, client: Client, slots: int = DEFAULT_SLOTS) -> None:
        self._client = client
        self._slots = slots
        # A purge of many messages may take a second.
        self._jetstream = JetStream(client, _PATIENCE)

    async def find_size(self, log: SharedStream) -> LogSize | None:
        """Return the size of a stream, or None if there is no such stream."""
        info = await self._jetstream.find(f"STREAM.INFO.{_STREAMS[log]}")
        if info is None:
            return None
        max_bytes = max(0, int(info["config"].get("max_bytes", 0)))
        return LogSize(stream_state(info), int(info["state"]["bytes"]), max_bytes)

    async def measure(
        self, log: SharedStream, state: StreamState, declared: Iterable[str]
    ) -> Mapping[str, OwnerUsage]:
        """Return the share of each owner; owners without messages are absent.

        Args:
            log: The stream.
            state: Its state.
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
            if messages := await self.count(log, owner):
                holdings[owner] = OwnerUsage(messages, await self._mean_bytes(log, state, owner))
        return holdings

    async def count(self, log: SharedStream, owner: str, since: int = 1) -> int:
        """Return how many messages an owner has from a sequence on."""
        if log == "turns":
            # One subject for each agent. A consumer here could have the name of an agent's durable.
            subject = _filter(log, owner)
            body = {"subjects_filter": subject}
            info = await self._jetstream.request(f"STREAM.INFO.{StreamName.TURNS}", body)
            return int((info["state"].get("subjects") or {}).get(subject, 0))
        # Create a consumer for its pending count. The subject list would hold an entry per chat.
        config = {
            # A router may create only this consumer of OUTBOUND and of ROUTED, so two routers do
            # not count at once.
            "name": f"{SHARES_CONSUMER}-{uuid4().hex}" if log in LOGS else SHARES_CONSUMER,
            "filter_subject": _filter(log, owner),
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": since,
        }
        async with open_pass(
            self._client, self._jetstream, _STREAMS[log], config, inactive=_INACTIVE
        ) as reading:
            return reading.pending

    async def find_undelivered(self, account: str) -> int | None:
        """Return the sequence in OUTBOUND before which all of `platform/account` was delivered.

        Return None if the account has no durable.
        """
        if "/" not in account:
            return None
        name = outbound_durable(*account.split("/", 1))
        info = await self._jetstream.find(f"CONSUMER.INFO.{StreamName.OUTBOUND}.{name}")
        return None if info is None else int(info["ack_floor"]["stream_seq"]) + 1

    async def find_unread(self, agent: str, last_sequence: int) -> int | None:
        """Return the sequence in ROUTED before which workers have acknowledged all of an agent.

        Return None if one of its slots has no durable.

        Args:
            agent: A `stream` agent.
            last_sequence: Newest sequence of the stream, known before this call.
        """
        first = last_sequence + 1
        for slot in range(self._slots):
            durable = routed_durable(agent, slot)
            info = await self._jetstream.find(f"CONSUMER.INFO.{StreamName.ROUTED}.{durable}")
            if info is None:
                return None
            in_work = int(info["num_ack_pending"])
            if int(info["num_pending"]) + in_work == 0:
                continue
            begin = info["ack_floor"] if in_work else info["delivered"]
            unread = await self._jetstream.find_next_message(
                StreamName.ROUTED,
                int(begin["stream_seq"]) + 1,
                subjects.routed_filter(agent, slot),
            )
            if unread is not None:
                first = min(first, unread.sequence)
        return first

    async def find_first(self, log: SharedStream, owner: str) -> int | None:
        """Return the sequence of the oldest message of an owner."""
        found = await self._jetstream.find_next_message(_STREAMS[log], 1, _filter(log, owner))
        return found.sequence if found else None

    async def purge(self, log: SharedStream, owner: str, below: int) -> int:
        """Purge the messages of an owner before a sequence; return their number."""
        answer = await self._jetstream.request(
            f"STREAM.PURGE.{_STREAMS[log]}", {"filter": _filter(log, owner), "seq": below}
        )
        return int(answer["purged"])

    async def _mean_bytes(self, log: SharedStream, state: StreamState, owner: str) -> int:
        found = [await self._sample(log, state, _filter(log, owner)) for _ in range(_SIZE_SAMPLES)]
        sizes = [size for sample in found if sample is not None for size in sample[1:]]
        return sum(sizes) // len(sizes) if sizes else _OVERHEAD_BYTES

    async def _sample(
        self, log: SharedStream, state: StreamState, subject: str
    ) -> tuple[str, int] | None:
        if state.first_sequence > state.last_sequence:
            return None
        sequence = random.randint(state.first_sequence, state.last_sequence)  # noqa: S311 # a sample
        stream = _STREAMS[log]
        found = await self._jetstream.find_next_message(stream, sequence, subject)
        if found is None:
            found = await self._jetstream.find_next_message(stream, 1, subject)
        return None if found is None else (found.subject, len(found.body) + _OVERHEAD_BYTES)


_ADDRESSES: Final[Mapping[SharedStream, str]] = {
    "inbound": subjects.LOG,
    "results": subjects.RLOG,
    "outbound": subjects.OUTBOUND,
    "routed": subjects.ROUTED,
    "turns": subjects.TURN,
}


def _stored_as(log: SharedStream) -> str:
    return subjects.wildcards(_ADDRESSES[log])


def _filter(log: SharedStream, owner: str) -> str:
    if log == "inbound" and owner == UNPARTITIONED:
        return NOT_PARTITIONED
    if log in {"results", "routed", "turns"}:
        return subjects.wildcards(_ADDRESSES[log], agent=owner)
    platform, _, account = owner.partition("/")
    return subjects.wildcards(_ADDRESSES[log], platform=platform, account=account)
