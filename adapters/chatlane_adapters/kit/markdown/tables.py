"""Draw a table with characters, for platforms that have none."""

import unicodedata
from collections.abc import Sequence
from typing import Final

from chatlane_adapters.kit.markdown.document import Row, Table, with_addresses

_GAP: Final = "  "


def drawn(table: Table) -> str:
    """Return the lines of a table with aligned columns, to be shown in a font of one width."""
    header, *rows = (_texts(row) for row in (table.header, *table.rows))
    count = max(map(len, (header, *rows)))
    cells = [[*row, *[""] * (count - len(row))] for row in (header, *rows)]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    sides = [*table.alignments, *["left"] * (count - len(table.alignments))]
    drawn_rows = [_aligned(row, widths, sides) for row in cells]
    line = _GAP.join("─" * width for width in widths)
    return "\n".join((drawn_rows[0], line, *drawn_rows[1:]))


def _texts(row: Row) -> list[str]:
    return [with_addresses(cell).replace("\n", " ") for cell in row]


def _aligned(cells: Sequence[str], widths: Sequence[int], sides: Sequence[str]) -> str:
    texts = []
    for cell, width, side in zip(cells, widths, sides, strict=True):
        room = width - _width(cell)
        before = {"right": room, "center": room // 2}.get(side, 0)
        texts.append(" " * before + cell + " " * (room - before))
    return _GAP.join(texts).rstrip()


def _width(text: str) -> int:
    """Return how many columns a text takes: two for wide characters, none for marks."""
    return sum(
        0
        if unicodedata.combining(character) or unicodedata.category(character) in {"Cf", "Me"}
        else 2
        if unicodedata.east_asian_width(character) in {"W", "F"}
        else 1
        for character in text
    )
