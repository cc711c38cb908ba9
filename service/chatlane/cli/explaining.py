"""`chatlane explain`: what a router would do with an event, told without doing it."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.options import AsJson, Config, read_client_settings
from chatlane.cli.reporting import CommandError
from chatlane.domain.inert import json_line

if TYPE_CHECKING:
    from chatlane.routing.explaining import Facts
    from chatlane.settings import Settings

_STANDARD_INPUT: Final = "-"


def explain(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="File with an inbound event, or `-`.")
    ],
    config: Config = None,
    *,
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
            help="When it would be stored, in UTC unless it says otherwise; now by default.",
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no database: the key and its rules only.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say where an event would go: key, rules, session, and the next reset.

    The same decisions that a router makes, and nothing is written.
    """
    now = at or datetime.now(UTC)
    body, settings = _read(event), read_client_settings(config)
    stored_at = now if now.tzinfo else now.replace(tzinfo=UTC)
    facts = asyncio.run(_explained(body, settings, stored_at, is_offline=offline))
    if as_json:
        import json

        typer.echo(json_line(json.dumps(facts, ensure_ascii=False)))
    else:
        _print(facts)


def _read(event: str) -> bytes:
    if event == _STANDARD_INPUT:
        return sys.stdin.buffer.read()
    path = Path(event)
    if not path.is_file():
        raise CommandError(f"there is no file {event}")
    return path.read_bytes()


async def _explained(
    body: bytes, settings: "Settings", at: datetime, *, is_offline: bool
) -> "Facts":
    from chatlane.errors import StoreUnavailableError
    from chatlane.routing.explaining import explain as explained
    from chatlane.surroundings import store_of

    catalog = settings.catalog()
    if is_offline:
        return await explained(body, catalog, at, None)
    try:
        async with store_of(settings) as store, store.transaction() as connection:
            return await explained(body, catalog, at, connection)
    except StoreUnavailableError as exc:
        raise CommandError(
            "Postgres does not answer, so only the key can be told: add --offline, or set "
            "postgres.dsn in chatlane.toml or CHATLANE_POSTGRES__DSN"
        ) from exc


def _print(facts: "Facts") -> None:
    from chatlane.cli.terminal import fact_table, open_console

    words = {name.replace("_", " "): _words(value) for name, value in facts.items()}
    open_console().print(fact_table(words))


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "\n".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
