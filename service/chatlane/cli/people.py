"""`chatlane people`: export and erase the data of one person, and correct identities."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Final
from uuid import UUID

import typer
from pydantic_core import to_json

from chatlane.cli.sessions.filters import person_named
from chatlane.cli.shared.audit import audited
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import (
    AsJson,
    Config,
    Limit,
    duration_option,
    open_nats,
    open_patient_store,
    read_settings,
    run_async,
)
from chatlane.cli.shared.terminal import add_row, age, local_time, open_console, short_id, table
from chatlane.domain.prompts.sanitize import json_line
from chatlane_schemas.session_api.people import Person

if TYPE_CHECKING:
    from chatlane.config.settings import Settings
    from chatlane.domain.addressing.owners import Identity
    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.postgres.pool import Store
    from chatlane.privacy.erasure import Erased
    from chatlane.privacy.stream_erasure import StreamErasure

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Export or erase the data of one person, and correct who an id belongs to.\n\n"
    "Needs the database, and NATS with the permissions of an `eraser`.",
)

_PATIENCE: Final = timedelta(seconds=30)
_TRIED_AGAIN_AFTER: Final = timedelta(minutes=10)
# More conflicts than this in a row mean that the id is in constant use.
_MAX_CONFLICT_RETRIES: Final = 5

Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Let the NATS server overwrite each message on disk at once, which takes some "
        "milliseconds per message; by default it does so when it compacts a file.",
    ),
]


def _person_given(text: str) -> Person:
    """Return the person of an argument, or of the first line of standard input.

    Standard input keeps the id out of the process list, which other users can read, and out of the
    shell history.
    """
    return person_named(sys.stdin.readline().strip() if text == "-" else text)


ThePerson = Annotated[
    Person,
    typer.Argument(
        parser=_person_given,
        metavar="PLATFORM/ACCOUNT/ID",
        help="An id of the person, as in events; `-` reads it from standard input.",
    ),
]
TheChat = Annotated[
    Person,
    typer.Argument(
        parser=_person_given,
        metavar="PLATFORM/ACCOUNT/CHAT",
        help="New id of the chat, as in events; `-` reads it from standard input.",
    ),
]
Scope = Annotated[
    str | None, typer.Option(help="Workspace or guild of the id, on platforms that have them.")
]
At = Annotated[
    datetime | None,
    typer.Option(
        metavar="TIME",
        formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"],
        help="A time in UTC at which the id belonged to the person, if it has another owner now.",
    ),
]
ThisAccount = Annotated[
    bool,
    typer.Option(
        "--this-account",
        help="Change this account only: the platform gives people another id for each account.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="File to write; by default standard output."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Patience = Annotated[
    timedelta,
    typer.Option(
        parser=duration_option,
        metavar="DURATION",
        show_default="30s",
        help="How long to wait for routers, running turns and pending publishes.",
    ),
]


@dataclass(frozen=True, slots=True)
class _Opened:
    """The connections and keys of these commands."""

    settings: "Settings"
    store: "Store"
    streams: "StreamErasure"
    key: "ErasureKey | None"

    def get_key(self) -> "ErasureKey":
        """Return the key of the erasure list.

        Raises:
            CommandError: It is not set.
        """
        if self.key is None:
            raise CommandError(
                "erasure.key is missing: set CHATLANE_ERASURE__KEY (or a file of that name in "
                "CHATLANE_SECRETS_DIR) to the secret that the routers use"
            )
        return self.key


@dataclass(frozen=True, slots=True)
class _How:
    """Options of an erasure."""

    patience: timedelta
    overwrite: bool


@asynccontextmanager
async def _opened(config: Path | None) -> AsyncIterator[_Opened]:
    settings = read_settings(config)
    from chatlane.privacy.stream_erasure import StreamErasure

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_patient_store(settings))
        client = await stack.enter_async_context(open_nats(settings, "chatlane-eraser"))
        yield _Opened(settings, store, StreamErasure(client), settings.erasure_key())


def _where(person: Person) -> dict[str, object]:
    """Return the audited place of a person, without the id: it may be erased later."""
    return {"platform": person.platform, "account": person.account}


def _time(at: datetime | None) -> datetime | None:
    return None if at is None else at.replace(tzinfo=UTC)


def _say(text: str) -> None:
    typer.echo(text, err=True)


@app.command()
def erase(
    person: ThePerson,
    config: Config = None,
    *,
    scope: Scope = None,
    at: At = None,
    yes: Yes = False,
    overwrite: Overwrite = False,
    patience: Patience = _PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Delete all data of one person in the database and in all streams. Cannot be undone.

    Deletes the sessions of the person. In shared sessions it blanks their messages and the
    answers to them. Their next message opens a new conversation. After an interruption run the
    command again: it continues. Exits with 1 if data is left.
    """
    whom = person.model_copy(update={"scope": scope})
    if not yes:
        typer.confirm(
            f"Delete all data of {person.platform}/{person.account}/{person.id} for good?",
            abort=True,
        )
    how = _How(patience, overwrite=overwrite)

    async def erased_whom() -> "Erased":
        async with _opened(config) as opened:
            return await _erase_one(opened, whom, how, at=_time(at))

    erased = asyncio.run(erased_whom())
    _print_receipt(erased, as_json=as_json)
    if erased.left:
        left = ", ".join(f"{count} {store}" for store, count in erased.left.items())
        raise CommandError(f"data is left: {left}; run the command again")


async def _erase_one(
    opened: _Opened,
    person: Person,
    how: _How,
    *,
    until: datetime | None = None,
    at: datetime | None = None,
    since: datetime | None = None,
    request_id: UUID | None = None,
) -> "Erased":
    from chatlane.privacy.erasure import Erasing

    platform = opened.settings.catalog().platforms.get(person.platform)
    account = platform.accounts.get(person.account) if platform else None
    erasing = Erasing(
        opened.store,
        opened.streams,
        opened.get_key(),
        own_ids=account.own_ids if account else frozenset(),
        on_progress=_say,
        patience=how.patience,
        overwrite=how.overwrite,
    )
    where = _where(person)
    if request_id is not None:
        where["request"] = request_id
    async with audited(opened.store, "people erase", where) as details:
        erased = await erasing.erase(person, until, at=at, since=since)
        details["erasure"] = erased.id
        if erased.left:
            details["outcome"] = "left"
    return erased


@app.command("erase-requested")
@run_async
async def erase_requested(
    config: Config = None,
    *,
    every: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            help="Stay, and look for requests this often; by default look once.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    patience: Patience = _PATIENCE,
) -> None:
    """Erase the people whose erasure was requested, in the console or over the API.

    A request whose erasure does not end stays open: its problem is kept, and it is tried again after
    ten minutes. Exits with 1 in that case, unless it stays.
    """
    how = _How(patience, overwrite=overwrite)
    async with _opened(config) as opened:
        opened.get_key()
        failed = await _erase_requested(opened, how)
        while every is not None:
            await asyncio.sleep(every.total_seconds())
            await _erase_requested(opened, how)
    if failed:
        raise CommandError(f"{failed} requested erasures did not end; run the command again")


async def _erase_requested(opened: _Opened, how: _How) -> int:
    """Erase all people whose erasure is requested; return how many erasures did not end."""
    from chatlane.errors import PermanentError, TransientError
    from chatlane.privacy import erasure_requests_sql
    from chatlane.privacy.erasure import NotErasedError

    failed = 0
    while True:
        async with opened.store.transaction() as connection:
            requested = await erasure_requests_sql.take(connection, _TRIED_AGAIN_AFTER)
        if requested is None:
            return failed
        try:
            erased = await _erase_one(opened, requested.person, how, request_id=requested.id)
            if erased.left:
                raise NotErasedError(f"left: {', '.join(erased.left)}")
        except (PermanentError, TransientError) as error:
            failed += 1
            async with opened.store.transaction() as connection:
                await erasure_requests_sql.fail(connection, requested.id, str(error))
            _say(f"request {requested.id}: {error}")
            continue
        deleted = {store: receipt.deleted for store, receipt in erased.receipt.items()}
        async with opened.store.transaction() as connection:
            await erasure_requests_sql.finish(connection, requested.id, erased.id, deleted)
        _say(f"request {requested.id}: erased")


@app.command()
@run_async
async def export(
    person: ThePerson,
    config: Config = None,
    *,
    scope: Scope = None,
    at: At = None,
    output: Output = None,
) -> None:
    """Write all data of one person as JSON Lines.

    One record per line; its field `record` names its kind. Files are named, not copied. The
    last line is of kind `end`: without it the file is not complete.
    """
    from chatlane.privacy.export import Export
    from chatlane.privacy.person_data import Finder

    whom = person.model_copy(update={"scope": scope})
    count = 0
    with _open_output(output) as written:
        async with (
            _opened(config) as opened,
            audited(opened.store, "people export", _where(whom)) as details,
        ):
            finder = Finder(opened.store.transaction, opened.streams)
            async for record in Export(opened.store, finder).run(whom, _time(at)):
                written.write(json_line(record.model_dump_json(exclude_none=True)) + "\n")
                count += 1
            details["records"] = count


@contextmanager
def _open_output(path: Path | None) -> Iterator[IO[str]]:
    """Open a file that only its owner may read, or standard output."""
    if path is None:
        yield sys.stdout
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        yield opened


@app.command()
@run_async
async def show(
    person: ThePerson,
    config: Config = None,
    *,
    scope: Scope = None,
    at: At = None,
    as_json: AsJson = False,
) -> None:
    """Show the identity of an id, and the ids of that identity over time."""
    from chatlane.store.addressing import identities

    whom = person.model_copy(update={"scope": scope})
    async with (
        open_patient_store(read_settings(config)) as store,
        audited(store, "people show", _where(whom)),
        store.transaction() as connection,
    ):
        identity = await identities.find(connection, whom, _time(at))
    if identity is None:
        raise CommandError("this is the id of no person")
    _print_identity(identity, as_json=as_json)


@app.command("hand-over")
def hand_over(
    person: ThePerson,
    config: Config = None,
    *,
    scope: Scope = None,
    this_account: ThisAccount = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give an id to another person from now on.

    For platforms that do not report it. Earlier messages stay with the former owner; the next
    message opens a new conversation. The change applies to all accounts of the platform. Run the
    command for each id that changed its owner.
    """
    whom = person.model_copy(update={"scope": scope})
    if not yes:
        typer.confirm(f"Does {whom.id} belong to another person from now on?", abort=True)
    identity = _change(config, whom, "people hand-over", this_account=this_account)
    if identity is None:
        raise CommandError("this is the id of no person")
    _print_identity(identity, as_json=as_json)


@app.command()
def split(
    person: ThePerson,
    config: Config = None,
    *,
    scope: Scope = None,
    this_account: ThisAccount = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Separate an id from an identity that it was wrongly merged into.

    Its owner gets back the messages from before the merge. Later messages stay with the other
    identity, and the two are not merged again. The change applies to all accounts of the platform.
    """
    whom = person.model_copy(update={"scope": scope})
    if not yes:
        typer.confirm(f"Does {whom.id} belong to a person of its own?", abort=True)
    identity = _change(config, whom, "people split", this_account=this_account)
    if identity is None:
        raise CommandError(
            "nothing to split: the identity has no other id, or is named after this one"
        )
    _print_identity(identity, as_json=as_json)


@app.command("split-chat")
def split_chat(
    chat: TheChat, config: Config = None, *, scope: Scope = None, yes: Yes = False
) -> None:
    """Undo that a chat got a new id; give the new id.

    The next message under the new id opens a new conversation. Earlier messages under
    both ids stay with the old chat.
    """
    whom = chat.model_copy(update={"scope": scope})
    if not yes:
        typer.confirm(f"Is {whom.id} a chat of its own?", abort=True)
    if not _split_chat(config, whom):
        raise CommandError("nothing to split: no other chat got this id")
    typer.echo(f"{whom.id} is a chat of its own")


@run_async
async def _split_chat(config: Path | None, chat: Person) -> bool:
    from chatlane.domain.addressing.alias_rows import chat_alias
    from chatlane.store.addressing import aliases

    async with (
        _opened(config) as opened,
        audited(opened.store, "people split-chat", _where(chat)) as details,
    ):
        async with opened.store.transaction() as connection:
            is_split = await aliases.split_chat(
                connection, chat.platform, chat.account, chat_alias(chat.id, chat.scope)
            )
        details["outcome"] = "changed" if is_split else "unchanged"
    return is_split


@run_async
async def _change(
    config: Path | None, person: Person, action: str, *, this_account: bool
) -> "Identity | None":
    from chatlane.errors import SupersededError
    from chatlane.store.addressing import identities

    change = identities.split if action == "people split" else identities.hand_over
    async with _opened(config) as opened, audited(opened.store, action, _where(person)) as details:
        platform = opened.settings.catalog().platforms.get(person.platform)
        accounts = None if this_account else platform.accounts if platform else ()
        for _ in range(_MAX_CONFLICT_RETRIES):
            at = await opened.streams.clock()
            try:
                async with opened.store.transaction() as connection:
                    identity = await change(connection, person, at, accounts)
            except SupersededError:
                continue
            details["outcome"] = "unchanged" if identity is None else "changed"
            return identity
    raise CommandError("routers keep changing this identity; try again")


def _print_identity(identity: "Identity", *, as_json: bool) -> None:
    if as_json:
        spans = [span._asdict() for span in identity.spans]
        shown = {"identity": identity.name, "names": sorted(identity.names), "ids": spans}
        typer.echo(json_line(to_json(shown).decode()))
        return
    typer.echo(f"identity {identity.name}")
    if merged := sorted(identity.names - {identity.name}):
        typer.echo(f"merged with {', '.join(merged)}")
    listed = table("since", "until", "id")
    for span in identity.spans:
        since = local_time(span.since) if span.since else "always"
        add_row(listed, [since, local_time(span.until) if span.until else "now", span.form])
    open_console().print(listed)


@app.command("replay-erasures")
@run_async
async def replay_erasures(
    listed: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            exists=True,
            dir_okay=False,
            help="Output of `erasure-list`; by default the list in the database.",
            show_default=False,
        ),
    ] = None,
    config: Config = None,
    *,
    overwrite: Overwrite = False,
    patience: Patience = _PATIENCE,
    as_json: AsJson = False,
) -> None:
    """Erase again the people whose data a restored backup has brought back.

    Run it before the first router starts. The list holds keyed digests of people, and the time
    up to which each was erased.
    """
    exported = listed.read_text("utf-8").splitlines() if listed is not None else []
    how = _How(patience, overwrite=overwrite)
    from chatlane.privacy import erasure_list_sql
    from chatlane.privacy.erasure_replay import Replay

    async with _opened(config) as opened:
        try:
            known = [erasure_list_sql.parsed_line(line) for line in exported]
        except ValueError as exc:
            raise CommandError(f"the file is no erasure list: {exc}") from exc
        async with opened.store.transaction() as connection:
            await erasure_list_sql.restore_list(connection, known)
        found = await Replay(opened.store, opened.streams, opened.get_key()).find()
        async with audited(opened.store, "people replay-erasures", {"found": len(found)}):
            for erasure in found:
                # The id may belong to another person again, or for the first time.
                at = erasure.until if erasure.since is not None or erasure.is_past else None
                erased = await _erase_one(
                    opened, erasure.person, how, until=erasure.until, at=at, since=erasure.since
                )
                _print_receipt(erased, as_json=as_json)
                if erased.left:
                    raise CommandError("data is left; run the command again")
    _say(f"found and erased {len(found)} people of the list")


@app.command("erasure-list")
@run_async
async def erasure_list(config: Config = None, *, output: Output = None) -> None:
    """Write the erasure list, one JSON object per line. Store it with your backups.

    It holds keyed digests of people, and positions of deleted messages in streams. After the
    restore of an older backup, `replay-erasures` reads it and erases these people again, and
    routers do not report the positions as lost messages.
    """
    from chatlane.privacy import erasure_list_sql

    with _open_output(output) as written:
        async with open_patient_store(read_settings(config)) as store:
            async for line in erasure_list_sql.walk_list(store.transaction):
                written.write(f"{line.text()}\n")


@app.command()
@run_async
async def erasures(config: Config = None, *, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List erasures, newest first, with the number of deleted records."""
    from chatlane.privacy import erasure_list_sql
    from chatlane.privacy.erasure import Erased

    async with (
        open_patient_store(read_settings(config)) as store,
        store.transaction() as connection,
    ):
        recent = [
            (erasure, Erased(erasure.id, erasure.until, receipts))
            for erasure in await erasure_list_sql.recent(connection, limit)
            for receipts in [await erasure_list_sql.receipts(connection, erasure.id)]
        ]
    listed = table("id", "age", "deleted", "up to", "finished")
    for stored, erased in recent:
        if as_json:
            times = {"begun_at": stored.begun_at, "finished_at": stored.finished_at}
            typer.echo(json_line(to_json({**_receipt(erased), **times}).decode()))
            continue
        deleted = str(sum(receipt.deleted for receipt in erased.receipt.values()))
        finished = local_time(stored.finished_at) if stored.finished_at else "no: run it again"
        until = local_time(stored.until)
        add_row(listed, [short_id(stored.id), age(stored.begun_at), deleted, until, finished])
    if not as_json:
        open_console().print(listed)


def _receipt(erased: "Erased") -> dict[str, object]:
    return {
        "erasure": erased.id,
        "until": erased.until,
        "left": dict(erased.left),
        "receipt": {
            store_receipt.store: {"deleted": store_receipt.deleted, "ids": store_receipt.ids}
            for store_receipt in erased.receipt.values()
        },
    }


def _print_receipt(erased: "Erased", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_line(to_json(_receipt(erased)).decode()))
        return
    listed = table("store", "deleted")
    for store_receipt in erased.receipt.values():
        listed.add_row(store_receipt.store, str(store_receipt.deleted))
    open_console().print(listed)
    typer.echo(f"erasure {erased.id}, up to {erased.until.isoformat()}")
