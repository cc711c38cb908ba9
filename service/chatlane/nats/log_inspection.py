"""Checks that a log is still the one a cursor counts in, before anything is read from it."""

from dataclasses import dataclass
from typing import Literal

from chatlane.domain.log import LogPosition
from chatlane.nats.jetstream import JetStream, StreamState
from chatlane.nats.topology import find_partition_count

Reason = Literal["generation", "tail_lost", "time_at_cursor"]


@dataclass(frozen=True, slots=True)
class LogIntact:
    """Everything above the cursor is there."""


@dataclass(frozen=True, slots=True)
class LogUnbound:
    """The cursor never counted in any log; this is the first.

    Attributes:
        cursor: Where to start.
        generation: The log it will count in.
    """

    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class LogReplaced:
    """The log was made anew, restored, or lost its tail.

    Attributes:
        reason: What gave it away.
        cursor: Before the first message there is; what was seen before is recognised.
        generation: The log there is now.
    """

    reason: Reason
    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class LogTruncated:
    """Messages above the cursor are gone.

    Attributes:
        first_missing: Sequence of the first that may have been ours.
        cursor: The last one missing; reading goes on after it.
        generation: The log, which is still the same.
    """

    first_missing: int
    cursor: int
    generation: str


@dataclass(frozen=True, slots=True)
class PartitionCountDiffers:
    """The stream has another number of partitions than the configuration.

    Attributes:
        count: The stream's; None when its subjects have no partition number.
    """

    count: int | None


Inspection = LogIntact | LogUnbound | LogReplaced | LogTruncated | PartitionCountDiffers


async def inspect_log(
    jetstream: JetStream, stream: str, position: LogPosition, partition_count: int
) -> Inspection:
    """Compare a committed position with the log.

    Args:
        jetstream: Where the log is.
        stream: Its name.
        position: Of one of its partitions.
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
    # A single deleted message leaves nothing to compare with.
    at_cursor = await jetstream.find_message(stream, position.cursor)
    if at_cursor is not None and at_cursor.stored_at != position.cursor_at:
        return "time_at_cursor"
    return None
