"""`chatlane sessions`: list, show and change conversations over the session API."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import ValidationError
from typer.core import TyperGroup
from typing_extensions import override

from chatlane.cli import transcripts
from chatlane.cli.session_queries import Apis, Named, ask, complaint
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import (
    AsJson,
    Config,
    Limit,
    Principal,
    duration_option,
    read_client_settings,
)
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
from chatlane_schemas.session_api.sessions import SessionOrder, SessionView
from chatlane_schemas.session_api.transcripts import TranscriptEntry


class _ListByDefault(TyperGroup):
    """A group that runs `list` if the command line names no command."""

    @override
    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        names_none = not args or args[0].startswith("-")
        is_help = bool(args) and args[0] in ctx.help_option_names
        return super().parse_args(ctx, ["list", *args] if names_none and not is_help else args)


app = typer.Typer(
    cls=_ListByDefault,
    rich_markup_mode="markdown",
    help="List conversations (`list`, also without a command), show and change them.\n\n"
    "Needs NATS and a running router.",
)

_PAGE: Final = 200
# Leaves room for a key on a terminal of 80 columns.
_TITLE_WIDTH: Final = 16


def person_named(text: str) -> Person:
    """Return the person of an argument such as `telegram/bot/701`.

    Raises:
        typer.BadParameter: The argument has another form.
    """
    parts = text.split("/", 2)
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 - platform, account and id
        raise typer.BadParameter("write it as PLATFORM/ACCOUNT/ID, such as telegram/bot/701")
    platform, account, person_id = parts
    try:
        return Person(platform=platform, account=account, id=person_id)
    except ValidationError as exc:
        raise typer.BadParameter(complaint(exc)) from exc


Platform = Annotated[str | None, typer.Option(help="Only sessions of this platform.")]
Agent = Annotated[str | None, typer.Option(help="Only sessions of this agent.")]
Origin = Annotated[
    str | None,
    typer.Option(help="Only sessions that this kind of caller opened; messages are `chat`."),
]
Active = Annotated[
    timedelta | None,
    typer.Option(
        parser=duration_option,
        metavar="DURATION",
        help="Only sessions with a message from a person in the last DURATION, such as 2h.",
    ),
]
OfPerson = Annotated[
    Person | None,
    typer.Option(
        "--person",
        parser=person_named,
        metavar="PLATFORM/ACCOUNT/ID",
        help="Only sessions of this person.",
    ),
]
Archived = Annotated[
    bool | None,
    typer.Option("--archived/--not-archived", help="Only archived sessions, or only the others."),
]


@app.command("list")
def list_sessions(
    config: Config = None,
    *,
    platform: Platform = None,
    agent: Agent = None,
    origin: Origin = None,
    active: Active = None,
    person: OfPerson = None,
    archived: Archived = None,
    order: Annotated[
        SessionOrder, typer.Option(help="Newest by start, or by the last message of a person.")
    ] = SessionOrder.STARTED,
    limit: Limit = 50,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """List sessions, newest first. Several filters are combined with AND."""
    since = None if active is None else datetime.now(UTC) - active

    async def found(apis: Apis) -> tuple[list[SessionView], bool]:
        listed = apis.sessions.list_all(
            platform=platform,
            agent=agent,
            origin=origin,
            active_since=since,
            archived=archived,
            order=order,
            page_size=min(limit + 1, _PAGE),
        )
        views = [view async for view in _first(listed, limit + 1)]
        return views[:limit], len(views) > limit

    views, has_more = ask(config, principal, found, person)
    if not views:
        _check_declared(config, platform, agent)
    if as_json:
        print_json(views)
    else:
        _print_sessions(views, has_more=has_more)


def _check_declared(config: Path | None, platform: str | None, agent: str | None) -> None:
    """Check the names of an empty list: sessions of a name that was declared before remain."""
    settings = read_client_settings(config)
    if not settings.platforms:
        # Without a chatlane.toml only the routers know the declarations.
        return
    if platform is not None and platform not in settings.platforms:
        raise CommandError(f"no sessions: platform {platform!r} is not declared in chatlane.toml")
    if agent is not None and agent not in settings.agents:
        raise CommandError(f"no sessions: agent {agent!r} is not declared in chatlane.toml")


@app.command()
def show(
    session: Named,
    config: Config = None,
    *,
    limit: Limit = 100,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Show a session and the newest rows of its transcript, in order."""

    async def found(apis: Apis) -> tuple[SessionView, tuple[TranscriptEntry, ...]]:
        view = await apis.find(session)
        return view, await apis.transcripts.newest(view.id, limit=limit)

    view, rows = ask(config, principal, found)
    if as_json:
        print_json([view, *rows])
        return
    _print_session(view)
    transcripts.print_rows(rows)
    if (older := view.message_count - len(rows)) > 0:
        open_console().print(f"({older} older rows; raise --limit to see them)", style="dim")


@app.command()
def tail(
    session: Named,
    config: Config = None,
    *,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, help="Start with at most this many rows.")
    ] = 10,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Show the newest rows of a session, then new rows until the session ends or Ctrl-C."""

    async def followed(apis: Apis) -> None:
        view = await apis.find(session)
        await transcripts.follow(apis, view, limit=limit, as_json=as_json)

    ask(config, principal, followed)


@app.command()
def title(
    session: Named,
    words: Annotated[
        str | None,
        typer.Argument(metavar="[TITLE]", help="New title; without it the current title is shown."),
    ] = None,
    config: Config = None,
    *,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the title.")] = False,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Show, set or remove the title of a session."""
    if clear and words is not None:
        raise typer.BadParameter("give a title or --clear, not both")

    async def titled(apis: Apis) -> SessionView:
        view = await apis.find(session)
        if words is None and not clear:
            return view
        return await apis.sessions.set_title(view.id, words or "")

    _print_changed(config, principal, titled, as_json=as_json, said=_title_of)


@app.command()
def reset(
    session: Named,
    config: Config = None,
    *,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """End a session and open the next one of its chat."""

    async def made(apis: Apis) -> SessionView:
        return await apis.sessions.reset((await apis.find(session)).id)

    _print_changed(
        config,
        principal,
        made,
        as_json=as_json,
        said=lambda view: f"ended; the chat continues in {view.id}",
    )


@app.command()
def resume(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Session key of the chat.")],
    session: Annotated[
        str, typer.Argument(metavar="ID", help="Id of the session to continue, or its end.")
    ],
    config: Config = None,
    *,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Continue an older session in a chat; the current session of the chat ends."""

    async def switched(apis: Apis) -> SessionView:
        now = await apis.find(key)
        chosen = await apis.find_id(session)
        return await apis.sessions.switch(key, chosen, expected_session_id=now.id)

    _print_changed(
        config,
        principal,
        switched,
        as_json=as_json,
        said=lambda view: f"the chat continues in {view.id}",
    )


@app.command()
def fork(
    session: Named,
    config: Config = None,
    *,
    through: Annotated[
        int | None,
        typer.Option(metavar="ROW", min=1, help="Last row to copy; by default all rows."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="A chat of the session that continues in the copy."),
    ] = None,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Copy a session into a new one; the original does not change."""

    async def forked(apis: Apis) -> SessionView:
        view = await apis.find(session)
        return await apis.sessions.fork(view.id, through_seq=through, session_key=key)

    _print_changed(
        config,
        principal,
        forked,
        as_json=as_json,
        said=lambda view: f"{view.id} starts with {view.message_count} copied rows",
    )


@app.command()
def remove(
    session: Named,
    config: Config = None,
    *,
    is_sure: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")
    ] = False,
    principal: Principal = None,
) -> None:
    """Delete a session with its transcript. This cannot be undone."""

    async def found(apis: Apis) -> SessionView:
        return await apis.find(session)

    async def removed(apis: Apis) -> None:
        await apis.sessions.remove(view.id)

    # Asked between two connections, because users may take a long time.
    view = ask(config, principal, found)
    if not is_sure:
        what = plain(view.title or view.session_key).plain
        typer.confirm(f"Delete {view.id} ({what}, {view.message_count} rows)?", abort=True)
    ask(config, principal, removed)
    typer.echo(f"{view.id} is deleted")


@app.command()
def export(
    session: Named,
    config: Config = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write; by default standard output."),
    ] = None,
    form: Annotated[
        transcripts.Format | None,
        typer.Option(
            "--format", help="By default the format of the file name's suffix, else jsonl."
        ),
    ] = None,
    only_this: Annotated[
        bool, typer.Option("--only-this", help="Leave out the sessions that this one continues.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    principal: Principal = None,
) -> None:
    """Write a session and its transcript as JSON Lines or Markdown.

    JSON Lines hold the session in the first line, then one row per line, oldest first.
    """
    if output is not None and output.exists() and not force:
        raise CommandError(f"{output} exists: choose another name or add --force")
    chosen = form or _format_of(output)

    async def exported(apis: Apis) -> int:
        view = await apis.find(session)
        return await transcripts.export(apis, view, output, chosen, whole_chain=not only_this)

    rows = ask(config, principal, exported)
    if output is not None:
        typer.echo(f"{output}: {rows} rows")


def _format_of(output: Path | None) -> transcripts.Format:
    is_markdown = output is not None and output.suffix.lower() in {".md", ".markdown"}
    return "markdown" if is_markdown else "jsonl"


async def _first(views: AsyncIterator[SessionView], limit: int) -> AsyncIterator[SessionView]:
    left = limit
    async for view in views:
        yield view
        left -= 1
        if not left:
            return


def _print_changed(
    config: Path | None,
    principal: str | None,
    change: Callable[[Apis], Awaitable[SessionView]],
    *,
    as_json: bool,
    said: Callable[[SessionView], str],
) -> None:
    view = ask(config, principal, change)
    if as_json:
        print_json([view])
    else:
        open_console().print(plain(said(view)))


def _title_of(view: SessionView) -> str:
    return view.title or "(no title)"


def _state(view: SessionView) -> str:
    if view.end_reason is not None:
        return f"ended ({view.end_reason})"
    if view.is_suspended:
        return "suspended"
    return "busy" if view.is_busy else "open"


def _when(at: datetime) -> str:
    return f"{local_time(at)} ({age(at)} ago)"


def _print_sessions(views: list[SessionView], *, has_more: bool) -> None:
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


def _print_session(view: SessionView) -> None:
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
