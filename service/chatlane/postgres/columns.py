"""Transpose rows into the column arrays that one `unnest` statement writes."""

from collections.abc import Iterable, Sequence
from typing import Any


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Return `rows` transposed; `width` empty columns when there are none."""
    transposed = [list(column) for column in zip(*rows, strict=True)]
    return transposed or [[] for _ in range(width)]
