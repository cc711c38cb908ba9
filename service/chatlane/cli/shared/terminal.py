"""Tables, times and text for a terminal; control characters in untrusted text are escaped."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TextIO
from uuid import UUID

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from chatlane.cli.shared.error_report import CommandError
from chatlane.domain.prompts.sanitize import beginning, json_line
from chatlane.observability.logs import without_controls
from chatlane_schemas.envelope import Record

# A file or a pipe has no width, so nothing is cut there.
_PIPE_WIDTH: Final = 4096
# Ids differ in their last characters; the first ones are the creation time.
SHORT_ID_LENGTH: Final = 8
_CHUNK_BYTES: Final = 65_536
# Above the limit of a message: the service refuses a line that is too long.
_LONGEST_LINE_BYTES: Final = 1024 * 1024
_UNITS: Final = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "m"),
)


def open_console() -> Console:
    """Return a console on standard output."""
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return Console(width=width, highlight=False)


def plain(text: str | None) -> Text:
    """Return untrusted text without markup and without control characters."""
    return Text(without_controls(text or "", keep="\n\t"))


def one_line(text: str) -> str:
    """Return untrusted text on one line, without control characters."""
    return without_controls(" ".join(text.split()))


def local_time(at: datetime) -> str:
    """Return a time in the time zone of this machine."""
    return at.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def age(at: datetime) -> str:
    """Return the time since a moment, in its largest unit: `5s`, `3m`, `2h`, `12d`."""
    past = max(timedelta(0), datetime.now(UTC) - at)
    for unit, letter in _UNITS:
        if past >= unit:
            return f"{past // unit}{letter}"
    return f"{past // timedelta(seconds=1)}s"


def short_id(full: UUID) -> str:
    """Return the last characters of an id, which every command accepts instead of the whole id."""
    return str(full)[-SHORT_ID_LENGTH:]


def shortened(text: str, length: int) -> str:
    """Return untrusted text on one line, cut to a number of characters."""
    return beginning(one_line(text), length)


def table(*columns: str) -> Table:
    """Return an empty table for `add_row`; columns keep their width, and the last one is cut."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns[:-1]:
        made.add_column(name, no_wrap=True)
    made.add_column(columns[-1], overflow="ellipsis")
    return made


def add_row(listed: Table, cells: Sequence[str]) -> None:
    """Add a row to a table on one line; its last cell is cut at the edge of the terminal."""
    *others, last = (plain(one_line(cell)) for cell in cells)
    last.no_wrap = True
    last.overflow = "ellipsis"
    listed.add_row(*others, last)


def fact_table(facts: Mapping[str, object]) -> Table:
    """Return one named fact per line, without the empty ones."""
    made = Table(box=None, pad_edge=False, show_header=False)
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, fact in facts.items():
        if fact:
            made.add_row(Text(name, style="bold"), plain(str(fact)))
    return made


def print_json(records: Iterable[Record]) -> None:
    """Print one JSON object per line."""
    for record in records:
        typer.echo(json_line(record.model_dump_json(exclude_none=True)))


async def typed_lines(stream: TextIO) -> AsyncIterator[str]:
    """Yield lines as they arrive, without a thread, because a thread would delay the exit.

    Raises:
        CommandError: A line is longer than any message can be.
    """
    reader = asyncio.StreamReader(limit=_LONGEST_LINE_BYTES)
    loop = asyncio.get_running_loop()
    descriptor = stream.fileno()

    def read() -> None:
        # The descriptor is readable, so this does not block. The terminal stays in blocking mode
        # because other programs share it.
        if chunk := os.read(descriptor, _CHUNK_BYTES):
            reader.feed_data(chunk)
        else:
            loop.remove_reader(descriptor)
            reader.feed_eof()

    try:
        loop.add_reader(descriptor, read)
    except PermissionError:
        # A file is always ready.
        for raw in stream.buffer:
            yield raw.decode(errors="replace")
        return
    try:
        while raw := await reader.readline():
            yield raw.decode(errors="replace")
    except ValueError as exc:
        raise CommandError(f"a line has more than {_LONGEST_LINE_BYTES} bytes") from exc
    finally:
        loop.remove_reader(descriptor)
