"""Draw the output of a demo as an SVG for the README: the kills in red, then the verdict."""

import re
from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

TITLE: Final = "make demo"

_WIDTH: Final = 84
# The parts of the output that are drawn, by the start of their headlines.
_PARTS: Final = ("A day of chat", "What the kills cost", "A naive bot", "Dialogues", "Verdict")
_HEADLINE: Final = re.compile(r"^(\S.*?) ─+$")
_PROGRESS: Final = re.compile(r"\d+ of \d+ events published")


def write_picture(output: str, path: Path) -> None:
    """Write the drawing of the plain output of a demo."""
    console = Console(record=True, width=_WIDTH, file=StringIO(), force_terminal=True)
    for line in _drawn_lines(output):
        console.print(_styled(line), soft_wrap=False, overflow="ellipsis", no_wrap=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    console.save_svg(str(path), title=TITLE)


def _drawn_lines(output: str) -> list[str]:
    drawn: list[str] = []
    is_drawn = False
    for line in output.splitlines():
        if headline := _HEADLINE.match(line):
            is_drawn = headline[1].startswith(_PARTS)
            if is_drawn and drawn:
                drawn.append("")
            line = headline[1]  # noqa: PLW2901 - the rule beside it is as wide as the terminal was
        if is_drawn and line.strip() and not _PROGRESS.search(line):
            drawn.append(line.rstrip())
    return drawn


def _styled(line: str) -> Text:
    text = Text(line)
    if line.startswith(_PARTS):
        text.stylize("bold")
    if "SIGKILL" in line or line.lstrip().startswith("✗"):
        text.stylize("bold red")
    text.highlight_regex("✓", "bold green")
    text.highlight_regex(r"^ *\d+\.\d s", "dim")
    return text
