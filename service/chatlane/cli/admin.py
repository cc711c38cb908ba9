"""Commands of the administration job: tables, streams and durables, and who may use NATS."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.auditing import audited
from chatlane.cli.options import (
    Config,
    duration_option,
    open_nats,
    open_patient_store,
    read_settings,
)
from chatlane.cli.reporting import CommandError
from chatlane.errors import SchemaMismatchError, StoreUnavailableError

if TYPE_CHECKING:
    from chatlane.routing.repartition import Progress
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

    Never deletes anything. What only a new stream could change is left as it is, and
    so is the number of partitions, which `repartition` changes; `verify` tells about both.
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
            return done + await topology.count_differences(jetstream, declared.streams)

    for sentence in asyncio.run(applied()) or ["everything is as declared"]:
        typer.echo(sentence)


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
            found += await topology.count_differences(jetstream, declared.streams)
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


@app.command()
def repartition(
    config: Config = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done next, and change nothing.")
    ] = False,
    patience: Annotated[
        timedelta,
        typer.Option(
            parser=duration_option,
            metavar="DURATION",
            show_default="1m",
            help="How long to wait for routers that do not get on.",
        ),
    ] = timedelta(minutes=1),
) -> None:
    """Divide the logs into as many partitions as chatlane.toml says (router.partitions).

    Routers go on meanwhile, and the order of every conversation stays. Until it is done
    one router reads each log as a whole, so do it when a single one keeps up. Run it
    again when it was interrupted: it goes on where it was.
    """
    settings = read_settings(config)
    from chatlane.cli.serving import arm_as_told

    arm_as_told()
    asyncio.run(_repartition(settings, patience, is_dry=dry_run))


async def _repartition(settings: "Settings", patience: timedelta, *, is_dry: bool) -> None:
    from chatlane.bus.division import LogDivisions
    from chatlane.bus.jetstream import JetStream
    from chatlane.domain.log import LOGS
    from chatlane.routing.repartition import Repartition
    from chatlane.surroundings import store_of

    count = settings.router.partitions
    async with (
        store_of(settings) as store,
        open_nats(settings, "chatlane-admin") as client,
    ):
        change = Repartition(LogDivisions(JetStream(client)), store.transaction, count)
        for log in LOGS:
            said = ""
            if is_dry:
                typer.echo(_told(await change.look(log), count))
                continue
            detail: dict[str, object] = {"log": log, "partitions": count}
            async with audited(store, "admin repartition", detail):
                async for progress in change.run(log, patience):
                    if (sentence := _told(progress, count)) != said:
                        said = sentence
                        typer.echo(sentence)


_READS: Final = "routers have {behind} of its partitions to read up to where that ends"


def _told(progress: "Progress", count: int) -> str:
    """Return what is done or waited for now, in a sentence."""
    from chatlane.routing.repartition import Stage

    now = f"{progress.count} partitions" if progress.count else "read as a whole"
    place = f"{progress.log}: {now}"
    match progress.stage:
        case Stage.DONE:
            return place
        case Stage.STOP:
            return f"{place}; to be read as a whole next, then divided into {count}"
        case Stage.START_OVER:
            return (
                f"{place}, but the server stores it by {progress.stored_by}; to be read as a whole "
                f"from its first message on, then divided into {count}"
            )
        case Stage.DIVIDE:
            return f"{place}; to be divided into {count} next"
        case Stage.DRAIN:
            return f"{place}; {_READS.format(behind=progress.behind)}"


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
