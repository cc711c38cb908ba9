"""`chatlane dead-letters`: list, show, retry and drop dead letters in Postgres."""

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer
from pydantic_core import to_json

from chatlane.cli.dead_letter_source import find_source
from chatlane.cli.shared.audit import actor
from chatlane.cli.shared.error_report import NOT_FOUND, REFUSED, CommandError
from chatlane.cli.shared.options import (
    AsJson,
    Config,
    Limit,
    open_nats,
    read_client_settings,
    run_async,
    shown,
)
from chatlane.cli.shared.short_ids import IdText, full_id, only_match, short_digits
from chatlane.cli.shared.terminal import (
    add_row,
    age,
    fact_table,
    local_time,
    open_console,
    plain,
    print_json,
    short_id,
    table,
)
from chatlane.domain.prompts.sanitize import json_line
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadLetter, DeadReason, cause_of
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy
    from nats.aio.client import Client

    from chatlane.domain.effects import DeadRow, Publication
    from chatlane.outbox.redrive import Handed, Retrying
    from chatlane.postgres.pool import Store
    from chatlane_schemas.turns import TurnMessage

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, show, retry or drop dead letters: messages that no router could process.\n\n"
    "Needs the database account of the service. Fix the cause before you retry.",
)

_PUBLISHED_WITHIN: Final = timedelta(seconds=15)
_POLL_INTERVAL: Final = timedelta(milliseconds=100)

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Ids of dead letters, or their last characters."),
]
Reason = Annotated[
    DeadReason | None, typer.Option(help="Only dead letters of this reason.", show_default=False)
]
OldestFirst = Annotated[
    int,
    typer.Option("--limit", "-n", min=1, help="Most dead letters of a reason, oldest first."),
]


@app.command("list")
@run_async
async def list_letters(
    config: Config = None,
    *,
    reason: Reason = None,
    limit: Limit = 50,
    from_stream: Annotated[
        bool,
        typer.Option("--from-stream", help="Read the stream DEAD: needs NATS, and no database."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first: where each came from and what was wrong with it."""
    if from_stream:
        _print_announced(await _read_announced(config, limit, reason), as_json=as_json)
        return
    from chatlane.store import dead_letters

    async with _opened(config) as store, store.transaction() as connection:
        letters = await dead_letters.list_recent(connection, limit, reason=reason)
        if not as_json:
            ids = [letter.id for _, letter in letters]
            bodies = await dead_letters.small_bodies(connection, ids)
            letters = [(at, letter._replace(body=bodies.get(letter.id))) for at, letter in letters]
        tallies = await dead_letters.tally(connection)
    if as_json:
        for at, letter in letters:
            typer.echo(_json(at, letter))
        return
    _print(letters)
    for tally in tallies:
        oldest = shown(timedelta(seconds=tally.oldest_seconds))
        typer.echo(f"{tally.number} {tally.reason} ({cause_of(tally.reason)}), oldest {oldest} ago")


@app.command()
@run_async
async def show(letter: IdText, config: Config = None, *, as_json: AsJson = False) -> None:
    """Show a dead letter with its message body, or what people wrote in a failed turn.

    For a message with the id of another one (`message_id_reused`), also show the other one.

    The audit log records it.
    """
    from chatlane.outbox import redrive
    from chatlane.store import audit, dead_letters

    async with _opened(config) as store, store.transaction() as connection:
        letter_id = await _find_id(connection, letter)
        row = await dead_letters.lock(connection, letter_id)
        if row is None:
            raise _no_such(letter_id)
        detail = {"id": letter_id, "reason": row.reason}
        await audit.write(
            connection, "dead_letter_shown", None, detail, actor=actor(), outcome="done"
        )
        written = await redrive.written_in(connection, row)
        first_texts = await redrive.first_texts(connection, row)
    if as_json:
        typer.echo(_json(None, row, with_body=True, written=written, first_texts=first_texts))
        return
    _print_one(row)
    for text in first_texts:
        open_console().print("text of the first message with this id:", style="bold")
        open_console().print(plain(text), soft_wrap=True)
    if written:
        open_console().print("messages of the turn:", style="bold")
    for message in written:
        sender = message.source.sender
        name = (sender.name or sender.id) if sender else None
        text = message.text or f"[{len(message.attachments)} attachments]"
        open_console().print(plain(f"{name}: {text}" if name else text), soft_wrap=True)


@app.command()
@run_async
async def retry(
    ids: Ids = None,
    config: Config = None,
    *,
    reason: Reason = None,
    session: Annotated[
        UUID | None,
        typer.Option(help="All failed turns of this session.", show_default=False),
    ] = None,
    limit: OldestFirst = 1000,
    answered_within: Annotated[
        int,
        typer.Option(
            "--answered-within",
            min=1,
            help="Most seconds to wait for a turn of the same session to end.",
        ),
    ] = 600,
    out_of_order: Annotated[
        bool,
        typer.Option(
            "--out-of-order", help="Also retry while an older one of the same conversation is left."
        ),
    ] = False,
) -> None:
    """Retry dead letters, oldest first. Needs a running router.

    A message goes to the end of its log, after newer messages. A failed turn goes to the
    workers again, when the turns of its session before it have ended. The command waits until each
    is published. A dead letter that cannot be retried stays, and so do newer ones of its
    conversation.
    """
    from chatlane.outbox.redrive import NotRetriedError, Retrying

    stay = 0
    settings = read_client_settings(config)
    async with _opened(config) as store, open_nats(settings, "chatlane-cli") as client:
        retrying = Retrying(store, partial(_publish, client), actor(), slots=settings.router.slots)
        chosen = await _chosen(store, ids, reason, limit, session)
        patience = timedelta(seconds=answered_within)
        for letter_id in chosen:
            try:
                handed = await retrying.retry_when_idle(
                    letter_id, patience, out_of_order=out_of_order
                )
            except NotRetriedError as why:
                stay += 1
                typer.echo(f"{letter_id} not retried: {why}", err=True)
                continue
            await _until_published(retrying, handed)
            typer.echo(f"{letter_id} retried")
    if stay:
        raise CommandError(f"{stay} of {len(chosen)} not retried", exit_code=REFUSED)


@app.command()
@run_async
async def drop(
    ids: Ids = None, config: Config = None, *, reason: Reason = None, limit: OldestFirst = 1000
) -> None:
    """Delete dead letters with their message bodies. The audit log records it."""
    from chatlane.outbox.redrive import Retrying

    async with _opened(config) as store:
        retrying = Retrying(store, _refuse, actor())
        for letter_id in await _chosen(store, ids, reason, limit):
            await retrying.drop(letter_id)
            typer.echo(f"{letter_id} dropped")


async def _chosen(
    store: "Store",
    ids: list[str] | None,
    reason: DeadReason | None,
    limit: int,
    session: UUID | None = None,
) -> list[UUID]:
    """Return the ids of the chosen dead letters in the order in which their messages came."""
    from chatlane.store import dead_letters

    if [bool(ids), reason is not None, session is not None].count(True) != 1:
        raise typer.BadParameter(
            "give ids, --reason or --session: `chatlane dead-letters list` shows them"
        )
    async with store.transaction() as connection:
        if session is not None:
            letters = await dead_letters.list_failed_turns(connection, session, limit)
        elif reason is not None:
            letters = await dead_letters.list_oldest(connection, reason, limit)
        else:
            wanted = {await _find_id(connection, text) for text in ids or ()}
            locked = [
                await dead_letters.lock(connection, letter_id) for letter_id in sorted(wanted)
            ]
            letters = [letter for letter in locked if letter is not None]
            if missing := wanted - {letter.id for letter in letters}:
                raise _no_such(min(missing))
    oldest = datetime.min.replace(tzinfo=UTC)
    if not letters:
        kind = f"session {session}" if reason is None else f"reason {reason}"
        typer.echo(f"there are no dead letters of {kind}")
    letters.sort(key=lambda row: (row.stored_at or oldest, row.log or "", row.sequence or 0))
    return [letter.id for letter in letters]


async def _find_id(connection: "PoolConnectionProxy", text: str) -> UUID:
    """Return the dead-letter id that an argument gives, whole or shortened.

    Raises:
        CommandError: The last characters of an id match no dead letter, or several.
    """
    from chatlane.store import dead_letters

    if (letter_id := full_id(text)) is not None:
        return letter_id
    digits = short_digits(text)
    matches = await dead_letters.find_by_end(connection, digits) if digits else []
    return only_match(text, matches, "dead letter", "chatlane dead-letters list")


async def _publish(client: "Client", row: "Publication") -> None:
    import nats.errors

    headers = {"Nats-Msg-Id": row.message_id}
    try:
        await client.jetstream().publish(row.subject, row.payload, timeout=5, headers=headers)
    except (nats.errors.Error, TimeoutError) as exc:
        raise CommandError(
            f"stream {row.stream} did not confirm the message ({type(exc).__name__}): check that "
            "this user may publish there"
        ) from exc


async def _refuse(_: "Publication") -> None:
    raise AssertionError("dropping publishes nothing")


async def _until_published(retrying: "Retrying", handed: "Handed") -> None:
    try:
        async with asyncio.timeout(_PUBLISHED_WITHIN.total_seconds()):
            # The database sends no notification for it.
            while not await retrying.is_published(handed):  # noqa: ASYNC110
                await asyncio.sleep(_POLL_INTERVAL.total_seconds())
    except TimeoutError as exc:
        raise CommandError(
            f"no router has published {handed.letter.id} yet: check that one runs. "
            "The remaining dead letters were not retried"
        ) from exc


@asynccontextmanager
async def _opened(config: Path | None) -> AsyncIterator["Store"]:
    settings = read_client_settings(config)
    from chatlane.connections import store_of

    async with store_of(settings) as store:
        yield store


def _json(
    at: datetime | None,
    letter: "DeadRow",
    *,
    with_body: bool = False,
    written: "Sequence[TurnMessage]" = (),
    first_texts: Sequence[str] = (),
) -> str:
    fields = {name: value for name, value in letter._asdict().items() if value is not None}
    fields["digest"] = letter.digest.hex()
    fields["cause"] = cause_of(letter.reason)
    fields.pop("body", None)
    if at is not None:
        fields["at"] = at
    if with_body and letter.body is not None:
        fields["body_base64"] = base64.b64encode(letter.body).decode()
    if first_texts:
        fields["first_texts"] = first_texts
    if written:
        fields["messages"] = [
            message.model_dump(mode="json", exclude_none=True) for message in written
        ]
    return json_line(to_json(fields).decode())


def _no_such(letter_id: UUID) -> CommandError:
    text = f"there is no dead letter {letter_id}: `chatlane dead-letters list` lists them"
    return CommandError(text, exit_code=NOT_FOUND)


def _print_one(letter: "DeadRow") -> None:
    source = find_source(letter)
    facts = {
        "id": str(letter.id),
        "from": source.sender,
        "reason": f"{letter.reason} ({cause_of(letter.reason)})",
        "problem": source.problem,
        "stage": letter.stage,
        "position": None if letter.sequence is None else f"{letter.log or ''}#{letter.sequence}",
        "partition": None if letter.partition is None else str(letter.partition),
        "stored": letter.stored_at and local_time(letter.stored_at),
        "subject": letter.subject,
        "session": letter.session_id and str(letter.session_id),
        "digest": letter.digest.hex(),
        "bytes": str(letter.size_bytes),
    }
    console = open_console()
    console.print(fact_table(facts))
    if letter.body is not None:
        console.print("message body:", style="bold")
        console.print(plain(letter.body.decode(errors="backslashreplace")), soft_wrap=True)


def _print(letters: list[tuple[datetime, "DeadRow"]]) -> None:
    if not letters:
        typer.echo("there are no dead letters")
        return
    listed = table("id", "age", "reason", "from", "problem")
    for at, letter in letters:
        add_row(listed, [short_id(letter.id), age(at), letter.reason, *find_source(letter)])
    open_console().print(listed)


async def _read_announced(
    config: Path | None, limit: int, reason: DeadReason | None
) -> list[DeadLetter]:
    """Return the announced dead letters of a reason, newest first.

    Raises:
        CommandError: There is no stream DEAD.
    """
    from chatlane.nats.jetstream import JetStream

    async with open_nats(read_client_settings(config), "chatlane-cli") as client:
        jetstream = JetStream(client)
        state = await jetstream.find_stream(StreamName.DEAD)
        if state is None:
            raise CommandError("there is no stream DEAD: run `chatlane admin apply`")
        letters: list[DeadLetter] = []
        sequence = state.last_sequence
        while sequence >= max(state.first_sequence, 1) and len(letters) < limit:
            message = await jetstream.find_message(StreamName.DEAD, sequence)
            letter = None if message is None else _decoded(message.body)
            if letter is not None and reason in {None, letter.reason}:
                letters.append(letter)
            sequence -= 1
        return letters


def _decoded(body: bytes) -> DeadLetter | None:
    try:
        return decode(DeadLetter, body)
    except DecodeError:
        # A newer release announced it, with a reason that this release does not know.
        return None


def _print_announced(letters: Sequence[DeadLetter], *, as_json: bool) -> None:
    if as_json:
        print_json(letters)
        return
    if not letters:
        typer.echo("there are no dead letters")
        return
    listed = table("id", "age", "reason", "position", "problem")
    for letter in letters:
        position = "" if letter.sequence is None else f"{letter.log}#{letter.sequence}"
        letter_id = full_id(letter.id)
        shown_id = letter.id if letter_id is None else short_id(letter_id)
        add_row(listed, [shown_id, age(letter.at), letter.reason, position, letter.detail or ""])
    open_console().print(listed)
