"""Commands of the administration job: tables, streams and durables, and who may use NATS."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from chatlane.cli.auditing import audited
from chatlane.cli.options import (
    Config,
    open_nats,
    open_patient_store,
    read_settings,
)
from chatlane.cli.reporting import CommandError
from chatlane.errors import SchemaMismatchError, StoreUnavailableError

if TYPE_CHECKING:
    from chatlane.settings import Settings
    from chatlane.store.grants import Roles

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Make and check what routers need: tables, streams and durables, users of NATS.\n\n"
    "Run `migrate` and `apply` before the first router, and again after an "
    "upgrade or a change of chatlane.toml. Both may run at any time and more than once.",
)


@app.command()
def migrate(config: Config = None) -> None:
    """Bring the tables in Postgres to this release."""
    settings = read_settings(config)
    from chatlane.store.migrations import known_versions
    from chatlane.store.migrations import migrate as run_migrations
    from chatlane.surroundings import store_of

    version = known_versions()[-1]

    async def migrated() -> None:
        # The first time there is no table to write it to before.
        if not await _is_audited(settings):
            await run_migrations(settings.postgres.address())
        async with store_of(settings) as store, audited(store, "admin migrate") as told:
            told["version"] = version
            await run_migrations(settings.postgres.address())

    asyncio.run(migrated())
    typer.echo(f"the tables are at migration {version}")


async def _is_audited(settings: "Settings") -> bool:
    from chatlane.store.migrations import has_audit
    from chatlane.surroundings import store_of

    try:
        async with store_of(settings) as store, store.transaction() as connection:
            return await has_audit(connection)
    except StoreUnavailableError:
        # The runner says better why.
        return False


@app.command()
def grants(
    config: Config = None,
    *,
    do_apply: Annotated[
        bool, typer.Option("--apply", help="Run it, as the owner that postgres.dsn names.")
    ] = False,
    application: Annotated[
        str, typer.Option(metavar="ROLE", help="Of routers and the other commands.")
    ] = "chatlane_application",
    retention: Annotated[
        str, typer.Option(metavar="ROLE", help="Of what deletes because of age or on request.")
    ] = "chatlane_retention",
    reader: Annotated[
        str, typer.Option(metavar="ROLE", help="Of people who look, and see no content.")
    ] = "chatlane_reader",
) -> None:
    """Print, or run, the SQL that gives each role of the database exactly the rights it needs.

    The roles are groups: make whoever logs in a member of one. What is not listed is taken
    away, from everybody else, too. Run it again after every `migrate`.
    """
    from chatlane.store.grants import Roles, script

    try:
        roles = Roles(application, retention, reader)
    except ValueError as exc:
        raise typer.BadParameter(str(exc)) from exc
    if not do_apply:
        typer.echo(script(roles), nl=False)
        return
    if left := asyncio.run(_grant(read_settings(config), roles)):
        # Done as far as it goes: this is for whoever owns the database, or the schema.
        raise CommandError("\n".join(left))
    typer.echo("the roles have their rights, and nobody else has any")


async def _grant(settings: "Settings", roles: "Roles") -> list[str]:
    from chatlane.store.grants import grant
    from chatlane.store.migrations import verify_schema
    from chatlane.surroundings import store_of

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
            "whom postgres.dsn names may not do that: take the owner of the tables; where it may not "
            "make roles, somebody who may makes them first"
        ) from exc


@app.command()
def apply(config: Config = None) -> None:
    """Create and update the streams and durables that chatlane.toml calls for.

    Never deletes anything. What only a new stream could change, such as the number of
    partitions, stays as it is and is reported; then the exit code is 1.
    """
    settings = read_settings(config)
    from chatlane.bus import topology
    from chatlane.bus.jetstream import JetStream
    from chatlane.surroundings import declared_topology, store_of

    declared = declared_topology(settings)

    async def applied() -> list[str]:
        async with (
            open_nats(settings, "chatlane-admin") as client,
            store_of(settings) as store,
            audited(store, "admin apply") as told,
        ):
            jetstream = JetStream(client)
            done = await topology.apply(jetstream, declared.streams, declared.durables)
            told["done"] = done
            for sentence in done:
                typer.echo(sentence)
            return await topology.verify(jetstream, declared.streams, declared.durables)

    if found := asyncio.run(applied()):
        raise SchemaMismatchError(tuple(found))
    typer.echo("everything is as declared")


@app.command()
def verify(config: Config = None) -> None:
    """Compare tables, streams and durables with what this release and chatlane.toml need.

    Changes nothing; exits with 1 where something differs.
    """
    settings = read_settings(config)
    from chatlane.bus import topology
    from chatlane.bus.jetstream import JetStream
    from chatlane.store.migrations import verify_schema
    from chatlane.surroundings import declared_topology, store_of

    declared = declared_topology(settings)

    async def differences() -> tuple[str, ...]:
        found: list[str] = []
        async with store_of(settings) as store, store.transaction() as connection:
            try:
                await verify_schema(connection)
            except SchemaMismatchError as exc:
                found += exc.differences
        async with open_nats(settings, "chatlane-admin") as client:
            jetstream = JetStream(client)
            found += await topology.verify(jetstream, declared.streams, declared.durables)
        return tuple(found)

    if found := asyncio.run(differences()):
        raise SchemaMismatchError(found)
    typer.echo("everything is as declared")


@app.command()
def retain(config: Config = None) -> None:
    """Delete what was kept long enough, as `[retention]` in chatlane.toml says.

    In small pieces beside the traffic; run it every day. Routers delete by themselves what they
    only need for a while.
    """
    settings = read_settings(config)
    its = settings.retention
    from chatlane.routing.retaining import Ages, Retaining

    ages = Ages(its.sessions, its.archive, its.revisions, its.turns, its.audit)

    async def retained() -> dict[str, int]:
        async with open_patient_store(settings) as store, audited(store, "admin retain") as told:
            done = dict(await Retaining(store, ages).run())
            told["deleted"] = done
            return done

    for table, count in asyncio.run(retained()).items():
        typer.echo(f"{count} {table}")


Users = Annotated[
    Path, typer.Argument(metavar="USERS", help="The reviewed file, such as deploy/nats/users.toml.")
]


@app.command()
def nats_keys(
    users: Users,
    directory: Annotated[
        Path, typer.Option("--directory", "-d", metavar="DIR", help="Where keys are and go.")
    ],
) -> None:
    """Make a pair of keys for every user of NATS that has none yet.

    The seed of `production/router` is in DIR/production/router.nk, readable by its owner only:
    hand it to who connects under that name (nats.nkey_seed_file) and to nobody else. Its
    public key is beside it in router.pub, and is printed; it belongs into the reviewed file.
    """
    from chatlane.bus_users import make_keys, read_users

    for place, key in make_keys(read_users(users), directory).items():
        typer.echo(f"{place} {key}")


@app.command()
def nats_config(
    users: Users,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where it goes; else it is printed."),
    ] = None,
    *,
    keys: Annotated[
        Path | None,
        typer.Option(
            "--keys",
            metavar="DIR",
            help="Take the public keys that `nats-keys` left there, not those of the file.",
        ),
    ] = None,
    day: Annotated[
        datetime | None,
        typer.Option(
            "--on",
            metavar="DATE",
            formats=["%Y-%m-%d"],
            show_default="today",
            help="Who may connect on that day, in UTC.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; exit with 1 where FILE is not what it would be now."
        ),
    ] = False,
) -> None:
    """Make the part of a nats-server configuration that says who may connect, and say what.

    It has accounts, users and permissions, and where the certificate is; `include` it in the
    configuration of every server and have them reload it (SIGHUP), twice where a user is new. Who
    is not in it any more, taken out or past its `until`, is disconnected by that.
    """
    from chatlane.bus_users import read_public_keys, read_users, server_config

    declared = read_users(users)
    if keys is not None:
        declared = declared.with_keys(read_public_keys(declared, keys))
    text = server_config(declared, (day or datetime.now(UTC)).date())
    if check:
        if output is None:
            raise typer.BadParameter("--check needs --output: which file is to be compared?")
        if not output.exists() or output.read_text("utf-8") != text:
            raise CommandError(
                f"{output} is not what {users} calls for now: make it anew and reload the servers"
            )
        typer.echo(f"{output} is as {users} calls for")
    elif output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, "utf-8")
