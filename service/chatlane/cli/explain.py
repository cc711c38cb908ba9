"""`chatlane explain`: show how a router would handle an event, without writing anything."""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from chatlane.cli.shared.error_report import CommandError
from chatlane.cli.shared.options import AsJson, Config, read_client_settings
from chatlane.domain.prompts.sanitize import json_line
from chatlane_schemas.dead import DeadReason

if TYPE_CHECKING:
    from chatlane.config.settings import Settings
    from chatlane.decisions.explanation import Facts

_STANDARD_INPUT: Final = "-"


def explain(
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT", help="File with an inbound event, or `-` for standard input."
        ),
    ],
    config: Config = None,
    *,
    at: Annotated[
        datetime | None,
        typer.Option(
            formats=["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"],
            help="Time at which the event is stored, in UTC without an offset; by default now.",
        ),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Without a database: only the key and its rules.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show where an event would go: key, rules, session and next reset.

    Makes the same decisions as a router and writes nothing. Exits with 1 for an event that
    would become a dead letter. examples/event.json is an event to try.
    """
    now = at or datetime.now(UTC)
    body, settings = _read(event), read_client_settings(config)
    stored_at = now if now.tzinfo else now.replace(tzinfo=UTC)
    facts = asyncio.run(_explained(body, settings, stored_at, is_offline=offline))
    from chatlane.decisions.explanation import unknown_fields

    for name in unknown_fields(body):
        typer.echo(f"chatlane: this release ignores the unknown field {name!r}", err=True)
    refusal = _refusal(facts, body)
    if as_json:
        import json

        typer.echo(json_line(json.dumps(facts, ensure_ascii=False)))
    elif refusal is None:
        _print(facts)
    if refusal is not None:
        raise CommandError(refusal)


def _problems(body: bytes) -> str:
    """Return the errors in the fields of an event, with the permitted values."""
    from pydantic import ValidationError

    from chatlane.config.settings import problem_sentences
    from chatlane_schemas.inbound import InboundEvent

    try:
        InboundEvent.model_validate_json(body)
    except ValidationError as exc:
        return "; ".join(problem_sentences(exc))
    return ""


def _refusal(facts: "Facts", body: bytes) -> str | None:
    from chatlane.decisions.explanation import refusal_text

    problems = _problems(body) if facts.get("reason") == DeadReason.INVALID else None
    return refusal_text(facts, problems)


def _read(event: str) -> bytes:
    if event == _STANDARD_INPUT:
        return sys.stdin.buffer.read()
    path = Path(event)
    if not path.is_file():
        raise CommandError(f"there is no file {event}: examples/event.json shows what it holds")
    return path.read_bytes()


async def _explained(
    body: bytes, settings: "Settings", at: datetime, *, is_offline: bool
) -> "Facts":
    from chatlane.connections import store_of
    from chatlane.decisions.explanation import explain as explained
    from chatlane.errors import StoreUnavailableError

    catalog = settings.catalog()
    if is_offline:
        return await explained(body, catalog, at, None)
    try:
        async with store_of(settings) as store, store.transaction() as connection:
            return await explained(body, catalog, at, connection)
    except StoreUnavailableError as exc:
        raise CommandError(
            f"{exc}; --offline shows the key and its rules without a database"
        ) from exc


def _print(facts: "Facts") -> None:
    from chatlane.cli.shared.terminal import fact_table, open_console

    texts = {name.replace("_", " "): _text(value) for name, value in facts.items()}
    open_console().print(fact_table(texts))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return "\n".join(map(str, value)) or "none"
    return "none" if value is None else str(value)
