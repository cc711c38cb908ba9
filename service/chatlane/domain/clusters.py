"""Cut texts at the boundaries of grapheme clusters, the signs that people see."""

from __future__ import annotations

from itertools import islice
from typing import Final

import regex

_CLUSTER: Final = regex.compile(r"\X")
# The number of marks on one sign is unlimited.
_MOST_FOR_EACH: Final = 16
# The search for clusters around a place starts so far before it.
_LOOK_BEHIND: Final = 64


def beginning(text: str, most: int, *, is_whole: bool = True) -> str:
    """Return at most `most` grapheme clusters of a text; a cut shows as an ellipsis.

    Args:
        text: On one line.
        most: How many clusters.
        is_whole: False where `text` was cut already, perhaps within its last cluster.
    """
    if is_whole and len(text) <= most:
        return text
    piece = text[: most * _MOST_FOR_EACH]
    is_cut = len(piece) < len(text) or not is_whole
    # One more shows whether any follow.
    clusters = [found[0] for found in islice(_CLUSTER.finditer(piece), most + 1)]
    if len(clusters) <= most:
        if not is_cut:
            return text
        clusters.pop()
    return "".join(clusters[:most]).rstrip() + "…"


def between(text: str, start: int, end: int) -> str:
    """Return the complete grapheme clusters of a text between two places."""
    near = _CLUSTER.finditer(text, max(0, start - _LOOK_BEHIND), end + _LOOK_BEHIND)
    return "".join(found[0] for found in near if found.start() >= start and found.end() <= end)
