"""Name the inconsistencies between database and streams."""

from enum import StrEnum


class Inconsistency(StrEnum):
    """Results of a comparison; each value is a metric label and a word in `/readyz`."""

    OUTBOX_UNPUBLISHED = "outbox_unpublished"
    """Rows that should have been published long ago."""
    TURN_UNANNOUNCED = "turn_unannounced"
    """A turn is ready, but no worker has a notification of it."""
    TURN_OVERDUE = "turn_overdue"
    """A turn was due long ago and has not been handled."""
    MESSAGES_STRANDED = "messages_stranded"
    """Messages wait in a session that has no turn to answer them."""
    CURSOR_AHEAD = "cursor_ahead"
    """A cursor is past the end of its log, or counts in another one."""
    LOG_UNREAD = "log_unread"
    """A log holds old messages that no router has read."""
    ROUTED_LOST = "routed_lost"
    """A stream has lost messages before their agent had handled them."""
    STREAM_AHEAD = "stream_ahead"
    """A stream holds messages that the database never decided on."""
    UNPARTITIONED = "unpartitioned"
    """A log holds messages outside all partitions, which no router reads."""
    PARTITION_COUNT = "partition_count"
    """The stream of a log and the database have different numbers of partitions."""
    LANE_ASTRAY = "lane_astray"
    """A lane points to a session that does not exist."""
    LANE_OF_ANOTHER = "lane_of_another"
    """A lane pointed to another person's session, and was repaired when its person wrote."""


class StreamLoss(StrEnum):
    """The evidence that a stream lost messages; each value is a metric label."""

    REPLACED = "replaced"
    """Another stream has its name."""
    TAIL_LOST = "tail_lost"
    """Its end is before its former one."""
    TIME_AT_MARK = "time_at_mark"
    """The message at its former end is another one now."""
    HOLES = "holes"
    """Messages in its middle are gone."""
    CUT_OFF = "cut_off"
    """Its oldest messages are gone before their time."""
