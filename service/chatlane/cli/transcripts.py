"""`chatlane transcripts`, and transcripts on a terminal and in files."""

import asyncio
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal
from uuid import UUID

import typer
from pydantic_core import to_json
from rich.console import Console

from chatlane.cli.sessions.queries import Apis, Named, ask
from chatlane.cli.shared.error_report import REFUSED, CommandError
from chatlane.cli.shared.options import AsJson, Config, Limit, Principal
from chatlane.cli.shared.terminal import local_time, one_line, open_console, plain, print_json
from chatlane.domain.prompts.sanitize import json_line
from chatlane.observability.logs import without_controls
from chatlane_client.errors import TransientError
from chatlane_schemas.results import Role
from chatlane_schemas.session_api.sessions import SessionView
from chatlane_schemas.session_api.transcripts import (
    RemovedEntry,
    TranscriptChanged,
    TranscriptEntry,
)

Format = Literal["jsonl", "markdown"]

_PAGE: Final = 200
# Most rows that one poll shows; if there are more, it shows the newest.
_MAX_NEW_ROWS: Final = 1000
_POLL_INTERVAL: Final = timedelta(seconds=1)
app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Rows that were taken out of transcripts: list them, put them back.\n\n"
    "Needs NATS and a running router.",
)

_COLOURS: Final = {Role.USER: "cyan", Role.ASSISTANT: "green"}


@app.command()
def removed(
    session: Named,
    config: Config = None,
    *,
    removal: Annotated[
        int | None,
        typer.Option("--change", metavar="NUMBER", min=1, help="Only rows of this change."),
    ] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """List the rows that were taken out of a transcript, the last change first."""

    async def found(apis: Apis) -> list[RemovedEntry]:
        view = await apis.find(session)
        rows: list[RemovedEntry] = []
        async for row in apis.transcripts.removed(view.id, removal=removal):
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    rows = ask(config, principal, found)
    if as_json:
        print_json(rows)
        return
    if not rows:
        typer.echo("nothing was taken out of this transcript")
    for change, of_change in groupby(rows, key=attrgetter("removal")):
        taken = tuple(of_change)
        typer.echo(f"change {change}: {taken[0].reason}, {local_time(taken[0].removed_at)}")
        print_rows(taken[::-1])


@app.command()
def restore(
    session: Named,
    removal: Annotated[
        int,
        typer.Argument(metavar="CHANGE", min=1, help="Number of the change, from `removed`."),
    ],
    config: Config = None,
    *,
    as_json: AsJson = False,
    principal: Principal = None,
) -> None:
    """Put the rows that a change took out of a transcript back at their places."""

    async def put_back(apis: Apis) -> TranscriptChanged:
        view = await apis.find(session)
        version = await apis.transcripts.version(view.id)
        return await apis.transcripts.restore(view.id, removal, expected_version=version)

    changed = ask(config, principal, put_back)
    if as_json:
        print_json([changed])
        return
    replaced = f", {changed.removed_rows} rows gave way" if changed.removed_rows else ""
    typer.echo(f"{changed.restored_rows} rows are back{replaced}")


def print_rows(rows: tuple[TranscriptEntry, ...], console: Console | None = None) -> None:
    """Print transcript rows with their times and authors."""
    console = console or open_console()
    for row in rows:
        console.print(
            plain(f"{row.seq:>4}  {local_time(row.created_at)}  {one_line(_who(row))}"),
            style=_COLOURS.get(row.role, "yellow"),
        )
        words = "\n".join(f"      {line}" for line in _words(row).splitlines())
        console.print(plain(words), soft_wrap=True)


def _who(row: TranscriptEntry) -> str:
    names = dict.fromkeys(name for name in (row.author_name, row.author) if name)
    who = " ".join(names) or row.tool_name or row.role
    unanswered = f"not answered: {row.unanswered.replace('_', ' ')}" if row.unanswered else None
    context = "not addressed to the agent" if row.observed else None
    marks = ", ".join(filter(None, (row.state, context, unanswered, row.error)))
    return f"{who} ({marks})" if marks else who


def _words(row: TranscriptEntry) -> str:
    parts = [row.content] if row.content else []
    parts += [
        f"[file: {attachment.name or attachment.url or attachment.key}]"
        for attachment in row.attachments
    ]
    parts += [f"[calls a tool: {len(row.tool_calls)}]"] if row.tool_calls else []
    return "\n".join(parts)


async def follow(apis: Apis, view: SessionView, *, limit: int, as_json: bool) -> None:
    """Print the newest rows and then every new one, until the session has ended.

    While no router answers, the command keeps trying.
    """
    last = 0
    rows = await apis.transcripts.newest(view.id, limit=limit)
    while True:
        if as_json:
            print_json(rows)
        else:
            print_rows(rows)
        last = rows[-1].seq if rows else last
        if view.ended_at is not None:
            if not as_json:
                typer.echo(f"the session has ended ({view.end_reason})")
            return
        await asyncio.sleep(_POLL_INTERVAL.total_seconds())
        try:
            # Read the session first, so that the answer that follows has all rows before its end.
            latest = await apis.sessions.get(view.id)
            rows = await _newer(apis, view.id, last)
            view = latest
        except TransientError:
            rows = ()


async def _newer(apis: Apis, session_id: UUID, last: int) -> tuple[TranscriptEntry, ...]:
    rows: tuple[TranscriptEntry, ...] = ()
    async for page in apis.transcripts.pages(session_id, page_size=_PAGE, as_stored=True):
        rows = (*(row for row in page if row.seq > last), *rows)
        if not page or page[0].seq <= last or len(rows) >= _MAX_NEW_ROWS:
            break
    return rows


async def export(
    apis: Apis, view: SessionView, target: Path | None, form: Format, *, whole_chain: bool
) -> int:
    """Write a session with its transcript, oldest row first; return the number of rows.

    The API returns the newest page first. Pages wait in a temporary file, so that memory does
    not grow with the transcript.

    Raises:
        CommandError: Rows changed meanwhile; nothing was written.
    """
    with tempfile.TemporaryFile() as kept:
        before = await apis.transcripts.version(view.id)
        places: list[tuple[int, int]] = []
        async for page in apis.transcripts.pages(
            view.id, page_size=_PAGE, whole_chain=whole_chain, as_stored=True
        ):
            body = b"".join(row.model_dump_json(exclude_none=True).encode() + b"\n" for row in page)
            places.append((kept.tell(), len(body)))
            kept.write(body)
        after = await apis.transcripts.version(view.id)
        if _revision(before) != _revision(after):
            raise CommandError(
                "the transcript changed during the export: try again", exit_code=REFUSED
            )
        with _opened(target) as written:
            return _write(written, view, _lines(kept, places), form)


def _revision(version: str) -> str:
    """Return the revision part of a version; new rows do not change it."""
    return version.partition(".")[0]


def _lines(kept: BinaryIO, places: list[tuple[int, int]]) -> Iterator[bytes]:
    for start, length in reversed(places):
        kept.seek(start)
        yield from kept.read(length).splitlines(keepends=True)


@contextmanager
def _opened(target: Path | None) -> Iterator[BinaryIO]:
    """Open standard output, or a file that appears only when it is complete."""
    if target is None:
        yield typer.get_binary_stream("stdout")
        return
    directory = target.absolute().parent
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as written:
            yield written
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write(written: BinaryIO, view: SessionView, lines: Iterator[bytes], form: Format) -> int:
    rows = 0
    is_json = form == "jsonl"
    head = json_line(view.model_dump_json(exclude_none=True)) + "\n" if is_json else _heading(view)
    written.write(head.encode())
    for line in lines:
        rows += 1
        if is_json:
            written.write(json_line(line.decode()).encode())
        else:
            written.write(_section(TranscriptEntry.model_validate_json(line)).encode())
    written.flush()
    return rows


def _heading(view: SessionView) -> str:
    facts = {
        "Session": f"`{view.id}`",
        "Key": f"`{view.session_key}`",
        "Agent": view.agent,
        "Started": view.started_at.isoformat(timespec="seconds"),
    }
    if view.ended_at is not None:
        facts["Ended"] = f"{view.ended_at.isoformat(timespec='seconds')} ({view.end_reason})"
    title = one_line(view.title or "Conversation")
    return f"# {title}\n\n" + "".join(f"* {name}: {fact}\n" for name, fact in facts.items())


def _section(row: TranscriptEntry) -> str:
    """Return a row in Markdown; its text is quoted, so that it cannot look like another row."""
    at = row.created_at.isoformat(timespec="seconds")
    who = one_line(_who(row))
    text_lines = without_controls(_words(row), keep="\n\t").splitlines()
    quotation = "".join(f"> {line}\n" for line in text_lines)
    calls = "".join(
        _fenced(json_line(to_json(call, indent=2).decode())) for call in row.tool_calls or ()
    )
    return f"\n### {row.seq}. {who}, {at}\n\n{quotation}{calls}"


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"\n{fence}json\n{text}\n{fence}\n"
