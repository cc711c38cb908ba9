"""Declare the personal data of each table and column for erasure, export and retention. Pure data.

Tests compare these declarations with a migrated database, with the results of an erasure and an
export, and with the table in docs/data-retention.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


class Subject(StrEnum):
    """The person whose data a column holds.

    OWNER: the person of a session that is not shared. WRITER: the person who wrote the message, or
    whom the row answers; also in shared sessions. OPERATOR: a person who runs the service.
    """

    OWNER = "owner"
    WRITER = "writer"
    OPERATOR = "operator"


class Erasure(StrEnum):
    """The effect of an erasure on a column.

    DELETED: the erasure deletes the row. CLEARED: the row may stay, and the erasure removes from the
    column what names or quotes the person. KEPT: no effect; `Personal.reason` says why.
    """

    DELETED = "deleted"
    CLEARED = "cleared"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Personal:
    """A column that names, quotes or describes a person.

    Attributes:
        subject: The person.
        erasure: The effect of an erasure on the column.
        exported: Record and field of the export, such as `row.text`; empty if not exported.
        reason: Why an erasure keeps it, or why it is not exported.
    """

    subject: Subject
    erasure: Erasure
    exported: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The columns of a table and the retention of its rows.

    Attributes:
        kept: How long rows stay, with settings in backquotes; or why there is no limit.
        by: What deletes the rows: `routers` all the time, `retain` the command, `with sessions`;
            empty if nothing does.
        personal: Columns that hold personal data.
        technical: Columns with our ids, times, counters, states and settings. A digest counts as
            technical only if it is not the digest of a person.
    """

    kept: str
    by: str
    personal: Mapping[str, Personal] = field(default_factory=dict)
    technical: tuple[str, ...] = ()


def _owner(erasure: Erasure, exported: str = "", reason: str = "") -> Personal:
    return Personal(Subject.OWNER, erasure, exported, reason)


def _writer(erasure: Erasure, exported: str = "", reason: str = "") -> Personal:
    return Personal(Subject.WRITER, erasure, exported, reason)


_DELETED: Final = Erasure.DELETED
_CLEARED: Final = Erasure.CLEARED
_KEPT: Final = Erasure.KEPT

_WITH_SESSION: Final = "as long as their session"
_IN_SOURCE: Final = "the exported `source` of the row says the same"
_IN_KEY: Final = "the exported key of the session says the same"
_FOR_AGENT: Final = "a worker's setting for the agent"
_ERASURE_LIST: Final = "the erasure list: a keyed digest that keeps erased messages out"

TABLES: Final[Mapping[str, Table]] = {
    "admission": Table(
        kept="until an hour after the limit is full again",
        by="routers",
        personal={"key": _writer(_KEPT, reason="a hash that expires within hours")},
        technical=("full_at", "told_until"),
    ),
    "agent_pauses": Table(
        kept="until the agent answers again",
        by="routers",
        technical=("agent", "until", "trial", "trial_until"),
    ),
    "aliases": Table(
        kept="one row for each id of a person; without them a person is another one. "
        "`people erase` deletes them",
        by="",
        personal={
            "alias": _owner(_DELETED, "alias.id"),
            "canonical": _owner(_DELETED, "alias.canonical"),
            "partner": _owner(_DELETED, reason="another id of theirs, which has its own record"),
            "taken_from": _owner(_DELETED, reason="the name of an earlier holder of the id"),
        },
        technical=(
            "platform",
            "account",
            "kind",
            "first_seen_at",
            "was_canonical",
            "held_since",
            "revision",
        ),
    ),
    "api_requests": Table(
        kept="7 d",
        by="routers",
        personal={"reply": _owner(_CLEARED, reason="repeats what other records say")},
        technical=("principal", "id", "at", "digest"),
    ),
    "audit": Table(
        kept="`retention.audit` (730 d)",
        by="retain",
        personal={
            "detail": _owner(_CLEARED, reason="ids and numbers of an operator's action"),
            "actor": Personal(
                Subject.OPERATOR, _KEPT, reason="the audit shows who acted until it expires"
            ),
            "db_role": Personal(
                Subject.OPERATOR, _KEPT, reason="the audit shows who acted until it expires"
            ),
        },
        technical=("id", "at", "action", "session_id", "outcome"),
    ),
    "bot_budgets": Table(
        kept="until an hour after the bot was last heard",
        by="routers",
        technical=("key", "opened_at", "last_at", "messages", "is_silenced"),
    ),
    "dead_letter_shares": Table(
        kept="`dead_letters.keep` (30 d)",
        by="routers",
        technical=(
            "log",
            "owner",
            "hour",
            "reason",
            "kept",
            "kept_bytes",
            "dropped",
            "dropped_bytes",
            "first_dropped",
            "last_dropped",
        ),
    ),
    "dead_letters": Table(
        kept="`dead_letters.keep` (30 d)",
        by="routers",
        personal={
            "body": _writer(_DELETED, "dead_letter.body"),
            "detail": _writer(_DELETED, reason="why the body was refused"),
            "subject": _writer(_DELETED, reason="a hash of the chat that the body names"),
        },
        technical=(
            "id",
            "at",
            "stage",
            "reason",
            "log",
            "partition",
            "sequence",
            "stored_at",
            "session_id",
            "digest",
            "size_bytes",
        ),
    ),
    "delivered_messages": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        technical=("digest", "session_id", "message_id", "piece"),
    ),
    "deliveries": Table(
        kept="as long as their session; 5 d where its message never came",
        by="with sessions",
        technical=(
            "session_id",
            "message_id",
            "platform",
            "account",
            "agent",
            "turn_id",
            "out_seq",
            "part",
            "state",
            "failure",
            "retry_at",
            "sent",
            "pieces",
            "platform_message_ids",
            "created_at",
            "changed_at",
            "is_untold",
            "told_in",
        ),
    ),
    "drafts": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        personal={
            "owner": _owner(_DELETED, reason="an `alias` record has the name"),
            "text": _owner(_DELETED, "draft.text"),
        },
        technical=("session_id", "changed_at"),
    ),
    "early_edits": Table(
        kept="3 d longer than `streams.replay_window` (6 d)",
        by="routers",
        personal={
            name: _writer(_DELETED, reason="the `event` record of the edit has it")
            for name in ("digest", "content", "attachments")
        },
        technical=("version", "event_id", "size_bytes", "kept_at"),
    ),
    "erased_ids": Table(
        kept="90 d",
        by="retain",
        technical=("id", "kind", "erasure", "erased_at"),
    ),
    "erased_messages": Table(
        kept="90 d",
        by="retain",
        technical=("stream", "sequence", "stored_at", "generation", "noted_at", "erased_at"),
    ),
    "erased_people": Table(
        kept="the erasure list: what it keeps out has no end",
        by="",
        personal={"digest": _owner(_KEPT, reason=_ERASURE_LIST)},
        technical=("until", "erasure"),
    ),
    "erased_spans": Table(
        kept="the same, for ids that belonged to somebody else before",
        by="",
        personal={"digest": _owner(_KEPT, reason=_ERASURE_LIST)},
        technical=("since", "until", "is_past", "erasure"),
    ),
    "erasure_receipts": Table(
        kept="proof that somebody was erased; some lines for each erasure",
        by="",
        technical=("id", "erasure", "store", "count", "ids"),
    ),
    "erasure_requests": Table(
        kept="the receipts of requested erasures: one line for each",
        by="",
        personal={
            "person": _owner(
                _KEPT, reason="names who is to be erased; the job that does it clears it"
            )
        },
        technical=(
            "id",
            "requested_by",
            "requested_at",
            "tried_at",
            "problem",
            "erasure",
            "finished_at",
            "deleted",
        ),
    ),
    "erasures": Table(
        kept="the same: one line for each",
        by="",
        technical=("id", "begun_at", "until", "key_id", "is_fenced", "finished_at"),
    ),
    "expiring_messages": Table(
        kept="until the time at which the message or its return address ends",
        by="routers",
        technical=("message_id", "part", "session_id", "expires_at"),
    ),
    "former_ids": Table(
        kept="one row for each time in which an id belonged to an earlier holder; without them the "
        "next holder would be taken for that person. `people erase` deletes them",
        by="",
        personal={
            "form": _owner(_DELETED, "alias.id"),
            "identity": _owner(_DELETED, "alias.canonical"),
        },
        technical=("platform", "account", "since", "until"),
    ),
    "lane_aliases": Table(
        kept="names from an import; nothing adds to them afterwards",
        by="",
        personal={
            "alias": _owner(_DELETED, reason="the name of the lane in the system it came from"),
            "session_key": _owner(_DELETED, reason="the `lane` record has it"),
        },
    ),
    "lanes": Table(
        kept="as long as the session they lead to",
        by="with sessions",
        personal={"session_key": _owner(_DELETED, "lane.session_key")},
        technical=("session_id", "noted_at"),
    ),
    "late_results": Table(
        kept="`dead_letters.keep` (30 d)",
        by="routers",
        personal={"body": _writer(_DELETED, reason="an answer that no chat received")},
        technical=("id", "at", "session_id", "turn_id", "attempt", "reply_to"),
    ),
    "log_marks": Table(
        kept="`streams.replay_window` (72 h)",
        by="routers",
        technical=("log", "generation", "at", "last_sequence"),
    ),
    "log_trims": Table(
        kept="twice `streams.replay_window` or twice 7 d, whichever is longer",
        by="routers",
        technical=(
            "log",
            "generation",
            "owner",
            "hour",
            "first_seq",
            "last_seq",
            "noted",
            "purged",
            "trimmed_at",
        ),
    ),
    "message_revisions": Table(
        kept="`retention.revisions`, else as long as their session",
        by="retain",
        personal={
            "content": _writer(_DELETED, "revision.text"),
            "attachments": _writer(_DELETED, "revision.attachments"),
            "platform_message_id": _writer(_DELETED, reason="the `row` of the message has it"),
        },
        technical=("id", "session_id", "message_id", "reason", "at"),
    ),
    "messages": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        personal={
            "content": _writer(_CLEARED, "row.text"),
            "details": _writer(_CLEARED, "row.details"),
            "source": _writer(_CLEARED, "row.source"),
            "author": _writer(_CLEARED, reason=_IN_SOURCE),
            "platform_message_id": _writer(_CLEARED, reason=_IN_SOURCE),
        },
        technical=(
            "session_id",
            "seq",
            "id",
            "role",
            "turn_id",
            "reply_to",
            "part",
            "created_at",
            "state",
            "unanswered",
            "row_id",
        ),
    ),
    "outbox": Table(
        kept="until they are published, some milliseconds",
        by="routers",
        personal={
            "payload": _writer(_DELETED, reason="on its way into a stream"),
            "subject": _writer(_DELETED, reason="on its way into a stream"),
        },
        technical=("id", "session_id", "stream", "router", "message_id", "created_at"),
    ),
    "partitions": Table(
        kept="as many rows as partitions",
        by="",
        technical=(
            "log",
            "id",
            "owner",
            "epoch",
            "lease_until",
            "cursor",
            "cursor_at",
            "generation",
            "dirty",
            "suspect_seq",
            "suspect_count",
            "stop_before",
            "next_count",
            "changed_at",
        ),
    ),
    "projects": Table(
        kept="until the person removes them. `people erase` deletes them",
        by="",
        personal={
            "owner": _owner(_DELETED, reason="an `alias` record has the name"),
            "name": _owner(_DELETED, "folder.name"),
        },
        technical=("id", "colour", "profile", "place", "created_at"),
    ),
    "read_marks": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        personal={"owner": _owner(_DELETED, reason="an `alias` record has the name")},
        technical=("session_id", "through_seq", "read_at"),
    ),
    "reconciliation": Table(
        kept="one row",
        by="",
        personal={
            "lanes_after": _owner(
                _KEPT, reason="the key at which a walk is; its next step, in minutes, replaces it"
            )
        },
        technical=("is_only", "looked_at", "found", "waiting_after", "lanes_astray"),
    ),
    "removed_messages": Table(
        kept="`retention.archive`, else as long as their session",
        by="retain",
        personal={
            "content": _writer(_DELETED, "row.text"),
            "details": _writer(_DELETED, "row.details"),
            "source": _writer(_DELETED, "row.source"),
            "author": _writer(_DELETED, reason=_IN_SOURCE),
            "platform_message_id": _writer(_DELETED, reason=_IN_SOURCE),
        },
        technical=(
            "session_id",
            "removal",
            "seq",
            "reason",
            "removed_at",
            "id",
            "role",
            "turn_id",
            "reply_to",
            "part",
            "created_at",
            "row_id",
            "state",
            "unanswered",
            "successor_from",
            "successor_through",
        ),
    ),
    "room_members": Table(
        kept="an hour longer than the report of the room, which lasts for at most 2 h",
        by="routers",
        personal={
            "form": _owner(_DELETED, reason="an `alias` record has the id"),
            "owner": _owner(_DELETED, reason="an `alias` record has the name"),
        },
        technical=("room",),
    ),
    "room_reports": Table(
        kept="an hour longer than the report, which lasts for at most 2 h",
        by="routers",
        technical=("room", "chat", "reported_at", "until"),
    ),
    "routed_changes": Table(
        kept="until ROUTED says so, about a second",
        by="routers",
        technical=("message_id", "session_id", "noted_at"),
    ),
    "routers": Table(
        kept="10 min after a router was last seen",
        by="routers",
        technical=(
            "id",
            "booted_at",
            "version",
            "seen_until",
            "follows_changes",
            "erasure_key",
            "asks_erased_spans",
        ),
    ),
    "schema_migrations": Table(kept="one row for each migration", by="", technical=("version",)),
    "search_progress": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        personal={"marks": _owner(_DELETED, reason="made from the key and owner of the session")},
        technical=("session_id", "seq", "removal", "removed_seq"),
    ),
    "searchable": Table(
        kept=_WITH_SESSION,
        by="with sessions",
        personal={"terms": _writer(_DELETED, reason="made from the text of rows")},
        technical=("session_id", "removal", "seq", "id"),
    ),
    "seen": Table(
        kept="2 d longer than `streams.replay_window` (5 d), by whole days",
        by="routers",
        personal={
            "digest": _writer(
                _KEPT, reason="the digest of a message keeps a second copy of it out"
            ),
            "fingerprint": _writer(_KEPT, reason="32 bits of a hash, which reveal no words"),
        },
        technical=("day", "session_id", "arrival"),
    ),
    "session_holds": Table(
        kept="until they end, or as long as their session",
        by="retain",
        technical=("session_id", "name", "held_until"),
    ),
    "sessions": Table(
        kept="`retention.sessions` after they ended, else until removed",
        by="retain",
        personal={
            "session_key": _owner(_DELETED, "session.session_key"),
            "owner": _owner(_DELETED, reason="an `alias` record has the name"),
            "title": _owner(_CLEARED, "session.title"),
            "title_scope": _owner(_CLEARED, reason=_IN_KEY),
            "labels": _owner(_CLEARED, "session.labels"),
            "carry_over": _owner(_CLEARED, "session.note"),
            "opening_note": _owner(_CLEARED, "session.opening_note"),
            "resume_reason": _owner(_DELETED, reason="why a worker was interrupted"),
            "cwd": _owner(_DELETED, reason=_FOR_AGENT),
            "config": _owner(_DELETED, reason=_FOR_AGENT),
            "model_override": _owner(_DELETED, reason=_FOR_AGENT),
            "worktree": _owner(_DELETED, reason=_FOR_AGENT),
        },
        technical=(
            "id",
            "agent",
            "platform",
            "parent_id",
            "link_kind",
            "started_at",
            "start_reason",
            "ended_at",
            "end_reason",
            "last_activity_at",
            "active_hour",
            "served_boundary",
            "active_turn",
            "next_seq",
            "next_arrival",
            "next_out_seq",
            "user_messages",
            "model",
            "revision",
            "seq_gaps",
            "origin",
            "archived_at",
            "suspended_at",
            "resume_marked_at",
            "held_until",
            "answers",
            "usage",
            "costs",
            "gauges",
            "reset_had_activity",
            "told_in",
            "check_at",
            "ending_at",
            "interruptions",
            "asked_turn_ended_at",
            "staff_until",
            "last_message_at",
            "pinned_at",
            "project_id",
            "title_by_model",
            "read_only",
            "room",
        ),
    ),
    "shown_lists": Table(
        kept="7 d",
        by="routers",
        personal={"key": _owner(_KEPT, reason="a hash that expires within days")},
        technical=("shown_at", "session_ids"),
    ),
    "stream_marks": Table(
        kept="two rows",
        by="",
        technical=(
            "stream",
            "generation",
            "host",
            "holes",
            "first_seq",
            "first_at",
            "last_seq",
            "last_at",
            "search_after",
            "search_until",
        ),
    ),
    "turn_steps": Table(
        kept="until their turn ends",
        by="routers",
        personal={
            "name": _writer(_DELETED, reason="the worker's own word for what it did"),
            "result": _writer(_DELETED, reason="what a running turn has found so far"),
        },
        technical=("turn_id", "session_id", "attempt", "kept_at"),
    ),
    "turns": Table(
        kept="`retention.turns` (90 d) after they ended",
        by="retain",
        personal={
            "source": _writer(_CLEARED, reason="the `row` of the message has it"),
            "error": _writer(_CLEARED, reason="the text of a worker's failure"),
            "draft": _writer(_CLEARED, reason="the platform's id of a message of ours"),
            "question": _writer(_CLEARED, reason="what a running turn asks, and the answer"),
        },
        technical=(
            "has_spoken",
            "has_steps",
            "id",
            "session_id",
            "agent",
            "state",
            "attempt",
            "dispatch",
            "due_at",
            "claim_id",
            "worker",
            "token",
            "created_at",
            "claimed_at",
            "ended_at",
            "result_id",
            "outcome",
            "cancel",
            "rest",
            "interruptions",
            "interrupted_at",
            "is_begun",
            "unbegun",
            "is_asked",
            "waits_since",
            "wait_told",
        ),
    ),
    "waiting": Table(
        kept="until their turn is claimed",
        by="routers",
        personal={
            "content": _writer(_DELETED, "waiting.text"),
            "details": _writer(_DELETED, "waiting.details"),
            "source": _writer(_DELETED, "waiting.source"),
            "session_key": _writer(_DELETED, reason=_IN_KEY),
            "author": _writer(_DELETED, reason=_IN_SOURCE),
            "platform_message_id": _writer(_DELETED, reason=_IN_SOURCE),
        },
        technical=(
            "session_id",
            "arrival",
            "message_id",
            "size_bytes",
            "stored_at",
            "busy",
            "ready_at",
            "awaits_files",
        ),
    ),
}
