"""Build the views of sessions for the API: their columns, and what other tables add to them."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, LiteralString
from urllib.parse import unquote

from pydantic_core import from_json, to_json

from chatlane.domain.sessions.transcripts import MAX_HOPS
from chatlane.postgres.stored_values import read_override, read_reason, read_record
from chatlane.store.conversations import lineage
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.events import EndReason
from chatlane_schemas.session_api.session_marks import (
    FIRST_WORDS,
    SCHEDULED_ORIGIN,
    SCHEDULED_PROJECT,
    LiveTurn,
    TitleSource,
    WaitingMessages,
    Worktree,
    source_label,
)
from chatlane_schemas.session_api.session_state import ResumeMark
from chatlane_schemas.session_api.sessions import CHAT_ORIGIN, Access, SessionView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from uuid import UUID

    import asyncpg

    from chatlane.postgres.pool import Connection

_REPLACEABLE: Final = ("title", "cwd", "model", "config", "model_override", "carry_over")
_VERSION_DIGITS: Final = 32
_COMPRESSION: Final = "compression"
# Characters of a message that are read for the first words: invisible ones may come first.
_READ_FOR_WORDS: Final = 1000

VIEW_COLUMNS: Final[LiteralString] = """
    s.id, s.session_key, s.agent, s.platform, s.started_at, s.ended_at, s.end_reason,
    s.last_activity_at, s.last_message_at, s.next_seq, s.seq_gaps, s.user_messages, s.title,
    s.title_by_model, s.active_turn, s.cwd, s.model, s.config, s.owner, s.suspended_at,
    s.resume_marked_at, s.resume_reason, s.held_until, s.model_override, s.answers, s.usage, s.costs,
    s.gauges, s.origin, s.archived_at, s.parent_id, s.link_kind, s.carry_over, s.pinned_at,
    s.project_id, s.labels, s.read_only, s.worktree
"""
"""The columns that `views` reads, of `sessions AS s`."""

# Columns of a view that keep their names and values.
_UNCHANGED: Final = (
    *("id", "session_key", "agent", "platform", "started_at", "ended_at", "end_reason"),
    *("title", "cwd", "model", "held_until", "origin", "archived_at", "parent_id", "link_kind"),
    "read_only",
)

# What a member of a room sees of a session: all of it is said in the room, or counts it.
_SEEN_BY_MEMBERS: Final = (
    *("id", "session_key", "agent", "platform", "started_at", "ended_at", "end_reason", "origin"),
    *("last_activity_at", "last_message_at", "message_count", "user_message_count", "title"),
    *("profile", "source", "source_label", "is_busy", "archived_at"),
)

FIND_VIEW_SQL: Final[LiteralString] = f"""
-- sessions: one session by its id
SELECT {VIEW_COLUMNS}
FROM sessions AS s WHERE s.id = $1
"""  # noqa: S608 - a constant


async def find_view(connection: Connection, session_id: UUID) -> SessionView | None:
    """Return the API view of a session as seen by the current transaction."""
    row = await connection.fetchrow(FIND_VIEW_SQL, session_id)
    return None if row is None else await view(connection, row)


async def view(connection: Connection, row: asyncpg.Record) -> SessionView | None:
    """Return the view of a row; None if it is invalid without the values that are unknown here."""
    return next(iter(await views(connection, [row])), None)


async def views(connection: Connection, rows: Sequence[asyncpg.Record]) -> list[SessionView]:
    """Return the views of rows with `VIEW_COLUMNS`, in their order.

    Omits values that this release does not know, and rows that are invalid without them.
    """
    if not rows:
        return []
    beside = await _find_beside(connection, rows)
    roots = await _find_roots(connection, rows)
    gone_on = [row["id"] for row in rows if row["end_reason"] == EndReason.COMPRESSION]
    tips = await lineage.find_tips(connection, gone_on) if gone_on else {}
    found = (_view(row, beside[row["id"]], roots, tips.get(row["id"])) for row in rows)
    return [shown for shown in found if shown is not None]


BESIDE_SQL: Final[LiteralString] = """
-- messages → waiting → turns → projects: what lists show of sessions besides their columns
SELECT want.id, CASE WHEN want.wants_words THEN coalesce(
           (SELECT left(content, $3) FROM messages
            WHERE messages.session_id = want.id AND role = 'user' AND content ~ '[^[:space:]]'
              AND (details ? 'observed') IS NOT TRUE
            ORDER BY seq LIMIT 1),
           (SELECT left(content, $3) FROM waiting
            WHERE waiting.session_id = want.id AND content ~ '[^[:space:]]'
              AND (details ? 'observed') IS NOT TRUE
            ORDER BY arrival LIMIT 1)) END AS first_words,
       line.waiting, line.oldest_at,
       turns.id AS turn_id, turns.state AS turn_state, turns.rest, turns.attempt,
       coalesce(turns.claimed_at, turns.created_at) AS turn_since, projects.id AS project_id
FROM unnest($1::uuid[], $2::boolean[], $4::uuid[], $5::uuid[])
    AS want (id, wants_words, turn_id, project_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS waiting, min(stored_at) AS oldest_at FROM (
        SELECT stored_at FROM waiting WHERE waiting.session_id = want.id ORDER BY arrival LIMIT 100
    ) AS first) AS line
LEFT JOIN turns ON turns.id = want.turn_id
LEFT JOIN projects ON projects.id = want.project_id
"""


async def _find_beside(
    connection: Connection, rows: Iterable[asyncpg.Record]
) -> dict[UUID, asyncpg.Record]:
    wanted = [
        (row["id"], row["title"] is None, row["active_turn"], row["project_id"]) for row in rows
    ]
    ids, wants_words, live_turns, folders = map(list, zip(*wanted, strict=True))
    found = await connection.fetch(
        BESIDE_SQL, ids, wants_words, _READ_FOR_WORDS, live_turns, folders
    )
    return {row["id"]: row for row in found}


ROOTS_SQL: Final[LiteralString] = """
-- sessions: the sessions in which conversations began, and their places in them
WITH RECURSIVE chain (start, id, parent_id, link_kind, owner, hops) AS (
    SELECT id, id, parent_id, link_kind, owner, 0 FROM sessions WHERE id = ANY($1::uuid[])
    UNION ALL
    SELECT chain.start, parent.id, parent.parent_id, parent.link_kind, parent.owner, chain.hops + 1
    FROM chain JOIN sessions AS parent ON parent.id = chain.parent_id
    WHERE chain.link_kind = 'compression' AND chain.hops < $2
      -- A link to another person's session is damaged, and not followed.
      AND (parent.owner IS NULL OR parent.owner = chain.owner)
)
SELECT DISTINCT ON (start) start, id, hops FROM chain ORDER BY start, hops DESC
"""


async def _find_roots(
    connection: Connection, rows: Iterable[asyncpg.Record]
) -> dict[UUID, tuple[UUID, int]]:
    """Return, for each session that continues others, the first of them and their number."""
    continuing = [row["id"] for row in rows if row["link_kind"] == _COMPRESSION]
    if not continuing:
        return {}
    found = await connection.fetch(ROOTS_SQL, continuing, MAX_HOPS)
    return {row["start"]: (row["id"], row["hops"]) for row in found if row["hops"]}


FIRST_SAID_SQL: Final[LiteralString] = """
-- messages: the first words that came from the platform of each session
SELECT want.id, (
    SELECT left(content, $2) FROM messages
    WHERE messages.session_id = want.id AND role = 'user' AND source IS NOT NULL
      AND content ~ '[^[:space:]]' AND (details ? 'observed') IS NOT TRUE
    ORDER BY seq LIMIT 1) AS first_words
FROM unnest($1::uuid[]) AS want (id)
"""


async def for_members(
    connection: Connection, views: Iterable[SessionView]
) -> dict[UUID, SessionView]:
    """Return the views of shared sessions for members of their rooms, by id.

    The place in folders, labels, settings and costs are of those who work with the session; the
    sessions that it is linked to may be of other places. A session without a title is shown with
    words that were said in the room.
    """
    seen = {view.id: view for view in views}
    if not seen:
        return {}
    rows = await connection.fetch(FIRST_SAID_SQL, list(seen), _READ_FOR_WORDS)
    first_words = {row["id"]: row["first_words"] for row in rows}
    return {
        session_id: SessionView(
            access=Access.MEMBER,
            read_only=True,
            **{name: getattr(view, name) for name in _SEEN_BY_MEMBERS},
            **_shown_title(view.title, view.title_source, first_words[session_id]),
        )
        for session_id, view in seen.items()
    }


def _view(
    row: asyncpg.Record,
    beside: asyncpg.Record,
    roots: dict[UUID, tuple[UUID, int]],
    tip_id: UUID | None,
) -> SessionView | None:
    override, mark = row["model_override"], row["resume_marked_at"]
    times: list[datetime] = [
        at for at in (row["last_activity_at"], row["last_message_at"]) if at is not None
    ]
    root_id, before = roots.get(row["id"], (None, 0))
    source = row["platform"] if row["origin"] == CHAT_ORIGIN else row["origin"]
    # A session that a timer opened has no activity until its first message.
    fields: dict[str, object] = {name: row[name] for name in _UNCHANGED} | {
        "last_activity_at": row["last_activity_at"] or row["started_at"],
        "last_message_at": max(times, default=row["started_at"]),
        "message_count": row["next_seq"] - 1 - row["seq_gaps"],
        "user_message_count": row["user_messages"],
        "is_busy": row["active_turn"] is not None,
        "config": None if row["config"] is None else from_json(row["config"]),
        "model_override": None if override is None else read_override(override),
        "is_suspended": row["suspended_at"] is not None,
        "resume_pending": None
        if mark is None
        else ResumeMark(reason=read_reason(row["resume_reason"]), marked_at=mark),
        "answer_count": row["answers"],
        "usage": from_json(row["usage"] or "{}"),
        "costs": from_json(row["costs"] or "{}"),
        "gauges": from_json(row["gauges"] or "{}"),
        "note": row["carry_over"],
        "pinned": row["pinned_at"] is not None,
        "project_id": folder_of(beside["project_id"], row["origin"]),
        "labels": tuple(row["labels"] or ()),
        "profile": _profile_of(row["session_key"]),
        "source": source,
        "source_label": source_label(source),
        "root_id": root_id,
        "tip_id": None if tip_id == row["id"] else tip_id,
        "segments": before + 1,
        "worktree": _worktree(row["worktree"]),
        "waiting": _waiting(beside),
        "turn": _turn(beside),
        "version": _version(row, beside["project_id"]),
    }
    return read_record(SessionView, fields | _title(row, beside), "sessions")


def _title(row: asyncpg.Record, beside: asyncpg.Record) -> dict[str, Any]:
    """Return the title to show, or the first words that stand for it."""
    by_whom = TitleSource.MODEL if row["title_by_model"] else TitleSource.PERSON
    return _shown_title(row["title"], by_whom, beside["first_words"])


def _shown_title(
    title: str | None, by_whom: TitleSource | None, first_words: str | None
) -> dict[str, Any]:
    if title is not None:
        return {"shown_title": title, "title_source": by_whom}
    words = shown_title(first_words or "")[:FIRST_WORDS].rstrip()
    source = TitleSource.FIRST_WORDS if words else TitleSource.NONE
    return {"shown_title": words or None, "title_source": source}


def folder_of(project_id: UUID | None, origin: str) -> UUID | None:
    """Return the folder of a session: sessions of scheduled jobs have a built-in one.

    Args:
        project_id: The folder that the session was put into, if there is such a folder.
    """
    if project_id is None and origin == SCHEDULED_ORIGIN:
        return SCHEDULED_PROJECT
    return project_id


def _profile_of(session_key: str) -> str | None:
    """Return the profile in a session key; None for a key of another grammar."""
    parts = session_key.split(":", 2)
    return unquote(parts[1]) if parts[0] == "agent" and len(parts) > 1 else None


def _worktree(text: str | None) -> Worktree | None:
    return None if text is None else read_record(Worktree, from_json(text), "sessions.worktree")


def _waiting(beside: asyncpg.Record) -> WaitingMessages | None:
    if not beside["waiting"]:
        return None
    return WaitingMessages(count=beside["waiting"], oldest_at=beside["oldest_at"])


_WAITS: Final = frozenset({"resting", "parked"})


def _turn(beside: asyncpg.Record) -> LiveTurn | None:
    if beside["turn_id"] is None:
        return None
    state = beside["turn_state"]
    return LiveTurn(
        id=beside["turn_id"],
        state=beside["rest"] if state == "ready" and beside["rest"] in _WAITS else state,
        since=beside["turn_since"],
        attempt=beside["attempt"],
        has_worker=state == "claimed",
    )


def _version(row: asyncpg.Record, folder: UUID | None) -> str:
    """Return a digest of the values that requests can replace.

    It covers the values instead of a counter: chat commands and routers of other releases also
    change them, and need not maintain a counter.
    """
    values = [row[name] for name in _REPLACEABLE] + [row["archived_at"] is not None]
    marks = row["labels"], row["worktree"], folder
    # Routers of the release before leave them out.
    values += filter(None, marks)
    return sha256(to_json(values)).hexdigest()[:_VERSION_DIGITS]
