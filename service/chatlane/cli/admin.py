"""Commands of the administration job: tables, streams and durables."""

import asyncio

import typer

from chatlane.cli.options import Config, open_nats, read_settings
from chatlane.errors import SchemaMismatchError

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Make and check what routers need: tables, streams and durables.\n\n"
    "Run `migrate` and `apply` before the first router, and again after an "
    "upgrade or a change of chatlane.toml. Both may run at any time and more than once.",
)


@app.command()
def migrate(config: Config = None) -> None:
    """Bring the tables in Postgres to this release."""
    settings = read_settings(config)
    from chatlane.store.migrations import known_versions
    from chatlane.store.migrations import migrate as run_migrations

    asyncio.run(run_migrations(settings.postgres.dsn.get_secret_value()))
    typer.echo(f"the tables are at migration {known_versions()[-1]}")


@app.command()
def apply(config: Config = None) -> None:
    """Create and update the streams and durables that chatlane.toml calls for.

    Never deletes anything. What only a new stream could change is left as it is;
    `verify` tells about it.
    """
    settings = read_settings(config)
    from chatlane.app import declared_topology
    from chatlane.bus import topology
    from chatlane.bus.jetstream import JetStream

    declared = declared_topology(settings)

    async def applied() -> list[str]:
        async with open_nats(settings, "chatlane-admin") as client:
            return await topology.apply(JetStream(client), declared.streams, declared.durables)

    for sentence in asyncio.run(applied()) or ["everything is as declared"]:
        typer.echo(sentence)


@app.command()
def verify(config: Config = None) -> None:
    """Compare tables, streams and durables with what this release and chatlane.toml need.

    Changes nothing; exits with 1 where something differs.
    """
    settings = read_settings(config)
    from chatlane.app import declared_topology, store_of
    from chatlane.bus import topology
    from chatlane.bus.jetstream import JetStream
    from chatlane.store.migrations import verify_schema

    declared = declared_topology(settings)

    async def differences() -> tuple[str, ...]:
        found: list[str] = []
        async with store_of(settings) as store, store.transaction() as connection:
            try:
                await verify_schema(connection)
            except SchemaMismatchError as exc:
                found += exc.differences
        async with open_nats(settings, "chatlane-admin") as client:
            found += await topology.verify(JetStream(client), declared.streams, declared.durables)
        return tuple(found)

    if found := asyncio.run(differences()):
        raise SchemaMismatchError(found)
    typer.echo("everything is as declared")
