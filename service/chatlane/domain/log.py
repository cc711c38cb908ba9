"""Define the parts of a log: its name, its partitions, its messages and positions in it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from datetime import datetime

LogName = Literal["inbound", "results"]
LOGS: Final[tuple[LogName, ...]] = ("inbound", "results")
# W3C trace context as pairs of header and value: `traceparent`, perhaps `tracestate`. A tuple and
# not a dict, because messages are used as keys.
Trace = tuple[tuple[str, str], ...]

REPLAY_WINDOW: Final = timedelta(hours=72)
"""How long a log keeps decided messages, so that they can be read again after a restore."""

MOST_PARTITIONS: Final = 256
"""Maximum number of partitions of a log."""


class PartitionId(NamedTuple):
    """One partition of one log; sorts as its row does, so it also gives the lock order."""

    log: LogName
    number: int


class LogMessage(NamedTuple):
    """One message as the server stored it.

    A tuple, because one is made for every message that is read: a frozen dataclass with slots
    costs four times as much to build.

    Attributes:
        log: The log it was read from.
        partition: The partition within that log that the server stored it under.
        sequence: Its place in the stream; grows within a partition, with holes.
        stored_at: When the server stored it, aware UTC, cut to microseconds.
        subject: The stored subject, partition included.
        message_id: The `Nats-Msg-Id`, when the publisher sent one.
        body: Raw; nothing has looked into it.
        trace: The trace context it came with, when it is traced.
    """

    log: LogName
    partition: int
    sequence: int
    stored_at: "datetime"
    subject: str
    message_id: str | None
    body: bytes
    trace: Trace | None = None


class LogPosition(NamedTuple):
    """The position up to which a partition is committed.

    Attributes:
        cursor: The last sequence whose effects are committed; 0 before the first.
        cursor_at: When the server stored the message at the cursor; None when not known.
        generation: The log that the cursor counts in; None before the first reader.
    """

    cursor: int
    cursor_at: "datetime | None"
    generation: str | None


def describe_partition_count(place: str, actual: int | None, configured: int) -> str:
    """Describe a mismatch of partition counts and how an operator resolves it."""
    keep = f"set router.partitions to {actual}, or " if actual else ""
    return (
        f"{place} has {actual or 'no'} partitions, router.partitions is {configured}: "
        f"{keep}move to new streams (docs/operations.md, Change the number of partitions)"
    )
