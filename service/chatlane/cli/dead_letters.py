"""Commands on dead letters: look, try again, drop. They work on Postgres, where the bodies are."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer
from pydantic_core import to_json

from chatlane.cli.auditing import actor
from chatlane.cli.options import AsJson, Config, Limit, open_nats, read_client_settings, shown
from chatlane.cli.reporting import NOT_FOUND, REFUSED, CommandError
from chatlane.cli.terminal import fact_table, local_time, open_console, plain, table
from chatlane.domain.inert import json_line
from chatlane_schemas.dead import DeadReason, cause_of

if TYPE_CHECKING:
    from nats.aio.client import Client

    from chatlane.domain.effects import DeadRow, Publication
    from chatlane.routing.retrying import Handed, Retrying
    from chatlane.store.dead_letters import Tally
    from chatlane.store.pool import Store

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Look at messages that were set aside, let them come again, or drop them.\n\n"
    "These commands need the database account of the service. Fix the cause before you retry.",
)

_PUBLISHED_WITHIN: Final = timedelta(seconds=15)
_LOOK_EVERY: Final = timedelta(milliseconds=100)

Ids = Annotated[list[UUID] | None, typer.Argument(metavar="[ID]...", help="Ids of dead letters.")]
Reason = Annotated[DeadReason | None, typer.Option(help="All of this reason.", show_default=False)]
OldestFirst = Annotated[
    int, typer.Option("--limit", "-n", min=1, help="At most so many of a reason, the oldest first.")
]


@app.command("list")
def list_letters(
    config: Config = None,
    *,
    reason: Reason = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters with cause and age, the newest first, and count them by reason."""

    async def found() -> tuple[list[tuple[datetime, "DeadRow"]], list["Tally"]]:
        from chatlane.store import dead_letters

        async with _opened(config) as store, store.transaction() as connection:
            letters = await dead_letters.list_recent(connection, limit, reason=reason)
            return letters, await dead_letters.tally(connection)

    letters, tallies = asyncio.run(found())
    if as_json:
        for at, letter in letters:
            typer.echo(_json(at, letter))
        return
    _print(letters)
    for name, number, oldest in tallies:
        cause = cause_of(name)
        typer.echo(f"{number} {name} ({cause}), the oldest {shown(timedelta(seconds=oldest))} old")


@app.command()
def show(
    letter_id: Annotated[UUID, typer.Argument(metavar="ID", help="Id of the dead letter.")],
    config: Config = None,
    *,
    as_json: AsJson = False,
) -> None:
    """Show all of a dead letter, with what it said."""

    async def found() -> "DeadRow | None":
        from chatlane.store import audit, dead_letters

        async with _opened(config) as store, store.transaction() as connection:
            letter = await dead_letters.lock(connection, letter_id)
            if letter is not None:
                # Somebody reads what people wrote.
                detail = {"id": letter_id, "reason": letter.reason}
                await audit.write(
                    connection, "dead_letter_shown", None, detail, actor=actor(), outcome="done"
                )
            return letter

    letter = asyncio.run(found())
    if letter is None:
        raise _no_such(letter_id)
    if as_json:
        typer.echo(_json(None, letter, with_body=True))
        return
    _print_one(letter)


@app.command()
def retry(
    ids: Ids = None,
    config: Config = None,
    *,
    reason: Reason = None,
    limit: OldestFirst = 1000,
    out_of_order: Annotated[
        bool, typer.Option("--out-of-order", help="Also before an older one of its conversation.")
    ] = False,
) -> None:
    """Let dead letters come again, the oldest first.

    A message goes to the end of its log, after all that was said since; a failed turn is given
    to the workers again. Each is published before the next one is handed over. One that cannot
    come again, or not now, stays; it keeps no other conversation from it. Needs a running router.
    """

    async def retried() -> None:
        from chatlane.routing.retrying import NotRetriedError, Retrying

        stay = 0
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(_opened(config))
            settings = read_client_settings(config)
            client = await stack.enter_async_context(open_nats(settings, "chatlane-cli"))
            retrying = Retrying(
                store, partial(_publish, client), actor(), slots=settings.router.slots
            )
            chosen = await _chosen(store, ids, reason, limit)
            for letter_id in chosen:
                try:
                    handed = await retrying.retry(letter_id, out_of_order=out_of_order)
                except NotRetriedError as why:
                    stay += 1
                    typer.echo(f"{letter_id} stays: {why}", err=True)
                    continue
                await _until_published(retrying, handed)
                typer.echo(f"{letter_id} comes again")
        if stay:
            raise CommandError(f"{stay} of {len(chosen)} stay where they are", exit_code=REFUSED)

    asyncio.run(retried())


@app.command()
def drop(
    ids: Ids = None, config: Config = None, *, reason: Reason = None, limit: OldestFirst = 1000
) -> None:
    """Delete dead letters with what they said; an entry of the audit is left."""

    async def dropped() -> None:
        from chatlane.routing.retrying import Retrying

        async with _opened(config) as store:
            # To drop one nothing is published.
            retrying = Retrying(store, _refuse, actor())
            for letter_id in await _chosen(store, ids, reason, limit):
                await retrying.drop(letter_id)
                typer.echo(f"{letter_id} is dropped")

    asyncio.run(dropped())


async def _chosen(
    store: "Store", ids: list[UUID] | None, reason: DeadReason | None, limit: int
) -> list[UUID]:
    """Return the letters in the order in which their messages came."""
    from chatlane.store import dead_letters

    if bool(ids) == (reason is not None):
        raise typer.BadParameter(
            "name either ids or a reason: `chatlane dead-letters list` shows both"
        )
    async with store.transaction() as connection:
        if reason is not None:
            letters = await dead_letters.list_oldest(connection, reason, limit)
        else:
            asked = [await dead_letters.lock(connection, one) for one in sorted(set(ids or ()))]
            letters = [letter for letter in asked if letter is not None]
            if missing := set(ids or ()) - {letter.id for letter in letters}:
                raise _no_such(min(missing))
    oldest = datetime.min.replace(tzinfo=UTC)
    if not letters:
        typer.echo(f"there are no dead letters of reason {reason}")
    letters.sort(key=lambda one: (one.stored_at or oldest, one.log or "", one.sequence or 0))
    return [letter.id for letter in letters]


async def _publish(client: "Client", row: "Publication") -> None:
    import nats.errors

    headers = {"Nats-Msg-Id": row.message_id}
    try:
        await client.jetstream().publish(row.subject, row.payload, timeout=5, headers=headers)
    except (nats.errors.Error, TimeoutError) as exc:
        raise CommandError(
            f"{row.stream} did not confirm it ({type(exc).__name__}): may you publish there?"
        ) from exc


async def _refuse(_: "Publication") -> None:
    raise AssertionError("dropping publishes nothing")


async def _until_published(retrying: "Retrying", handed: "Handed") -> None:
    try:
        async with asyncio.timeout(_PUBLISHED_WITHIN.total_seconds()):
            # Only the database knows, and it tells nobody.
            while not await retrying.is_published(handed):  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_EVERY.total_seconds())
    except TimeoutError as exc:
        raise CommandError(
            f"{handed.letter.id} is handed over, but no router has published it yet: is one "
            "running? The others stay where they are"
        ) from exc


@asynccontextmanager
async def _opened(config: Path | None) -> AsyncIterator["Store"]:
    settings = read_client_settings(config)
    from chatlane.surroundings import store_of

    async with store_of(settings) as store:
        yield store


def _json(at: datetime | None, letter: "DeadRow", *, with_body: bool = False) -> str:
    fields = {name: value for name, value in letter._asdict().items() if value is not None}
    fields["digest"] = letter.digest.hex()
    fields["cause"] = cause_of(letter.reason)
    fields.pop("body", None)
    if at is not None:
        fields["at"] = at
    if with_body and letter.body is not None:
        fields["body_base64"] = base64.b64encode(letter.body).decode()
    return json_line(to_json(fields).decode())


def _no_such(letter_id: UUID) -> CommandError:
    text = f"there is no dead letter {letter_id}: `chatlane dead-letters list` shows them"
    return CommandError(text, exit_code=NOT_FOUND)


def _print_one(letter: "DeadRow") -> None:
    facts = {
        "id": str(letter.id),
        "reason": f"{letter.reason} ({cause_of(letter.reason)})",
        "detail": letter.detail,
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
        console.print("what it said:", style="bold")
        console.print(plain(letter.body.decode(errors="backslashreplace")), soft_wrap=True)


def _print(letters: list[tuple[datetime, "DeadRow"]]) -> None:
    if not letters:
        typer.echo("there are no dead letters")
        return
    listed = table("id", "age", "cause", "stage", "reason", "position", "bytes", "detail")
    for at, letter in letters:
        position = "" if letter.sequence is None else f"{letter.log or ''}#{letter.sequence}"
        listed.add_row(
            str(letter.id),
            shown(max(timedelta(0), datetime.now(UTC) - at)),
            cause_of(letter.reason),
            letter.stage,
            letter.reason,
            position,
            str(letter.size_bytes),
            plain(letter.detail),
        )
    open_console().print(listed)
