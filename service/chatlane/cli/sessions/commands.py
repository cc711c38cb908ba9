"""`chatlane sessions`: list, show and change conversations over the session API."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Final

import typer
from typer.core import TyperGroup
from typing_extensions import override

from chatlane.cli import transcripts
from chatlane.cli.sessions import changes, filters, folders
from chatlane.cli.sessions.queries import Apis, Named, ask
from chatlane.cli.sessions.views import (
    print_changed,
    print_hits,
    print_session,
    print_sessions,
    title_of,
)
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import AsJson, Config, Limit, Principal, read_client_settings
from chatlane.cli.shared.terminal import open_console, plain, print_json
from chatlane_client.api.catalogue import SessionFilters
from chatlane_schemas.session_api.sessions import SessionCounts, SessionOrder, SessionView
from chatlane_schemas.session_api.transcripts import TranscriptEntry, TranscriptHit


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
_HITS_PAGE: Final = 50


@app.command("list")
def list_sessions(
    config: Config = None,
    *,
    platform: filters.Platform = None,
    agent: filters.Agent = None,
    origin: filters.Origin = None,
    without_origin: filters.WithoutOrigin = None,
    profile: filters.Profile = None,
    label: filters.Label = None,
    title_part: filters.TitlePart = None,
    cwd: filters.Directory = None,
    active: filters.Active = None,
    person: filters.OfPerson = None,
    archived: filters.Archived = None,
    hide_empty: filters.HideEmpty = False,
    order: Annotated[
        SessionOrder, typer.Option(help="Newest by start, or by the last message.")
    ] = SessionOrder.STARTED,
    limit: Limit = 50,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """List sessions, newest first. Several filters are combined with AND."""
    wanted = SessionFilters(
        platform=platform,
        agent=agent,
        origin=origin,
        without_origins=tuple(without_origin or ()),
        profile=profile,
        label=label,
        title_part=title_part,
        cwd=cwd,
        active_since=filters.since(active),
        archived=archived,
        hide_empty=hide_empty,
    )

    async def found(apis: Apis) -> tuple[list[SessionView], bool]:
        listed = apis.sessions.list_all(order=order, page_size=min(limit + 1, _PAGE), **wanted)
        views = [view async for view in _first(listed, limit + 1)]
        return views[:limit], len(views) > limit

    views, has_more = ask(config, principal, found, person)
    if not views:
        _check_declared(config, platform, agent)
    if as_json:
        print_json(views)
    else:
        print_sessions(views, has_more=has_more)


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
def count(
    config: Config = None,
    *,
    platform: filters.Platform = None,
    agent: filters.Agent = None,
    origin: filters.Origin = None,
    without_origin: filters.WithoutOrigin = None,
    profile: filters.Profile = None,
    label: filters.Label = None,
    title_part: filters.TitlePart = None,
    cwd: filters.Directory = None,
    active: filters.Active = None,
    person: filters.OfPerson = None,
    archived: filters.Archived = None,
    hide_empty: filters.HideEmpty = False,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Count sessions. Several filters are combined with AND."""
    wanted = SessionFilters(
        platform=platform,
        agent=agent,
        origin=origin,
        without_origins=tuple(without_origin or ()),
        profile=profile,
        label=label,
        title_part=title_part,
        cwd=cwd,
        active_since=filters.since(active),
        archived=archived,
        hide_empty=hide_empty,
    )

    async def counted(apis: Apis) -> SessionCounts:
        return await apis.sessions.count(**wanted)

    counts = ask(config, principal, counted, person)
    if as_json:
        print_json([counts])
        return
    at_least = "" if counts.is_complete else "at least "
    typer.echo(
        f"{at_least}{counts.total:,} sessions: {counts.open:,} open, {counts.archived:,} archived"
    )


@app.command()
def search(
    words: Annotated[
        str,
        typer.Argument(
            metavar="WORDS",
            help='Words that must all be in a row; `"in quotes"` follow each other, `word*` is a '
            "beginning. `-word` excludes; write `--` before it.",
        ),
    ],
    config: Config = None,
    *,
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Only rows of this session.")
    ] = None,
    agent: filters.Agent = None,
    person: filters.OfPerson = None,
    limit: Limit = 20,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Find rows of transcripts by their words, best first."""

    async def found(apis: Apis) -> list[TranscriptHit]:
        of = None if session is None else (await apis.find(session)).id
        listed = apis.transcripts.search(
            words, session_id=of, agent=agent, page_size=min(limit, _HITS_PAGE)
        )
        hits: list[TranscriptHit] = []
        async for hit in listed:
            hits.append(hit)
            if len(hits) == limit:
                break
        return hits

    hits = ask(config, principal, found, person)
    if as_json:
        print_json(hits)
    else:
        print_hits(hits)


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
    print_session(view)
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

    print_changed(config, principal, titled, as_json=as_json, confirmation=title_of)


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

    print_changed(
        config,
        principal,
        made,
        as_json=as_json,
        confirmation=lambda view: f"ended; the chat continues in {view.id}",
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

    print_changed(
        config,
        principal,
        switched,
        as_json=as_json,
        confirmation=lambda view: f"the chat continues in {view.id}",
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

    print_changed(
        config,
        principal,
        forked,
        as_json=as_json,
        confirmation=lambda view: f"{view.id} starts with {view.message_count} copied rows",
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
        name = plain(view.title or view.session_key).plain
        typer.confirm(f"Delete {view.id} ({name}, {view.message_count} rows)?", abort=True)
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


changes.register(app)
folders.register(app)
