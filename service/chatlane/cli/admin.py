"""`chatlane admin`: tables, streams, durables and NATS users."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.shared.audit import audited
from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import (
    Config,
    duration_option,
    open_nats,
    open_patient_store,
    read_settings,
    run_async,
)
from chatlane.errors import SchemaMismatchError, StoreUnavailableError, TransientError

if TYPE_CHECKING:
    from chatlane.config.settings import Settings
    from chatlane.postgres.grants import Roles

_LOOK_AGAIN: Final = timedelta(seconds=1)

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Create and check what routers need: tables, streams, durables and NATS users.\n\n"
    "Run `migrate` and `apply` before the first router, after an upgrade and after a change of "
    "chatlane.toml. Both may run at any time, also repeatedly.",
)


Wait = Annotated[
    timedelta | None,
    typer.Option(
        "--wait",
        parser=duration_option,
        metavar="DURATION",
        help="How long to wait for the servers; by default a missing server is an error.",
    ),
]


async def _until_ready(look: Callable[[], Awaitable[None]], wait: timedelta) -> None:
    """Call `look` until it raises no error; raise its error after the wait."""
    deadline = monotonic() + wait.total_seconds()
    reason = ""
    while True:
        try:
            await look()
        except (TransientError, SchemaMismatchError, CommandError) as exc:
            if monotonic() >= deadline:
                raise
            if reason != (reason := str(exc)):
                typer.echo(f"waiting: {reason}", err=True)
            await asyncio.sleep(_LOOK_AGAIN.total_seconds())
        else:
            return


@app.command()
@run_async
async def migrate(config: Config = None, *, wait: Wait = None) -> None:
    """Migrate the tables in Postgres to this release."""
    settings = read_settings(config)
    from chatlane.connections import store_of
    from chatlane.postgres.migrations import known_versions
    from chatlane.postgres.migrations import migrate as run_migrations

    async def connect() -> None:
        async with store_of(settings) as store, store.transaction():
            pass

    if wait is not None:
        await _until_ready(connect, wait)
    version = known_versions()[-1]
    # Before the first migration there is no audit table.
    if not await _is_audited(settings):
        await run_migrations(settings.postgres.address())
    async with store_of(settings) as store, audited(store, "admin migrate") as details:
        details["version"] = version
        await run_migrations(settings.postgres.address())
    typer.echo(f"the tables are at migration {version}")


async def _is_audited(settings: "Settings") -> bool:
    from chatlane.connections import store_of
    from chatlane.postgres.migrations import has_audit

    try:
        async with store_of(settings) as store, store.transaction() as connection:
            return await has_audit(connection)
    except StoreUnavailableError:
        # The migration reports the reason.
        return False


@app.command()
@run_async
async def grants(
    config: Config = None,
    *,
    do_apply: Annotated[
        bool, typer.Option("--apply", help="Run the SQL as the owner, whom postgres.dsn names.")
    ] = False,
    application: Annotated[
        str, typer.Option(metavar="ROLE", help="Role of routers and most commands.")
    ] = "chatlane_application",
    retention: Annotated[
        str, typer.Option(metavar="ROLE", help="Role of commands that delete by age or on request.")
    ] = "chatlane_retention",
    reader: Annotated[
        str, typer.Option(metavar="ROLE", help="Role of people who read, without message content.")
    ] = "chatlane_reader",
) -> None:
    """Print or run the SQL that grants each database role exactly the rights it needs.

    The roles are groups: make each login role a member of one. The SQL revokes all other
    rights, also from PUBLIC. Run it again after every `migrate`.
    """
    from chatlane.postgres.grants import Roles, script

    try:
        roles = Roles(application, retention, reader)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if not do_apply:
        typer.echo(script(roles), nl=False)
        return
    if left := await _grant(read_settings(config), roles):
        # The rest needs the owner of the database or of the schema.
        raise CommandError("\n".join(left))
    typer.echo("each role has exactly its rights")


async def _grant(settings: "Settings", roles: "Roles") -> list[str]:
    from chatlane.connections import store_of
    from chatlane.postgres.grants import grant
    from chatlane.postgres.migrations import verify_schema

    try:
        async with store_of(settings) as store:
            async with store.transaction() as connection:
                await verify_schema(connection)
            async with audited(store, "admin grants"), store.transaction() as connection:
                return await grant(connection, roles)
    except StoreUnavailableError as exc:
        if not exc.is_forbidden:
            raise
        raise CommandError(
            "the user of postgres.dsn may not grant rights: use the owner of the tables; if that "
            "one may not create roles, let an administrator create them first"
        ) from exc


@app.command()
@run_async
async def apply(config: Config = None, *, wait: Wait = None) -> None:
    """Create and update the streams and durables that chatlane.toml declares.

    `--wait` also waits for the tables of this release. Never deletes anything. What only a new stream could change, such as the number of
    partitions, stays as it is and is reported; then the exit code is 1.
    """
    settings = read_settings(config)
    from chatlane.connections import declared_topology, store_of
    from chatlane.nats import topology
    from chatlane.nats.jetstream import JetStream
    from chatlane.postgres.migrations import verify_schema

    async def look() -> None:
        async with store_of(settings) as store, store.transaction() as connection:
            await verify_schema(connection)
        async with open_nats(settings, "chatlane-admin"):
            pass

    if wait is not None:
        await _until_ready(look, wait)
    declared = declared_topology(settings)
    async with (
        open_nats(settings, "chatlane-admin") as client,
        store_of(settings) as store,
        audited(store, "admin apply") as details,
    ):
        jetstream = JetStream(client)
        details["done"] = done = await topology.apply(
            jetstream, declared.streams, declared.durables
        )
        for sentence in done:
            typer.echo(sentence)
        found = await topology.verify(jetstream, declared.streams, declared.durables)
    if found:
        raise SchemaMismatchError(tuple(found))
    typer.echo("everything is as declared")


@app.command()
@run_async
async def verify(config: Config = None) -> None:
    """Compare tables, streams and durables with this release and chatlane.toml.

    Changes nothing. Exits with 1 if something differs.
    """
    settings = read_settings(config)
    from chatlane.connections import declared_topology, store_of
    from chatlane.nats import topology
    from chatlane.nats.jetstream import JetStream
    from chatlane.postgres.migrations import verify_schema

    declared = declared_topology(settings)
    found: list[str] = []
    async with store_of(settings) as store, store.transaction() as connection:
        try:
            await verify_schema(connection)
        except SchemaMismatchError as exc:
            found += exc.differences
    async with open_nats(settings, "chatlane-admin") as client:
        jetstream = JetStream(client)
        found += await topology.verify(jetstream, declared.streams, declared.durables)
    if found:
        raise SchemaMismatchError(tuple(found))
    typer.echo("everything is as declared")


@app.command()
@run_async
async def retain(config: Config = None) -> None:
    """Delete old data, as `[retention]` in chatlane.toml says.

    Run it every day. It deletes in small batches, so that routers can run meanwhile. Routers
    delete their own short-lived data.
    """
    settings = read_settings(config)
    retention = settings.retention
    from chatlane.privacy.row_retention import Ages, Retaining

    ages = Ages(
        retention.sessions, retention.archive, retention.revisions, retention.turns, retention.audit
    )

    async with open_patient_store(settings) as store, audited(store, "admin retain") as details:
        done = dict(await Retaining(store, ages).run())
        details["deleted"] = done
    for table, count in done.items():
        typer.echo(f"{count} {table}")


Users = Annotated[
    Path,
    typer.Argument(metavar="USERS", help="Reviewed file of users, such as deploy/nats/users.toml."),
]


@app.command()
def nats_keys(
    users: Users,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", help="Directory of the keys.")
    ],
) -> None:
    """Create a key pair for every NATS user that has none.

    The seed of `production/router` is in DIR/production/router.nk, readable by its owner only.
    Give it only to the process that connects as this user (nats.nkey_seed_file). The public
    key is in router.pub and is printed; copy it into the reviewed file.
    """
    from chatlane.config.nats_users import make_keys, read_users

    for place, key in make_keys(read_users(users), directory).items():
        typer.echo(f"{place} {key}")


@app.command()
def nats_config(
    users: Users,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="File to write; by default standard output."
        ),
    ] = None,
    *,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="DIR",
            help="Use the public keys that `nats-keys` wrote to DIR, not those of the file.",
        ),
    ] = None,
    day: Annotated[
        datetime | None,
        typer.Option(
            "--on",
            metavar="DATE",
            formats=["%Y-%m-%d"],
            show_default="today",
            help="Include the users who may connect on this day, in UTC.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Write nothing; exit with 1 if FILE is out of date."),
    ] = False,
) -> None:
    """Write the part of a nats-server configuration with accounts, users and permissions.

    It also names the certificate. `include` it in the configuration of every server and reload
    them (SIGHUP), twice for a new user. The reload disconnects users whom you removed or whose
    `until` has passed.
    """
    from chatlane.config.nats_users import read_public_keys, read_users, server_config

    declared = read_users(users)
    if keys is not None:
        declared = declared.with_keys(read_public_keys(declared, keys))
    text = server_config(declared, (day or datetime.now(UTC)).date())
    if check:
        if output is None:
            raise typer.BadParameter("--check needs --output, the file to compare")
        if not output.exists() or output.read_text("utf-8") != text:
            raise CommandError(
                f"{output} is out of date with {users}: write it again and reload the servers"
            )
        typer.echo(f"{output} is up to date with {users}")
    elif output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")
