"""What commands print: tables and text that cannot take over the terminal."""

import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chatlane.domain.inert import json_line
from chatlane.logs import without_controls
from chatlane_schemas.envelope import Record

# Wide enough for a line of a table; a file or a pipe has no width of its own.
_WIDTH_OF_A_PIPE: Final = 220


def open_console() -> Console:
    """Return a console on standard output."""
    width = None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE
    return Console(width=width, highlight=False)


def plain(text: str | None) -> Text:
    """Return what somebody wrote, without markup and without control characters."""
    return Text(without_controls(text or "", keep="\n\t"))


def one_line(text: str) -> str:
    """Return what somebody wrote on one line, without control characters."""
    return without_controls(" ".join(text.split()))


def local_time(at: datetime) -> str:
    """Return a time as people here write it."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def table(*columns: str) -> Table:
    """Return an empty table; the first column is never cut, it is there to be copied."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        made.add_column(name, no_wrap=number == 0, overflow="fold")
    return made


def fact_table(facts: Mapping[str, object]) -> Table:
    """Return facts one a line, with their names; what is empty is left out."""
    made = table("", "")
    made.show_header = False
    for name, fact in facts.items():
        if fact:
            made.add_row(Text(name, style="bold"), plain(str(fact)))
    return made


def print_json(records: Iterable[Record]) -> None:
    """Print one JSON object a line."""
    for record in records:
        typer.echo(json_line(record.model_dump_json(exclude_none=True)))
