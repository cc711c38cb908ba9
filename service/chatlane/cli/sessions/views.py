"""Sessions, changes of sessions and found rows on a terminal."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import typer

from chatlane.cli.sessions.queries import Apis, ask
from chatlane.cli.shared.terminal import (
    add_row,
    age,
    fact_table,
    local_time,
    open_console,
    plain,
    print_json,
    short_id,
    shortened,
    table,
)
from chatlane_schemas.session_api.people import Person
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.session_api.transcripts import TranscriptHit

# Leaves room for a key on a terminal of 80 columns.
_TITLE_WIDTH: Final = 16


def print_changed(
    config: Path | None,
    principal: str | None,
    change: Callable[[Apis], Awaitable[SessionView]],
    *,
    as_json: bool,
    confirmation: Callable[[SessionView], str],
    person: Person | None = None,
) -> None:
    """Make a change, and print the changed session."""
    view = ask(config, principal, change, person)
    if as_json:
        print_json([view])
    else:
        open_console().print(plain(confirmation(view)))


def title_of(view: SessionView) -> str:
    """Return the title of a session, or that it has none."""
    return view.title or "(no title)"


def _state(view: SessionView) -> str:
    if view.end_reason is not None:
        return f"ended ({view.end_reason})"
    if view.is_suspended:
        return "suspended"
    return "busy" if view.is_busy else "open"


def _when(at: datetime) -> str:
    return f"{local_time(at)} ({age(at)} ago)"


def print_sessions(views: list[SessionView], *, has_more: bool) -> None:
    """Print one session per line."""
    if not views:
        typer.echo("there are no such sessions: `chatlane chat --as ann` opens one")
        return
    has_titles = any(view.title for view in views)
    listed = table("…id", "agent", "active", "rows", "state", *(["title"] * has_titles), "key")
    for view in views:
        title_cell = [shortened(view.title or "", _TITLE_WIDTH)] * has_titles
        facts = (short_id(view.id), view.agent, age(view.last_activity_at))
        state = (str(view.message_count), _state(view))
        add_row(listed, [*facts, *state, *title_cell, view.session_key])
    console = open_console()
    console.print(listed)
    if has_more:
        console.print("(more sessions exist; raise --limit to see them)", style="dim")


def print_session(view: SessionView) -> None:
    """Print the facts of a session."""
    facts = {
        "id": str(view.id),
        "key": view.session_key,
        "title": view.title,
        "agent": view.agent,
        "state": _state(view),
        "started": _when(view.started_at),
        "last message": _when(view.last_activity_at),
        "ended": view.ended_at and local_time(view.ended_at),
        "rows": str(view.message_count),
        "continues": view.parent_id and f"{view.parent_id} ({view.link_kind})",
        "opened by": None if view.origin == "chat" else view.origin,
        "labels": ", ".join(view.labels),
        "marks": ", ".join(
            mark
            for mark, is_set in (("pinned", view.pinned), ("read only", view.read_only))
            if is_set
        ),
        "archived": view.archived_at and local_time(view.archived_at),
        "to resume": view.resume_pending and f"interrupted: {view.resume_pending.reason}",
        "held until": view.held_until and local_time(view.held_until),
        "model": view.model_override.model if view.model_override else view.model,
        "directory": view.cwd,
        "usage": ", ".join(f"{name} {count:,}" for name, count in sorted(view.usage.items())),
        "costs": ", ".join(f"{name} {amount:f}" for name, amount in sorted(view.costs.items())),
        "gauges": ", ".join(f"{name} {value:,}" for name, value in sorted(view.gauges.items())),
    }
    open_console().print(fact_table(facts))


def print_hits(hits: Sequence[TranscriptHit]) -> None:
    """Print the rows that a search found, best first."""
    if not hits:
        typer.echo("no row has these words; very recent rows may not be found yet")
        return
    listed = table("…session", "row", "written", "who", "title", "words")
    for hit in hits:
        who = hit.author or str(hit.role)
        title = shortened(hit.title or "", _TITLE_WIDTH)
        facts = (short_id(hit.session_id), str(hit.seq), age(hit.created_at))
        add_row(listed, [*facts, shortened(who, _TITLE_WIDTH), title, hit.snippet])
    open_console().print(listed)
