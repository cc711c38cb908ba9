"""Print progress and results: sentences, a progress bar, tables, and one conversation.

On a terminal the bar moves; elsewhere it prints a line for each tenth.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from chatlane_devkit.judge.verdict import Verdict

# Faults that the demo makes on purpose are red.
_FAULT: Final = re.compile(r"with SIGKILL|^sabotage:")
_TENTH: Final = 0.1
_CHAT_WIDTH: Final = 72
_SHOWN_PROBLEMS: Final = 8


class ConsoleOutput:
    """Prints lines with the elapsed time."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._begin = monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._begin

    def tell(self, sentence: str) -> None:
        """Print a line with the elapsed time."""
        text = escape(sentence)
        if _FAULT.search(sentence):
            text = f"[bold red]{text}[/]"
        self.console.print(f"[dim]{self.seconds:6.1f} s[/]  {text}", highlight=False)

    def headline(self, text: str) -> None:
        """Print the headline of a section."""
        self.console.print()
        self.console.rule(f"[bold]{escape(text)}", align="left")

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Print a table; numbers are aligned to the right."""
        table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        content = [[str(cell) for cell in row] for row in rows]
        for number, name in enumerate(columns):
            is_number = bool(content) and all(row[number].isdecimal() for row in content)
            table.add_column(name, justify="right" if is_number else "left", overflow="fold")
        for row in content:
            table.add_row(*map(escape, row))
        self.console.print(table)

    def chat(self, title: str, lines: Iterable[tuple[str, str]]) -> None:
        """Print one conversation: messages of people on the left, answers on the right."""
        bubbles = [_bubble(author, text) for author, text in lines]
        width = min(_CHAT_WIDTH, self.console.width)
        self.console.print(Panel(Group(*bubbles), title=escape(title), width=width))

    def verdict(self, verdict: Verdict) -> None:
        """Print each check and its problems."""
        for check in verdict.checks:
            mark = "[bold green]✓[/]" if check.is_kept else "[bold red]✗[/]"
            self.console.print(f" {mark} {escape(check.promise)} [dim]({check.counted})[/]")
            for problem in check.problems[:_SHOWN_PROBLEMS]:
                self.console.print(f"     [red]{escape(problem)}[/]", highlight=False)
            if (hidden := len(check.problems) - _SHOWN_PROBLEMS) > 0:
                self.console.print(f"     [red]and {hidden} more[/]")

    @contextmanager
    def progress(self, total_published: int, total_heard: int) -> Iterator["PlayProgress"]:
        """Show the progress of the run during the block."""
        if not self.console.is_terminal:
            yield PlainProgress(self, total_published, total_heard)
            return
        columns = (TextColumn("{task.description:>12}"), BarColumn(40), MofNCompleteColumn())
        with Progress(*columns, console=self.console, transient=True) as progress:
            yield BarProgress(
                progress,
                progress.add_task("published", total=total_published),
                progress.add_task("answered", total=total_heard),
            )


class PlainProgress:
    """Prints a line for each tenth of the run."""

    def __init__(self, narrator: ConsoleOutput, total_published: int, total_heard: int) -> None:
        self._narrator = narrator
        self._totals = total_published, total_heard
        self._next = _TENTH

    def show(self, published: int, heard: int) -> None:
        """Print the progress if it has reached another tenth."""
        total_published, total_heard = self._totals
        if published >= self._next * total_published:
            self._next = int(published / total_published / _TENTH + 1) * _TENTH
            self._narrator.tell(
                f"{published} of {total_published} events published, "
                f"{heard} of {total_heard} messages answered"
            )


class BarProgress:
    """Two bars."""

    def __init__(self, progress: Progress, published: TaskID, heard: TaskID) -> None:
        self._progress = progress
        self._published = published
        self._heard = heard

    def show(self, published: int, heard: int) -> None:
        """Move the bars."""
        self._progress.update(self._published, completed=published)
        self._progress.update(self._heard, completed=heard)


PlayProgress = PlainProgress | BarProgress


def _bubble(author: str, text: str) -> Padding:
    if author:
        content = Text.assemble((f"{author}  ", "bold cyan"), text)
        return Padding(content, (0, 12, 0, 0))
    return Padding(Text(text, style="green", justify="right"), (0, 0, 1, 12))
