"""What database and streams may disagree about."""

from enum import StrEnum


class Inconsistency(StrEnum):
    """What a comparison can find; each value is a label of a metric and a word in `/readyz`."""

    OUTBOX_UNPUBLISHED = "outbox_unpublished"
    """Rows that should have been published long ago."""
    TURN_UNANNOUNCED = "turn_unannounced"
    """A turn is ready, and no notification of it is before any worker."""
    TURN_OVERDUE = "turn_overdue"
    """The time of a turn came long ago, and nobody dealt with it."""
    MESSAGES_STRANDED = "messages_stranded"
    """Messages wait in a session that has no turn to answer them."""
    CURSOR_AHEAD = "cursor_ahead"
    """A cursor stands behind the end of its log, or counts in another one."""
    LOG_UNREAD = "log_unread"
    """A log holds old messages that nobody has read."""
    ROUTED_LOST = "routed_lost"
    """Messages that a stream has lost before their agent had dealt with them."""
    STREAM_AHEAD = "stream_ahead"
    """A stream holds what the database never decided."""
    UNPARTITIONED = "unpartitioned"
    """A log holds messages in no partition, which nobody reads."""
    PARTITION_COUNT = "partition_count"
    """The stream of a log and the database have different numbers of partitions."""
    LANE_ASTRAY = "lane_astray"
    """A lane leads to a session that does not exist."""
    LANE_OF_ANOTHER = "lane_of_another"
    """A lane led to another person's session, and was led away when its person wrote."""


class StreamLoss(StrEnum):
    """What gave away that a stream lost messages; each is a label of a metric."""

    REPLACED = "replaced"
    """It is another stream of that name."""
    TAIL_LOST = "tail_lost"
    """Its end is before the one it had."""
    TIME_AT_MARK = "time_at_mark"
    """Where its end was, it has another message now."""
    HOLES = "holes"
    """Messages in its midst are gone."""
    CUT_OFF = "cut_off"
    """Its oldest messages are gone before their time."""
