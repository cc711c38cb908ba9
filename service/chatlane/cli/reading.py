"""Commands that look at sessions and dead letters; they go over NATS and change nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, TypeVar
from uuid import UUID

import typer

from chatlane.cli.options import (
    AsJson,
    Config,
    Limit,
    Principal,
    open_nats,
    read_client_settings,
)
from chatlane.cli.reporting import CommandError
from chatlane.cli.terminal import local_time, open_console, plain, table
from chatlane_client.errors import UnansweredRequestError
from chatlane_client.sessions import SessionClient
from chatlane_client.transcripts import TranscriptApi
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadLetter
from chatlane_schemas.envelope import Record
from chatlane_schemas.results import Role
from chatlane_schemas.sessions import SessionView
from chatlane_schemas.streams import StreamName
from chatlane_schemas.transcripts import TranscriptEntry

AnswerT = TypeVar("AnswerT")

_PATIENCE: Final = timedelta(seconds=5)
_PAGE: Final = 200
_COLOURS: Final = {Role.USER: "cyan", Role.ASSISTANT: "green"}


@dataclass(frozen=True, slots=True)
class _Apis:
    """What a command may ask."""

    sessions: SessionClient
    transcripts: TranscriptApi


def sessions(
    config: Config = None,
    *,
    platform: Annotated[str | None, typer.Option(help="Only of this platform.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
    principal: Principal = "cli",
) -> None:
    """List sessions, the newest first.

    One line is one conversation; `chatlane session ID` shows what was said in it.
    """

    async def found(apis: _Apis) -> list[SessionView]:
        listed = apis.sessions.list_all(platform=platform, agent=agent, page_size=min(limit, _PAGE))
        return [session async for session in _first(listed, limit)]

    views = asyncio.run(_asked(config, principal, found))
    if as_json:
        _print_json(views)
    else:
        _print_sessions(views)


def session(
    session_id: Annotated[UUID, typer.Argument(metavar="ID", help="Id of the session.")],
    config: Config = None,
    *,
    limit: Limit = 100,
    as_json: AsJson = False,
    principal: Principal = "cli",
) -> None:
    """Show the newest messages of a session, in order."""

    async def found(apis: _Apis) -> tuple[SessionView, tuple[TranscriptEntry, ...]]:
        view = await apis.sessions.get(session_id)
        return view, await apis.transcripts.newest(session_id, limit=limit)

    view, rows = asyncio.run(_asked(config, principal, found))
    if as_json:
        _print_json([view, *rows])
    else:
        _print_transcript(view, rows)


def dead(config: Config = None, *, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List dead letters with their reasons, the newest first.

    These are messages that were set aside: they could not be read, placed or delivered. What
    they said stays in the database, in table dead_letters.
    """
    letters = asyncio.run(_dead_letters(config, limit))
    if as_json:
        _print_json(letters)
    else:
        _print_dead(letters)


async def _asked(
    config: Path | None, principal: str, question: Callable[[_Apis], Awaitable[AnswerT]]
) -> AnswerT:
    settings = read_client_settings(config)
    async with open_nats(settings, "chatlane-cli") as client:
        try:
            return await question(
                _Apis(
                    SessionClient(client, principal=principal, patience=_PATIENCE),
                    TranscriptApi(client, principal=principal, patience=_PATIENCE),
                )
            )
        except UnansweredRequestError as exc:
            raise CommandError(
                f"NATS is there at {settings.nats.url}, but no router answers: start one with "
                "`chatlane router`, or let `chatlane dev` do it"
            ) from exc


async def _first(views: AsyncIterator[SessionView], limit: int) -> AsyncIterator[SessionView]:
    left = limit
    async for view in views:
        yield view
        left -= 1
        if not left:
            return


async def _dead_letters(config: Path | None, limit: int) -> list[DeadLetter]:
    from chatlane.bus.jetstream import JetStream

    settings = read_client_settings(config)
    async with open_nats(settings, "chatlane-cli") as client:
        jetstream = JetStream(client)
        state = await jetstream.find_stream(StreamName.DEAD)
        if state is None:
            raise CommandError("there is no stream DEAD: run `chatlane admin apply`")
        letters: list[DeadLetter] = []
        sequence = state.last_sequence
        while sequence >= max(state.first_sequence, 1) and len(letters) < limit:
            message = await jetstream.find_message(StreamName.DEAD, sequence)
            if message is not None and (letter := _letter(message.body)) is not None:
                letters.append(letter)
            sequence -= 1
        return letters


def _letter(body: bytes) -> DeadLetter | None:
    try:
        return decode(DeadLetter, body)
    except DecodeError:
        # Of a newer release, with a reason this one does not know.
        return None


def _print_json(records: Sequence[Record]) -> None:
    for record in records:
        typer.echo(record.model_dump_json(exclude_none=True))


def _print_sessions(views: Sequence[SessionView]) -> None:
    if not views:
        typer.echo("there is no session yet: `chatlane chat --as ann` opens one")
        return
    shown = table("id", "platform", "agent", "started", "last message", "rows", "state", "key")
    for view in views:
        shown.add_row(
            str(view.id),
            view.platform,
            view.agent,
            local_time(view.started_at),
            local_time(view.last_activity_at),
            str(view.message_count),
            _state(view),
            plain(view.title or view.session_key),
        )
    open_console().print(shown)


def _state(view: SessionView) -> str:
    if view.end_reason is not None:
        return f"ended ({view.end_reason})"
    return "busy" if view.is_busy else "open"


def _print_transcript(view: SessionView, rows: Sequence[TranscriptEntry]) -> None:
    console = open_console()
    console.print(plain(f"{view.session_key}\n{view.agent}, {_state(view)}"), style="bold")
    for row in rows:
        who = row.author or row.tool_name or row.role
        console.print(
            plain(f"{row.seq:>4}  {local_time(row.created_at)}  {who}"),
            style=_COLOURS.get(row.role, "yellow"),
        )
        console.print(plain(_words(row)), soft_wrap=True)
    if rows and rows[0].seq > 1:
        console.print(f"({rows[0].seq - 1} older rows; --limit shows more)", style="dim")


def _words(row: TranscriptEntry) -> str:
    parts = [row.content] if row.content else []
    parts += [f"({row.state})"] if row.state else []
    parts += [f"[file: {its.name or its.url or its.key}]" for its in row.attachments]
    parts += [f"[calls a tool: {len(row.tool_calls)}]"] if row.tool_calls else []
    return "\n".join(f"      {line}" for part in parts for line in part.splitlines())


def _print_dead(letters: Sequence[DeadLetter]) -> None:
    if not letters:
        typer.echo("there are no dead letters")
        return
    shown = table("when", "stage", "reason", "position", "bytes", "detail", "digest")
    for letter in letters:
        position = "" if letter.sequence is None else f"{letter.log}#{letter.sequence}"
        shown.add_row(
            local_time(letter.at),
            letter.stage,
            letter.reason,
            position,
            str(letter.size_bytes),
            plain(letter.detail),
            letter.digest[:12],
        )
    open_console().print(shown)
