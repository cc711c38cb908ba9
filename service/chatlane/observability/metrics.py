"""All metrics of a process, listed once with kind, labels and meaning.

Labels are closed sets: declared names, logs, stages and reasons, never an id. The methods are cheap
enough to call once per batch; the counts of a batch are summed before they come here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from chatlane.domain.counts import CountName
from chatlane.domain.inconsistencies import Inconsistency, StreamLoss
from chatlane.domain.log import LOGS
from chatlane_schemas.dead import DeadReason, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_COMPARED: Final = ("ROUTED", "OUTBOUND")
# A batch takes milliseconds, a takeover seconds; a lease of 30 s is the longest wait counted.
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# Turns wait for workers, and have no time limit.
_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_MESSAGES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its full name, kind and meaning.

    Attributes:
        values: The values of each label, if all of them start at 0. Prometheus sees no increase
            when a series first appears with 1, so a metric that an alert watches must exist before.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()


ROUTED: Final = Metric(
    "chatlane_messages_routed_total",
    "counter",
    "Inbound messages that found their session, by platform.",
    ("platform",),
)
DUPLICATES: Final = Metric(
    "chatlane_duplicates_total",
    "counter",
    "Messages dropped because their effect was already committed.",
    ("log",),
)
KEPT: Final = Metric(
    "chatlane_kept_events_total",
    "counter",
    "Events that start nothing: edit, delete, reaction, receipt, service, migration, bot,"
    " other_bot, silenced_bot.",
    ("kind",),
)
MESSAGE_CHANGES: Final = Metric(
    "chatlane_message_changes_total",
    "counter",
    "Edits and deletes: applied, same (as it says), older (than what was applied), gone (nothing"
    " to change), early (before its message), new (routed as a message).",
    ("kind", "outcome"),
    values=(("edit", "delete"), ("applied", "same", "older", "gone", "early", "new")),
)
COMMANDS: Final = Metric(
    "chatlane_commands_total",
    "counter",
    "Commands that people gave in chats: done, or refused because they may not.",
    ("command", "outcome"),
)
ERASED: Final = Metric(
    "chatlane_erased_messages_total",
    "counter",
    "Messages of logs without effect, because their person was erased before; they are deleted.",
    ("stream",),
    values=(("INBOUND", "RESULTS"),),
)
DEAD_LETTERS: Final = Metric(
    "chatlane_dead_letters_total",
    "counter",
    "Messages set aside, by where and why.",
    ("stage", "reason"),
    values=(tuple(Stage), tuple(DeadReason)),
)
SESSIONS_STARTED: Final = Metric(
    "chatlane_sessions_started_total",
    "counter",
    "Sessions opened; reason is `new` or the reset that ended the one before.",
    ("agent", "reason"),
)
STORED_VALUES_UNKNOWN: Final = Metric(
    "chatlane_stored_values_unknown",
    "gauge",
    "How often this router has read a stored value that it does not know, since it began.",
    ("column",),
)
SEARCHABLE_ROWS: Final = Metric(
    "chatlane_searchable_rows_total",
    "counter",
    "Rows of transcripts that this router made searchable.",
)
UNSEARCHABLE_SESSIONS: Final = Metric(
    "chatlane_unsearchable_sessions",
    "gauge",
    "Sessions of which this router knows that not all of them is searchable yet.",
)
BATCHES: Final = Metric(
    "chatlane_batches_total",
    "counter",
    "Batches by outcome: committed, superseded (a partition was lost), failed (tried again).",
    ("outcome",),
    values=(("committed", "superseded", "failed"),),
)
BATCH_SECONDS: Final = Metric(
    "chatlane_batch_seconds",
    "histogram",
    "From the start of a batch to its commit.",
    buckets=_SECONDS,
)
BATCH_MESSAGES: Final = Metric(
    "chatlane_batch_messages", "histogram", "Messages in a committed batch.", buckets=_MESSAGES
)
STAGE_SECONDS: Final = Metric(
    "chatlane_stage_seconds",
    "histogram",
    "Seconds of a batch by stage: queue, decode, wait, fence, read, decide, write, commit.",
    ("stage",),
    buckets=_SECONDS,
)
PARTITION_LAG: Final = Metric(
    "chatlane_partition_lag_seconds",
    "gauge",
    "Age of the oldest message read and not committed, or how long it cannot be read; else 0.",
    ("log", "partition"),
)
LEASE_LEFT: Final = Metric(
    "chatlane_partition_lease_seconds",
    "gauge",
    "Remaining seconds of the lease that ends first, of the partitions this process reads.",
    ("log",),
)
HELD_BACK: Final = Metric(
    "chatlane_held_back_total",
    "counter",
    "Batches of which a part was left in its log, because the stream it leads to is full.",
    ("stream",),
)
LOG_LAG: Final = Metric(
    "chatlane_log_lag_seconds",
    "gauge",
    "Age of the oldest message of the last batch when it was committed.",
    ("log",),
)
OUTBOX_BACKLOG: Final = Metric(
    "chatlane_outbox_backlog", "gauge", "Rows this process has committed and not yet published."
)
PUBLISHED: Final = Metric(
    "chatlane_published_total",
    "counter",
    "Outbox rows that NATS acknowledged, by stream.",
    ("stream",),
)
PUBLISH_REPEATS: Final = Metric(
    "chatlane_publish_repeats_total",
    "counter",
    "Publishes repeated with the same id because no acknowledgement came.",
    ("stream",),
)
PUBLISH_SECONDS: Final = Metric(
    "chatlane_publish_seconds",
    "histogram",
    "From the commit of a batch to the acknowledgement of its last row.",
    buckets=_SECONDS,
)
SWEPT: Final = Metric(
    "chatlane_swept_rows_total", "counter", "Outbox rows of dead routers that were published."
)
TURNS_DISPATCHED: Final = Metric(
    "chatlane_turns_dispatched_total",
    "counter",
    "Notifications of turns, first ones and repeats.",
    ("agent",),
)
TURNS_CLAIMED: Final = Metric(
    "chatlane_turn_claims_total",
    "counter",
    "Answered claims: claimed, taken, finished, unknown, void.",
    ("agent", "status"),
)
TURN_RENEWALS: Final = Metric(
    "chatlane_turn_renewals_total",
    "counter",
    "Answered renewals: renewed, stale, finished, unknown.",
    ("agent", "status"),
)
TURNS_EXPIRED: Final = Metric(
    "chatlane_turns_expired_total", "counter", "Leases that ended without a result.", ("agent",)
)
TURNS_RETRIED: Final = Metric(
    "chatlane_turns_retried_total",
    "counter",
    "Attempts that failed and may be tried again.",
    ("agent",),
)
STREAM_ANSWERS: Final = Metric(
    "chatlane_stream_answers_total", "counter", "Answers of stream agents.", ("agent",)
)
TURNS_FINISHED: Final = Metric(
    "chatlane_turns_finished_total",
    "counter",
    "Turns that ended: ok, failed, no_reply.",
    ("agent", "outcome"),
)
TURNS_CANCELLED: Final = Metric(
    "chatlane_turns_cancelled_total",
    "counter",
    "Turns that were cancelled, by reason: interrupted, stopped, session_ended.",
    ("agent", "reason"),
)
LATE_RESULTS: Final = Metric(
    "chatlane_late_results_total",
    "counter",
    "Results of an attempt that no longer counted; kept, without effect.",
    ("agent",),
)
CLAIM_SECONDS: Final = Metric(
    "chatlane_claim_seconds",
    "histogram",
    "From a claim or renewal to its answer.",
    buckets=_SECONDS,
)
TURN_WAITED: Final = Metric(
    "chatlane_turn_wait_seconds",
    "histogram",
    "From the message that made a turn to its first claim.",
    ("agent",),
    buckets=_LONG_SECONDS,
)
TURNS: Final = Metric(
    "chatlane_turns",
    "gauge",
    "Live turns of the service: ready, resting (not announced yet), claimed, overdue (lease over).",
    ("agent", "state"),
)
OLDEST_READY: Final = Metric(
    "chatlane_oldest_ready_turn_seconds",
    "gauge",
    "How long the oldest turn that no worker holds has been there, of the whole service.",
    ("agent",),
)
DEAD_LETTERS_DROPPED: Final = Metric(
    "chatlane_dead_letters_dropped_total",
    "counter",
    "Dead letters that were not kept, because an account or agent caused too many in an hour.",
    ("log", "owner"),
)
DEAD_LETTERS_KEPT: Final = Metric(
    "chatlane_dead_letters_kept",
    "gauge",
    "Dead letters of the whole service, neither retried nor dropped, up to 10,000 of a reason.",
    ("cause", "reason"),
)
DEAD_LETTER_OLDEST: Final = Metric(
    "chatlane_oldest_dead_letter_seconds",
    "gauge",
    "Age of the oldest dead letter of the whole service, by who must act.",
    ("cause",),
)
OUTBOX_OLDEST: Final = Metric(
    "chatlane_outbox_oldest_seconds",
    "gauge",
    "Age of the oldest outbox row of the whole service that is not deleted yet.",
)
UNOWNED: Final = Metric(
    "chatlane_partitions_unowned",
    "gauge",
    "Partitions of the whole service that no router holds under a valid lease.",
    ("log",),
)
PARTITIONS: Final = Metric(
    "chatlane_partitions",
    "gauge",
    "Partitions of each log.",
    ("log",),
)
UNREAD: Final = Metric(
    "chatlane_unread_messages",
    "gauge",
    "Messages that a worker group or an account has not acknowledged.",
    ("stream", "reader"),
)
OLDEST_UNREAD: Final = Metric(
    "chatlane_oldest_unread_seconds",
    "gauge",
    "Age of the oldest message that a worker group or an account has not acknowledged.",
    ("stream", "reader"),
)
STREAM_KEEPS: Final = Metric(
    "chatlane_stream_keeps_seconds",
    "gauge",
    "How long a stream keeps unread messages; logs have no such limit.",
    ("stream",),
)
STREAM_BYTES: Final = Metric(
    "chatlane_stream_bytes", "gauge", "Bytes that a stream holds.", ("stream",)
)
STREAM_LIMIT: Final = Metric(
    "chatlane_stream_limit_bytes", "gauge", "Bytes at which a stream is full.", ("stream",)
)
PARTITIONS_OWNED: Final = Metric(
    "chatlane_partitions_owned", "gauge", "Partitions this process reads now.", ("log",)
)
TAKEOVERS: Final = Metric(
    "chatlane_partition_takeovers_total",
    "counter",
    "Partitions taken: free (handed back or new) or expired (the owner died).",
    ("log", "how"),
)
PARTITIONS_LOST: Final = Metric(
    "chatlane_partitions_lost_total",
    "counter",
    "Partitions another process took while this one believed it owned them.",
    ("log",),
)
READER_RECREATIONS: Final = Metric(
    "chatlane_reader_recreations_total",
    "counter",
    "Readers created again: disconnected, gap, silence, status, pull, fell_behind, log_replaced.",
    ("log", "reason"),
)
LOG_ALARMS: Final = Metric(
    "chatlane_log_alarms_total",
    "counter",
    "The log is not what was read before: generation, tail_lost, time_at_cursor, truncated, deleted.",
    ("log", "kind"),
    values=(LOGS, ("generation", "tail_lost", "time_at_cursor", "truncated", "deleted")),
)
RECEIVED: Final = Metric(
    "chatlane_received_messages_total",
    "counter",
    "Messages of a log that were decided, repeats and garbage included, by account or agent.",
    ("log", "owner"),
)
RECEIVED_BYTES: Final = Metric(
    "chatlane_received_bytes_total",
    "counter",
    "Bytes of the bodies of these.",
    ("log", "owner"),
)
LOG_SHARE: Final = Metric(
    "chatlane_log_share_bytes",
    "gauge",
    "About how much of a log an account or agent holds; shown while the log is filling.",
    ("log", "owner"),
)
LOG_TRIMMED: Final = Metric(
    "chatlane_log_trimmed_total",
    "counter",
    "Decided messages purged before the end of the replay window to make room in a log.",
    ("log", "owner"),
)
DATABASE_REGRESSIONS: Final = Metric(
    "chatlane_database_regressions_total",
    "counter",
    "The database had forgotten what it had confirmed to this router.",
)
TOPOLOGY_DIFFERENCES: Final = Metric(
    "chatlane_topology_differences",
    "gauge",
    "Streams and durables that are missing or not as declared.",
)
STREAM_LOSSES: Final = Metric(
    "chatlane_stream_losses_total",
    "counter",
    "A stream lost what it had: replaced, tail_lost, time_at_mark, holes, cut_off.",
    ("stream", "kind"),
    values=(_COMPARED, tuple(StreamLoss)),
)
INCONSISTENCIES: Final = Metric(
    "chatlane_inconsistencies",
    "gauge",
    "Disagreements between database and streams of the whole service; see below.",
    ("kind",),
)
RECONCILED: Final = Metric(
    "chatlane_reconciled_total",
    "counter",
    "Inconsistencies that were repaired.",
    ("kind",),
    values=(tuple(Inconsistency),),
)
API_REQUESTS: Final = Metric(
    "chatlane_api_requests_total",
    "counter",
    "Answered requests of the session API, by method and outcome.",
    ("method", "outcome"),
)
API_SECONDS: Final = Metric(
    "chatlane_api_seconds",
    "histogram",
    "From a request of the session API to its answer.",
    ("method",),
    buckets=_SECONDS,
)
NATS_CONNECTED: Final = Metric(
    "chatlane_nats_connected", "gauge", "1 while the connection to NATS stands."
)
NATS_RECONNECTS: Final = Metric(
    "chatlane_nats_reconnects_total", "counter", "Times the connection to NATS came back."
)
NATS_REFUSED: Final = Metric(
    "chatlane_nats_refused_total",
    "counter",
    "Refusals by NATS to this process: publish, subscribe, or connect at all.",
    ("what",),
    values=(("publish", "subscribe", "connect"),),
)
LOOP_LAG: Final = Metric(
    "chatlane_event_loop_lag_seconds",
    "gauge",
    "How late the last heartbeat of the event loop was.",
)
BUILD: Final = Metric(
    "chatlane_build_info", "gauge", "Always 1; the label is the release.", ("version",)
)

METRICS: Final = (
    ROUTED,
    DUPLICATES,
    KEPT,
    ERASED,
    MESSAGE_CHANGES,
    COMMANDS,
    DEAD_LETTERS,
    SESSIONS_STARTED,
    SEARCHABLE_ROWS,
    UNSEARCHABLE_SESSIONS,
    STORED_VALUES_UNKNOWN,
    BATCHES,
    BATCH_SECONDS,
    BATCH_MESSAGES,
    STAGE_SECONDS,
    PARTITION_LAG,
    LEASE_LEFT,
    HELD_BACK,
    LOG_LAG,
    OUTBOX_BACKLOG,
    PUBLISHED,
    PUBLISH_REPEATS,
    PUBLISH_SECONDS,
    SWEPT,
    TURNS_DISPATCHED,
    TURNS_CLAIMED,
    TURN_RENEWALS,
    TURNS_EXPIRED,
    TURNS_RETRIED,
    STREAM_ANSWERS,
    TURNS_FINISHED,
    TURNS_CANCELLED,
    LATE_RESULTS,
    CLAIM_SECONDS,
    TURN_WAITED,
    TURNS,
    OLDEST_READY,
    DEAD_LETTERS_DROPPED,
    DEAD_LETTERS_KEPT,
    DEAD_LETTER_OLDEST,
    OUTBOX_OLDEST,
    UNOWNED,
    PARTITIONS,
    UNREAD,
    OLDEST_UNREAD,
    STREAM_KEEPS,
    STREAM_BYTES,
    STREAM_LIMIT,
    PARTITIONS_OWNED,
    TAKEOVERS,
    PARTITIONS_LOST,
    READER_RECREATIONS,
    LOG_ALARMS,
    RECEIVED,
    RECEIVED_BYTES,
    LOG_SHARE,
    LOG_TRIMMED,
    DATABASE_REGRESSIONS,
    TOPOLOGY_DIFFERENCES,
    STREAM_LOSSES,
    INCONSISTENCIES,
    RECONCILED,
    API_REQUESTS,
    API_SECONDS,
    NATS_CONNECTED,
    NATS_RECONNECTS,
    NATS_REFUSED,
    LOOP_LAG,
    BUILD,
)


# One counter for each name; a test compares them.
COUNTERS: Final[Mapping[CountName, Metric]] = {
    CountName.ROUTED: ROUTED,
    CountName.DUPLICATES: DUPLICATES,
    CountName.KEPT: KEPT,
    CountName.ERASED: ERASED,
    CountName.MESSAGE_CHANGES: MESSAGE_CHANGES,
    CountName.COMMANDS: COMMANDS,
    CountName.DEAD_LETTERS: DEAD_LETTERS,
    CountName.DEAD_LETTERS_DROPPED: DEAD_LETTERS_DROPPED,
    CountName.SESSIONS_STARTED: SESSIONS_STARTED,
    CountName.TURNS_DISPATCHED: TURNS_DISPATCHED,
    CountName.TURNS_EXPIRED: TURNS_EXPIRED,
    CountName.TURNS_RETRIED: TURNS_RETRIED,
    CountName.TURNS_FINISHED: TURNS_FINISHED,
    CountName.TURNS_CANCELLED: TURNS_CANCELLED,
    CountName.STREAM_ANSWERS: STREAM_ANSWERS,
    CountName.LATE_RESULTS: LATE_RESULTS,
}


class Metrics:
    """The metrics of one process, in its own registry."""

    def __init__(self, version: str = "unknown") -> None:
        # A creation time for every counter would double the page.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counters = {
            metric: Counter(metric.name, metric.meaning, metric.labels, registry=self.registry)
            for metric in METRICS
            if metric.kind == "counter"
        }
        self._gauges = {
            metric: Gauge(metric.name, metric.meaning, metric.labels, registry=self.registry)
            for metric in METRICS
            if metric.kind == "gauge"
        }
        self._histograms = {
            metric: Histogram(
                metric.name,
                metric.meaning,
                metric.labels,
                buckets=metric.buckets,
                registry=self.registry,
            )
            for metric in METRICS
            if metric.kind == "histogram"
        }
        for metric, counter in self._counters.items():
            for labels in product(*metric.values) if metric.values else ():
                counter.labels(*labels)
        self._set(BUILD, 1, version)

    def render(self) -> bytes:
        """Return the page that Prometheus reads."""
        return generate_latest(self.registry)

    def record_decisions(self, counts: Mapping[tuple[str, ...], int]) -> None:
        """Count the decisions of a committed transaction: (name, labels...) → count."""
        for (name, *labels), count in counts.items():
            self._add(COUNTERS[CountName(name)], count, *labels)

    def record_searchable(self, rows: int, sessions: int) -> None:
        """Count rows that became searchable, and show how many sessions are still incomplete."""
        self._add(SEARCHABLE_ROWS, rows)
        self._set(UNSEARCHABLE_SESSIONS, sessions)

    def record_committed_batch(self, messages: int, took: timedelta) -> None:
        """Count a committed batch of either or both logs."""
        self._add(BATCHES, 1, "committed")
        self._observe(BATCH_SECONDS, took.total_seconds())
        self._observe(BATCH_MESSAGES, messages)

    def record_stages(self, laps: Mapping[str, float]) -> None:
        """Observe the duration of each stage of a batch, in seconds."""
        for stage, seconds in laps.items():
            self._observe(STAGE_SECONDS, seconds, stage)

    def record_repeated_batch(self, outcome: Literal["superseded", "failed"]) -> None:
        """Count a batch that was rolled back and is started again."""
        self._add(BATCHES, 1, outcome)

    def record_held_back(self, stream: str) -> None:
        """Count a batch that waits, in part, for room in a stream."""
        self._add(HELD_BACK, 1, stream)

    def record_log_lag(self, log: str, age: timedelta) -> None:
        """Show the age of the oldest message of a batch at its commit."""
        self._set(LOG_LAG, max(0.0, age.total_seconds()), log)

    def record_outbox_backlog(self, rows: int) -> None:
        """Show how many committed rows wait to be published."""
        self._set(OUTBOX_BACKLOG, rows)

    def record_published(self, stream: str, count: int = 1) -> None:
        """Count acknowledged outbox rows."""
        self._add(PUBLISHED, count, stream)

    def record_repeated_publish(self, stream: str, count: int = 1) -> None:
        """Count publishes that are retried with the same id."""
        self._add(PUBLISH_REPEATS, count, stream)

    def record_publish_time(self, took: timedelta) -> None:
        """Observe the time from commit to the last acknowledgement of a batch."""
        self._observe(PUBLISH_SECONDS, took.total_seconds())

    def record_adopted_rows(self, rows: int) -> None:
        """Count rows of dead routers that were published."""
        self._add(SWEPT, rows)

    def record_claim(self, agent: str, status: str, count: int = 1) -> None:
        """Count answered claims."""
        self._add(TURNS_CLAIMED, count, agent, status)

    def record_renewal(self, agent: str, status: str, count: int = 1) -> None:
        """Count answered renewals."""
        self._add(TURN_RENEWALS, count, agent, status)

    def record_claim_time(self, took: timedelta) -> None:
        """Observe the time from a claim or renewal to its answer."""
        self._observe(CLAIM_SECONDS, took.total_seconds())

    def record_owned_partitions(self, log: str, count: int) -> None:
        """Show how many partitions this process reads."""
        self._set(PARTITIONS_OWNED, count, log)

    def record_takeover(self, log: str, how: Literal["free", "expired"], count: int = 1) -> None:
        """Count partitions taken."""
        self._add(TAKEOVERS, count, log, how)

    def record_lost_partitions(self, log: str, count: int = 1) -> None:
        """Count partitions that another process took from this one."""
        self._add(PARTITIONS_LOST, count, log)

    def record_reader_recreation(self, log: str, reason: str) -> None:
        """Count recreated readers; `reason` is one word from the reader."""
        self._add(READER_RECREATIONS, 1, log, reason)

    def record_log_alarm(self, log: str, kind: str) -> None:
        """Count logs whose content contradicts what was read before."""
        self._add(LOG_ALARMS, 1, log, kind)

    def record_received(self, log: str, owner: str, messages: int, body_bytes: int) -> None:
        """Count the messages that an account or agent stored in a log, once they are decided."""
        self._add(RECEIVED, messages, log, owner)
        self._add(RECEIVED_BYTES, body_bytes, log, owner)

    def record_log_trim(self, log: str, owner: str, messages: int) -> None:
        """Count messages of a log that were purged early."""
        self._add(LOG_TRIMMED, messages, log, owner)

    def record_database_regression(self) -> None:
        """Count a database that went back to an earlier state."""
        self._add(DATABASE_REGRESSIONS, 1)

    def record_stream_loss(self, stream: str, kind: str) -> None:
        """Count a loss of messages in a stream."""
        self._add(STREAM_LOSSES, 1, stream, kind)

    def record_reconciled(self, kind: str, count: int) -> None:
        """Count inconsistencies that were repaired."""
        self._add(RECONCILED, count, kind)

    def record_api_answer(self, method: str, outcome: str, took: timedelta) -> None:
        """Count an answered request."""
        self._add(API_REQUESTS, 1, method, outcome)
        self._observe(API_SECONDS, took.total_seconds(), method)

    def record_nats_connection(self, *, is_connected: bool) -> None:
        """Show whether NATS is connected."""
        self._set(NATS_CONNECTED, int(is_connected))

    def record_nats_reconnect(self) -> None:
        """Count a reconnect to NATS."""
        self._add(NATS_RECONNECTS, 1)

    def record_nats_refusal(self, what: str) -> None:
        """Count an operation that NATS did not permit."""
        self._add(NATS_REFUSED, 1, what)

    def record_loop_lag(self, lag: timedelta) -> None:
        """Show how late the last heartbeat was."""
        self._set(LOOP_LAG, lag.total_seconds())

    def record_turn_wait(self, agent: str, waited: timedelta) -> None:
        """Observe how long a turn waited for its first claim."""
        self._observe(TURN_WAITED, waited.total_seconds(), agent)

    def show(self, gauge: Metric, values: Mapping[tuple[str, ...], float]) -> None:
        """Show a gauge with exactly these labels, so that outdated ones disappear."""
        if gauge.labels:
            self._gauges[gauge].clear()
        for labels, value in values.items():
            self._set(gauge, value, *labels)

    def _add(self, metric: Metric, count: float, *labels: str) -> None:
        counter = self._counters[metric]
        (counter.labels(*labels) if labels else counter).inc(count)

    def _set(self, metric: Metric, value: float, *labels: str) -> None:
        gauge = self._gauges[metric]
        (gauge.labels(*labels) if labels else gauge).set(value)

    def _observe(self, metric: Metric, value: float, *labels: str) -> None:
        histogram = self._histograms[metric]
        (histogram.labels(*labels) if labels else histogram).observe(value)
