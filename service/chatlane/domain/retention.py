"""How long each table keeps its rows, and who deletes them: one place for all of them. Pure data.

A test compares this with the tables of a migrated database, and another one with the table in
docs/data-retention.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of the rows of a table.

    Attributes:
        kept: For how long; a setting is named in backquotes.
        by: What deletes them: `routers` all the time, `retain` the command, `with sessions`.
    """

    kept: str
    by: str


_WITH_SESSION: Final = Rule("as long as their session", "with sessions")

RULES: Final[Mapping[str, Rule]] = {
    "admission": Rule("until an hour after the limit is full again", "routers"),
    "api_requests": Rule("7 d", "routers"),
    "audit": Rule("`retention.audit` (730 d)", "retain"),
    "bot_budgets": Rule("until an hour after the bot was last heard", "routers"),
    "dead_letter_shares": Rule("`dead_letters.keep` (30 d)", "routers"),
    "dead_letters": Rule("`dead_letters.keep` (30 d)", "routers"),
    "early_edits": Rule("3 d longer than `streams.replay_window` (6 d)", "routers"),
    "erased_ids": Rule("90 d", "retain"),
    "erased_messages": Rule("90 d", "retain"),
    "lanes": Rule("as long as the session they lead to", "with sessions"),
    "late_results": Rule("`dead_letters.keep` (30 d)", "routers"),
    "log_marks": Rule("`streams.replay_window` (72 h)", "routers"),
    "log_trims": Rule("twice `streams.replay_window` (6 d)", "routers"),
    "message_revisions": Rule("`retention.revisions`, else as long as their session", "retain"),
    "messages": _WITH_SESSION,
    "outbox": Rule("until they are published, some milliseconds", "routers"),
    "removed_messages": Rule("`retention.archive`, else as long as their session", "retain"),
    "routed_changes": Rule("until ROUTED says so, about a second", "routers"),
    "routers": Rule("10 min after a router was last seen", "routers"),
    "search_progress": _WITH_SESSION,
    "searchable": _WITH_SESSION,
    "seen": Rule("2 d longer than `streams.replay_window` (5 d), by whole days", "routers"),
    "session_holds": Rule("until they end, or as long as their session", "retain"),
    "sessions": Rule("`retention.sessions` after they ended, else until removed", "retain"),
    "shown_lists": Rule("7 d", "routers"),
    "turns": Rule("`retention.turns` (90 d) after they ended", "retain"),
    "waiting": Rule("until their turn is claimed", "routers"),
}

UNBOUNDED: Final[Mapping[str, str]] = {
    "aliases": "one row for each id of a person; without them a person is another one. "
    "`people erase` deletes them",
    "erased_people": "the erasure list: what it keeps out has no end",
    "erased_spans": "the same, for ids that belonged to somebody else before",
    "erasure_receipts": "proof that somebody was erased; some lines for each erasure",
    "erasures": "the same: one line for each",
    "former_ids": "one row for each time in which an id belonged to an earlier holder; without them "
    "the next holder would be taken for that person. `people erase` deletes them",
    "lane_aliases": "names from an import; nothing adds to them afterwards",
    "partitions": "as many rows as partitions",
    "reconciliation": "one row",
    "schema_migrations": "one row for each migration",
    "stream_marks": "two rows",
}
"""Tables without a rule, and why they need none."""
