"""Check that a log is still the one that a cursor refers to, before a reader opens on it."""

from dataclasses import dataclass
from typing import Literal

from chatlane.domain.log import LogPosition
from chatlane.nats.jetstream import JetStream, StreamState
from chatlane.nats.topology import find_partition_count

Reason = Literal["generation", "tail_lost", "time_at_cursor"]


@dataclass(frozen=True, slots=True)
class LogIntact:
    """The log holds everything above the cursor."""


@dataclass(frozen=True, slots=True)
class LogUnbound:
    """The cursor does not refer to any log yet; this is its first.

    Attributes:
        cursor: The position to start from.
        generation: The log that the cursor will refer to.
    """

    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class LogReplaced:
    """The log was re-created or restored, or it lost its tail.

    Attributes:
        reason: The check that failed.
        cursor: The position before the first message of the log. The dedupe marks recognise
            messages that were already decided.
        generation: The current log.
    """

    reason: Reason
    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """Messages above the cursor are missing from the log.

    Attributes:
        first_missing: First missing sequence that may belong to the partition.
        cursor: Last missing sequence; the reader continues after it.
        generation: The log, which is still the same.
    """

    first_missing: int
    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class PartitionCountDiffers:
    """The stream and the configuration have different numbers of partitions.

    Attributes:
        count: Number of the stream; None if its subjects have no partition number.
    """

    count: int | None


Inspection = LogIntact | LogUnbound | LogReplaced | LogTruncated | PartitionCountDiffers


async def inspect_log(
    jetstream: JetStream, stream: str, position: LogPosition, partition_count: int
) -> Inspection:
    """Compare a committed position with the log.

    Args:
        jetstream: The server that holds the log.
        stream: Name of the log's stream.
        position: Committed position of one of the log's partitions.
        partition_count: The configured number of partitions.

    Raises:
        ApiRefusedError: There is no such stream.
        BusUnavailableError: No answer in time.
    """
    state = await jetstream.get_stream(stream)
    if (found := find_partition_count(state.config)) != partition_count:
        return PartitionCountDiffers(found)
    before_first = state.first_sequence - 1
    if position.generation is None:
        return LogUnbound(before_first, state.generation)
    reason = await _mismatch(jetstream, stream, state, position)
    if reason is not None:
        return LogReplaced(reason, before_first, state.generation)
    if before_first > position.cursor:
        return LogTruncated(position.cursor + 1, before_first, state.generation)
    return LogIntact()


async def _mismatch(
    jetstream: JetStream, stream: str, state: StreamState, position: LogPosition
) -> Reason | None:
    if state.generation != position.generation:
        return "generation"
    if state.last_sequence < position.cursor:
        return "tail_lost"
    if position.cursor_at is None or position.cursor < state.first_sequence:
        return None
    # If the message at the cursor was deleted, there is nothing to compare.
    at_cursor = await jetstream.find_message(stream, position.cursor)
    if at_cursor is not None and at_cursor.stored_at != position.cursor_at:
        return "time_at_cursor"
    return None
