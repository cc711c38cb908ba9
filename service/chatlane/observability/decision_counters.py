"""Counters of decisions, which take effect after the commit of their transaction."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from prometheus_client import Counter

from chatlane.domain.counts import CountName
from chatlane_schemas.dead import DeadReason, Stage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client import CollectorRegistry


def from_zero(counter: Counter, *values: Iterable[str]) -> Counter:
    """Start the series of all these label values at 0.

    Prometheus sees no increase when a series first appears with 1, so a metric that an alert watches
    must exist before.
    """
    for labels in product(*values):
        counter.labels(*labels)
    return counter


def decision_counters(registry: CollectorRegistry) -> Mapping[CountName, Counter]:
    """Return the counter of each name that decisions count under."""
    counter = partial(Counter, registry=registry)
    return {
        CountName.ROUTED: counter(
            "chatlane_messages_routed_total",
            "Inbound messages that found their session, by platform.",
            ["platform"],
        ),
        CountName.DUPLICATES: counter(
            "chatlane_duplicates_total",
            "Messages dropped because their effect was already committed.",
            ["log"],
        ),
        CountName.KEPT: counter(
            "chatlane_kept_events_total",
            "Events that start nothing: edit, delete, reaction, receipt, service, migration, "
            "bot, other_bot, silenced_bot, staff, empty (says nothing), observed (context).",
            ["kind"],
        ),
        CountName.ERASED: from_zero(
            counter(
                "chatlane_erased_messages_total",
                "Messages of logs without effect, because their person was erased before; they "
                "are deleted.",
                ["stream"],
            ),
            ("INBOUND", "RESULTS"),
        ),
        CountName.MESSAGE_CHANGES: from_zero(
            counter(
                "chatlane_message_changes_total",
                "Edits and deletes: applied, same (as it says), older (than what was applied), "
                "gone (nothing to change), early (before its message), new (routed as a "
                "message).",
                ["kind", "outcome"],
            ),
            ("edit", "delete"),
            ("applied", "same", "older", "gone", "early", "new"),
        ),
        CountName.COMMANDS: counter(
            "chatlane_commands_total",
            "Commands that people gave in chats: done, or refused because they may not.",
            ["command", "outcome"],
        ),
        CountName.DEAD_LETTERS: from_zero(
            counter(
                "chatlane_dead_letters_total",
                "Messages set aside, by where and why.",
                ["stage", "reason"],
            ),
            Stage,
            DeadReason,
        ),
        CountName.SESSIONS_STARTED: counter(
            "chatlane_sessions_started_total",
            "Sessions opened; reason is `new` or the reset that ended the one before.",
            ["agent", "reason"],
        ),
        CountName.TURNS_DISPATCHED: counter(
            "chatlane_turns_dispatched_total",
            "Notifications of turns, first ones and repeats.",
            ["agent"],
        ),
        CountName.TURNS_EXPIRED: counter(
            "chatlane_turns_expired_total", "Leases that ended without a result.", ["agent"]
        ),
        CountName.TURNS_RETRIED: counter(
            "chatlane_turns_retried_total",
            "Attempts that failed and may be tried again.",
            ["agent"],
        ),
        CountName.TURNS_HANDED_BACK: counter(
            "chatlane_turns_handed_back_total",
            "Attempts that do not count, by reason: unavailable, stopping.",
            ["agent", "reason"],
        ),
        CountName.TURNS_PARKED: counter(
            "chatlane_turns_parked_total",
            "Attempts that ended with a question and parked their turn.",
            ["agent"],
        ),
        CountName.TURNS_WOKEN: counter(
            "chatlane_turns_woken_total",
            "Parked turns that got another attempt: answered, expired, withdrawn (edited).",
            ["agent", "reason"],
        ),
        CountName.STREAM_ANSWERS: counter(
            "chatlane_stream_answers_total", "Answers of stream agents.", ["agent"]
        ),
        CountName.TURNS_FINISHED: counter(
            "chatlane_turns_finished_total",
            "Turns that ended: ok, failed, no_reply.",
            ["agent", "outcome"],
        ),
        CountName.TURNS_CANCELLED: counter(
            "chatlane_turns_cancelled_total",
            "Turns that were cancelled, by reason: interrupted, stopped, session_ended.",
            ["agent", "reason"],
        ),
        CountName.LATE_RESULTS: counter(
            "chatlane_late_results_total",
            "Results of an attempt that no longer counted; kept, without effect.",
            ["agent"],
        ),
        CountName.RECEIPTS: counter(
            "chatlane_receipts_total",
            "Reports of adapters that changed what is known about an outbound message.",
            ["platform", "state", "failure"],
        ),
        CountName.DEAD_LETTERS_DROPPED: counter(
            "chatlane_dead_letters_dropped_total",
            "Dead letters that were not kept, because an account or agent caused too many in "
            "an hour.",
            ["log", "owner"],
        ),
    }
