"""All metrics of a process, with their labels and meaning.

Labels are closed sets: declared names, logs, stages and reasons, never an id. Callers count once per
batch, not per message.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from chatlane.domain.counts import CountName, Inconsistency, StreamLoss
from chatlane.domain.log import LOGS
from chatlane.observability.decision_counters import decision_counters, from_zero

if TYPE_CHECKING:
    from collections.abc import Mapping

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST

_COMPARED: Final = ("ROUTED", "OUTBOUND")
# A batch takes milliseconds, a takeover seconds; a lease of 30 s is the longest wait counted.
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
# Turns wait for workers, and have no time limit.
_LONG_SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_MESSAGES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)


class BatchOutcome(StrEnum):
    """Outcomes of a batch."""

    COMMITTED = "committed"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class Takeover(StrEnum):
    """Former state of a partition that this process took."""

    FREE = "free"
    EXPIRED = "expired"


class LogAlarm(StrEnum):
    """Contradictions between a log and what was read before."""

    GENERATION = "generation"
    TAIL_LOST = "tail_lost"
    TIME_AT_CURSOR = "time_at_cursor"
    TRUNCATED = "truncated"
    DELETED = "deleted"


def show(gauge: Gauge, values: Mapping[tuple[str, ...], float]) -> None:
    """Show a gauge with exactly these labels, so that outdated ones disappear."""
    gauge.clear()
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


class Metrics:
    """The metrics of one process, in its own registry."""

    def __init__(self, version: str = "unknown") -> None:
        # A creation time for every counter would double the page.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self._counter = partial(Counter, registry=self.registry)
        self._gauge = partial(Gauge, registry=self.registry)
        self._histogram = partial(Histogram, registry=self.registry)
        self.decisions: Final = decision_counters(self.registry)
        self._declare_search()
        self._declare_batches()
        self._declare_outbox()
        self._declare_turns()
        self._declare_rows()
        self._declare_logs()
        self._declare_comparison()
        self._declare_api()
        self.build.labels(version).set(1)

    def _declare_search(self) -> None:
        """Declare the metrics of search and stored values."""
        self.searchable_rows = self._counter(
            "chatlane_searchable_rows_total",
            "Rows of transcripts that this router made searchable.",
        )
        self.unsearchable_sessions = self._gauge(
            "chatlane_unsearchable_sessions",
            "Sessions of which this router knows that not all of them is searchable yet.",
        )
        self.stored_values_unknown = self._gauge(
            "chatlane_stored_values_unknown",
            "How often this router has read a stored value that it does not know, since it began.",
            ["column"],
        )

    def _declare_batches(self) -> None:
        """Declare the metrics of batches and the lag behind the logs."""
        self.batches = from_zero(
            self._counter(
                "chatlane_batches_total",
                "Batches by outcome: committed, superseded (a partition was lost), failed (tried "
                "again).",
                ["outcome"],
            ),
            BatchOutcome,
        )
        self.batch_seconds = self._histogram(
            "chatlane_batch_seconds", "From the start of a batch to its commit.", buckets=_SECONDS
        )
        self.batch_messages = self._histogram(
            "chatlane_batch_messages", "Messages in a committed batch.", buckets=_MESSAGES
        )
        self.stage_seconds = self._histogram(
            "chatlane_stage_seconds",
            "Seconds of a batch by stage: queue, decode, wait, fence, read, decide, write, commit.",
            ["stage"],
            buckets=_SECONDS,
        )
        self.partition_lag = self._gauge(
            "chatlane_partition_lag_seconds",
            "Age of the oldest message read and not committed, or how long it cannot be read; else "
            "0.",
            ["log", "partition"],
        )
        self.lease_left = self._gauge(
            "chatlane_partition_lease_seconds",
            "Remaining seconds of the lease that ends first, of the partitions this process reads.",
            ["log"],
        )
        self.held_back = self._counter(
            "chatlane_held_back_total",
            "Batches of which a part was left in its log, because the stream it leads to is full.",
            ["stream"],
        )
        self.log_lag = self._gauge(
            "chatlane_log_lag_seconds",
            "Age of the oldest message of the last batch when it was committed.",
            ["log"],
        )

    def _declare_outbox(self) -> None:
        """Declare the metrics of publishing."""
        self.outbox_backlog = self._gauge(
            "chatlane_outbox_backlog", "Rows this process has committed and not yet published."
        )
        self.published = self._counter(
            "chatlane_published_total", "Outbox rows that NATS acknowledged, by stream.", ["stream"]
        )
        self.publish_repeats = self._counter(
            "chatlane_publish_repeats_total",
            "Publishes repeated with the same id because no acknowledgement came.",
            ["stream"],
        )
        self.publish_seconds = self._histogram(
            "chatlane_publish_seconds",
            "From the commit of a batch to the acknowledgement of its last row.",
            buckets=_SECONDS,
        )
        self.swept = self._counter(
            "chatlane_swept_rows_total", "Outbox rows of dead routers that were published."
        )

    def _declare_turns(self) -> None:
        """Declare the metrics of claims and live turns."""
        self.turns_claimed = self._counter(
            "chatlane_turn_claims_total",
            "Answered claims: claimed, taken, finished, unknown, void.",
            ["agent", "status"],
        )
        self.turn_renewals = self._counter(
            "chatlane_turn_renewals_total",
            "Answered renewals: renewed, stale, finished, unknown.",
            ["agent", "status"],
        )
        self.claim_seconds = self._histogram(
            "chatlane_claim_seconds", "From a claim or renewal to its answer.", buckets=_SECONDS
        )
        self.turn_waited = self._histogram(
            "chatlane_turn_wait_seconds",
            "From the message that made a turn to its first claim.",
            ["agent"],
            buckets=_LONG_SECONDS,
        )
        self.turns = self._gauge(
            "chatlane_turns",
            "Live turns of the service: ready, resting (not announced yet), parked (waiting for an "
            "answer), claimed, overdue (lease over).",
            ["agent", "state"],
        )
        self.oldest_ready = self._gauge(
            "chatlane_oldest_ready_turn_seconds",
            "How long the oldest turn that no worker holds has been there, of the whole service.",
            ["agent"],
        )

    def _declare_rows(self) -> None:
        """Declare the metrics of what the whole service keeps and has not read."""
        self.dead_letters_kept = self._gauge(
            "chatlane_dead_letters_kept",
            "Dead letters of the whole service, neither retried nor dropped, up to 10,000 of a "
            "reason.",
            ["cause", "reason"],
        )
        self.dead_letter_oldest = self._gauge(
            "chatlane_oldest_dead_letter_seconds",
            "Age of the oldest dead letter of the whole service, by who must act.",
            ["cause"],
        )
        self.outbox_oldest = self._gauge(
            "chatlane_outbox_oldest_seconds",
            "Age of the oldest outbox row of the whole service that is not deleted yet.",
        )
        self.unowned = self._gauge(
            "chatlane_partitions_unowned",
            "Partitions of the whole service that no router holds under a valid lease.",
            ["log"],
        )
        self.partitions = self._gauge("chatlane_partitions", "Partitions of each log.", ["log"])
        self.unread = self._gauge(
            "chatlane_unread_messages",
            "Messages that a worker group or an account has not acknowledged.",
            ["stream", "reader"],
        )
        self.oldest_unread = self._gauge(
            "chatlane_oldest_unread_seconds",
            "Age of the oldest message that a worker group or an account has not acknowledged.",
            ["stream", "reader"],
        )
        self.stream_keeps = self._gauge(
            "chatlane_stream_keeps_seconds",
            "How long a stream keeps unread messages; logs have no such limit.",
            ["stream"],
        )
        self.stream_bytes = self._gauge(
            "chatlane_stream_bytes", "Bytes that a stream holds.", ["stream"]
        )
        self.stream_limit = self._gauge(
            "chatlane_stream_limit_bytes", "Bytes at which a stream is full.", ["stream"]
        )

    def _declare_logs(self) -> None:
        """Declare the metrics of partitions and logs of this process."""
        self.partitions_owned = self._gauge(
            "chatlane_partitions_owned", "Partitions this process reads now.", ["log"]
        )
        self.takeovers = self._counter(
            "chatlane_partition_takeovers_total",
            "Partitions taken: free (handed back or new) or expired (the owner died).",
            ["log", "how"],
        )
        self.partitions_lost = self._counter(
            "chatlane_partitions_lost_total",
            "Partitions another process took while this one believed it owned them.",
            ["log"],
        )
        self.reader_recreations = self._counter(
            "chatlane_reader_recreations_total",
            "Readers created again: disconnected, gap, silence, status, pull, fell_behind, "
            "log_replaced.",
            ["log", "reason"],
        )
        self.log_alarms = from_zero(
            self._counter(
                "chatlane_log_alarms_total",
                "The log is not what was read before: generation, tail_lost, time_at_cursor, "
                "truncated, deleted.",
                ["log", "kind"],
            ),
            LOGS,
            LogAlarm,
        )
        self.received = self._counter(
            "chatlane_received_messages_total",
            "Messages of a log that were decided, repeats and garbage included, by account or "
            "agent.",
            ["log", "owner"],
        )
        self.received_bytes = self._counter(
            "chatlane_received_bytes_total", "Bytes of the bodies of these.", ["log", "owner"]
        )
        self.log_share = self._gauge(
            "chatlane_log_share_bytes",
            "About how much of a stream an account or agent holds; shown while it is filling.",
            ["log", "owner"],
        )
        self.log_trimmed = self._counter(
            "chatlane_log_trimmed_total",
            "Decided, delivered or repeated messages purged early to make room in a stream.",
            ["log", "owner"],
        )

    def _declare_comparison(self) -> None:
        """Declare the metrics of database and streams compared."""
        self.database_regressions = self._counter(
            "chatlane_database_regressions_total",
            "The database had forgotten what it had confirmed to this router.",
        )
        self.topology_differences = self._gauge(
            "chatlane_topology_differences",
            "Streams and durables that are missing or not as declared.",
        )
        self.stream_losses = from_zero(
            self._counter(
                "chatlane_stream_losses_total",
                "A stream lost what it had: replaced, tail_lost, time_at_mark, holes, cut_off.",
                ["stream", "kind"],
            ),
            _COMPARED,
            StreamLoss,
        )
        self.inconsistencies = self._gauge(
            "chatlane_inconsistencies",
            "Disagreements between database and streams of the whole service; see below.",
            ["kind"],
        )
        self.reconciled = from_zero(
            self._counter(
                "chatlane_reconciled_total", "Inconsistencies that were repaired.", ["kind"]
            ),
            Inconsistency,
        )

    def _declare_api(self) -> None:
        """Declare the metrics of requests, the connection and the process."""
        self.api_requests = self._counter(
            "chatlane_api_requests_total",
            "Answered requests of the session API, by method and outcome.",
            ["method", "outcome"],
        )
        self.api_seconds = self._histogram(
            "chatlane_api_seconds",
            "From a request of the session API to its answer.",
            ["method"],
            buckets=_SECONDS,
        )
        self.nats_connected = self._gauge(
            "chatlane_nats_connected", "1 while the connection to NATS stands."
        )
        self.nats_reconnects = self._counter(
            "chatlane_nats_reconnects_total", "Times the connection to NATS came back."
        )
        self.nats_refused = from_zero(
            self._counter(
                "chatlane_nats_refused_total",
                "Refusals by NATS to this process: publish, subscribe, or connect at all.",
                ["what"],
            ),
            ("publish", "subscribe", "connect"),
        )
        self.loop_lag = self._gauge(
            "chatlane_event_loop_lag_seconds", "How late the last heartbeat of the event loop was."
        )
        self.build = self._gauge(
            "chatlane_build_info", "Always 1; the label is the release.", ["version"]
        )

    def render(self) -> bytes:
        """Return the page that Prometheus reads."""
        return generate_latest(self.registry)

    def record_decisions(self, counts: Mapping[tuple[str, ...], int]) -> None:
        """Count the decisions of a committed transaction: (name, labels...) → count."""
        for (name, *labels), count in counts.items():
            self.decisions[CountName(name)].labels(*labels).inc(count)
